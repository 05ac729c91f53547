"""Federated averaging of FedJAX on the CPU.

FedJAX's own `fed_avg` algorithm, SGD optimizers and shuffled batches over a
linear model.  At each local step a device takes W_local -= s * g with

    g = (l / b) X_B^T (X_B W_local - Y_B)

over a random batch B of b of its l rows.  FedJAX averages the devices' model
differences; its server SGD has the number of devices as rate, hence applies
their sum.

XLA computes each operation with one thread, which is the faster way here,
unless --all-threads is given.  The last line on stdout is the result as JSON.
"""

from __future__ import annotations

import os
import sys

os.environ["JAX_PLATFORMS"] = "cpu"
# XLA reads its flags once, when JAX is first used
if "--all-threads" not in sys.argv:
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"

import argparse
import time
from importlib.metadata import version
from typing import Any

from workload import STEP, make_device, print_result, read_options  # first: sets one BLAS thread

import fedjax
import jax
import jax.numpy as jnp
import numpy as np
from fedjax.algorithms import fed_avg


def make_model(options: argparse.Namespace) -> fedjax.Model:
    """Linear regression as a FedJAX model, weights zero at first."""

    def init(rng: Any) -> jnp.ndarray:
        return jnp.zeros((options.dimension, options.outputs), jnp.float32)

    def apply_for_train(params: jnp.ndarray, batch: Any, rng: Any) -> jnp.ndarray:
        return batch["x"] @ params

    def apply_for_eval(params: jnp.ndarray, batch: Any) -> jnp.ndarray:
        return batch["x"] @ params

    def train_loss(batch: Any, predictions: jnp.ndarray) -> jnp.ndarray:
        # FedJAX averages the loss over the batch: l times the average of the
        # half squares has the gradient (l / b) X_B^T (X_B W - Y_B)
        squares = jnp.sum((predictions - batch["y"]) ** 2, axis=-1)
        return 0.5 * options.samples * squares

    return fedjax.Model(init, apply_for_train, apply_for_eval, train_loss, {})


def make_algorithm(options: argparse.Namespace, model: fedjax.Model) -> fedjax.FederatedAlgorithm:
    """FedJAX's federated averaging; the server's rate makes it a sum."""
    return fed_avg.federated_averaging(
        grad_fn=fedjax.model_grad(model),
        client_optimizer=fedjax.optimizers.sgd(learning_rate=STEP),
        server_optimizer=fedjax.optimizers.sgd(learning_rate=options.devices),
        client_batch_hparams=fedjax.ShuffleRepeatBatchHParams(
            batch_size=options.batch,
            num_epochs=None,
            num_steps=options.local_steps,
        ),
    )


def make_datasets(options: argparse.Namespace) -> list[fedjax.ClientDataset]:
    """The data of the devices, as NumPy arrays in FedJAX's containers."""
    data = (make_device(options, device) for device in range(options.devices))
    return [fedjax.ClientDataset({"x": rows, "y": targets}) for rows, targets in data]


def run(options: argparse.Namespace) -> tuple[list[float], np.ndarray]:
    """Run one round, which compiles, then the timed ones.

    Returns the seconds of each timed round and the model after the first
    round, which is not timed.
    """
    datasets = make_datasets(options)
    model = make_model(options)
    algorithm = make_algorithm(options, model)
    key = jax.random.PRNGKey(options.seed)
    state = algorithm.init(model.init(key))
    seconds: list[float] = []
    first_model = np.empty(0)
    for round_number in range(1 + options.rounds):
        start = time.perf_counter()
        key, round_key = jax.random.split(key)
        client_keys = jax.random.split(round_key, options.devices)
        clients = [
            (b"%d" % device, dataset, client_key)
            for device, (dataset, client_key) in enumerate(zip(datasets, client_keys, strict=True))
        ]
        state, _ = algorithm.apply(state, clients)
        jax.block_until_ready(state.params)
        seconds.append(time.perf_counter() - start)
        if round_number == 0:
            first_model = np.asarray(state.params)
    return seconds[1:], first_model


def list_deviations(options: argparse.Namespace) -> list[str]:
    """What differs from FedJAX's defaults, in words."""
    deviations = [
        "num_epochs=None in the batches (default 1), so that num_steps rules",
        "batches as FedJAX draws them: all rows shuffled anew for each device and round, no row twice within a round",
        "server SGD rate = number of devices, so that the average is a sum",
        "loss scaled by the number of rows, as FedJAX averages over the batch",
        "each round waits for its model (block_until_ready)",
        "JAX 0.4.25 instead of the newest, and CPU only",
        "the first round also compiles",
    ]
    if not options.all_threads:
        deviations.append("one thread within an XLA operation (default: every core)")
    return deviations


def main() -> None:
    """Run the workload and print one line of JSON."""
    threads = {"action": "store_true", "help": "let XLA use every core within an operation, its default"}
    options = read_options(__doc__.splitlines()[0], ("--all-threads", threads))
    name = f"{version('fedjax')} (jax {jax.__version__})"
    print_result("fedjax", name, options, run, list_deviations(options))


if __name__ == "__main__":
    main()
