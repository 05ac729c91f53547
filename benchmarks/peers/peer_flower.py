"""Federated averaging in Flower's simulation, Ray backend.

A `ServerApp` and a `ClientApp`, one virtual node per device, two of them at a
time, and Flower's own `FedAvg`.  At each local step a device takes
W_local -= s * g with

    g = (l / b) X_B^T (X_B W_local - Y_B)

over a random batch B of b of its l rows.  Flower averages the devices' models;
the server then applies W += (number of devices) * (average - W), the sum of
their changes.  The data lie in memory-mapped files in a temporary folder; each
worker process maps them once.

Nothing leaves the machine: telemetry, update check and usage statistics are
off before Flower is imported, HTTP goes to a closed local port, and Ray listens
on the loopback address.  One BLAS thread per worker.  The last line on stdout
is the result as JSON.

Flower's simulation looks for new messages every 0.1 s, which no option changes.
"""

from __future__ import annotations

import os

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
# Even so, Ray asks the metadata addresses of three clouds where it runs: send
# every HTTP request to a closed port of this machine
for _name in ("http_proxy", "https_proxy", "all_proxy"):
    os.environ[_name] = os.environ[_name.upper()] = "http://127.0.0.1:9"
os.environ["no_proxy"] = os.environ["NO_PROXY"] = "127.0.0.1,localhost"

import argparse
import contextlib
import functools
import sys
import tempfile
import time
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from workload import STEP, draw_batch, gradient, make_device, print_result, read_options  # first: sets one BLAS thread

import numpy as np
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.common import (
    FitRes,
    Parameters,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from flwr.server import LegacyContext, ServerConfig
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import FedAvg as LegacyFedAvg
from flwr.server.workflow import DefaultWorkflow
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation


def write_data(options: argparse.Namespace, folder: Path) -> None:
    """Write the data of all devices to two memory-mappable files."""
    for name, width in (("rows", options.dimension), ("targets", options.outputs)):
        np.lib.format.open_memmap(
            folder / f"{name}.npy",
            mode="w+",
            dtype=np.float32,
            shape=(options.devices, options.samples, width),
        ).flush()
    rows = np.load(folder / "rows.npy", mmap_mode="r+")
    targets = np.load(folder / "targets.npy", mmap_mode="r+")
    for device in range(options.devices):
        rows[device], targets[device] = make_device(options, device)
    rows.flush()
    targets.flush()


# --- in the worker processes ---------------------------------------------------


@functools.lru_cache(maxsize=1)
def open_data(folder: str) -> tuple[np.ndarray, np.ndarray]:
    """The data of all devices, mapped once per worker process."""
    rows = np.load(Path(folder) / "rows.npy", mmap_mode="r")
    targets = np.load(Path(folder) / "targets.npy", mmap_mode="r")
    return np.asarray(rows), np.asarray(targets)


def train_device(device: int, model: np.ndarray, config: Any) -> np.ndarray:
    """The model of one device after its local steps from `model`."""
    all_rows, all_targets = open_data(config["folder"])
    rows, targets = all_rows[device], all_targets[device]
    samples, size = len(rows), config["batch"]
    rng = np.random.default_rng([config["seed"], config["server-round"], device])
    scale = np.float32(samples / size)
    step = np.float32(config["step"])
    local = model.copy()
    for _ in range(config["local-steps"]):
        index = draw_batch(config["full-batch"], samples, size, rng)
        local -= step * gradient(rows, targets, index, local, scale)
    return local


message_app = ClientApp()


@message_app.train()
def train(message: Message, context: Context) -> Message:
    """Answer the server's model with the device's, in the message API."""
    device = int(context.node_config["partition-id"])
    config = message.content["config"]
    (model,) = message.content["arrays"].to_numpy_ndarrays()
    content = RecordDict(
        {
            "arrays": ArrayRecord([train_device(device, model, config)]),
            "metrics": MetricRecord({"num-examples": 1}),
        }
    )
    return Message(content=content, reply_to=message)


class DeviceClient(NumPyClient):
    """The same device in Flower's older API."""

    def __init__(self, device: int) -> None:
        self._device = device

    def fit(self, parameters: list[np.ndarray], config: dict[str, Any]) -> tuple[list[np.ndarray], int, dict[str, Any]]:
        """Answer the server's model with the device's."""
        return [train_device(self._device, parameters[0], config)], 1, {}


def make_client(context: Context) -> Any:
    """The client of one virtual node, in the older API."""
    return DeviceClient(int(context.node_config["partition-id"])).to_client()


# --- at the server -------------------------------------------------------------


class RoundClock:
    """Ends of the rounds, and the model after the first one."""

    def __init__(self) -> None:
        self.ends: list[float] = []
        self.first_model = np.empty(0)

    def end_round(self, model: np.ndarray) -> None:
        """Note the end of a round."""
        self.ends.append(time.perf_counter())
        if len(self.ends) == 1:
            self.first_model = model


class SummingFedAvg(FedAvg):
    """Flower's FedAvg, whose average of the models becomes a sum of changes."""

    def __init__(self, options: argparse.Namespace, clock: RoundClock) -> None:
        super().__init__(
            fraction_evaluate=0.0,
            min_train_nodes=options.devices,
            min_available_nodes=options.devices,
        )
        self._devices = options.devices
        self._clock = clock
        self._model = np.empty(0)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Remember the model that the devices start from."""
        (self._model,) = arrays.to_numpy_ndarrays()
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Average, then scale the change by the number of devices."""
        replies = list(replies)
        answers = sum(reply.has_content() for reply in replies)
        if answers != self._devices:
            raise RuntimeError(f"{answers} of {self._devices} devices answered")
        average, metrics = super().aggregate_train(server_round, replies)
        change = average.to_numpy_ndarrays()[0] - self._model
        model = self._model + np.float32(self._devices) * change
        self._clock.end_round(model)
        return ArrayRecord([model]), metrics


class SummingLegacyFedAvg(LegacyFedAvg):
    """The same strategy in Flower's older API."""

    def __init__(
        self,
        options: argparse.Namespace,
        clock: RoundClock,
        model: np.ndarray,
        config: dict[str, Any],
    ) -> None:
        super().__init__(
            fraction_evaluate=0.0,
            min_fit_clients=options.devices,
            min_available_clients=options.devices,
            initial_parameters=ndarrays_to_parameters([model]),
            on_fit_config_fn=lambda number: {**config, "server-round": number},
        )
        self._devices = options.devices
        self._clock = clock
        self._model = model

    def aggregate_fit(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, FitRes]],
        failures: list[Any],
    ) -> tuple[Parameters | None, dict[str, Any]]:
        """Average, then scale the change by the number of devices."""
        if len(results) != self._devices:
            raise RuntimeError(f"{len(results)} of {self._devices} devices answered")
        average, metrics = super().aggregate_fit(server_round, results, failures)
        change = parameters_to_ndarrays(average)[0] - self._model
        self._model = self._model + np.float32(self._devices) * change
        self._clock.end_round(self._model)
        return ndarrays_to_parameters([self._model]), metrics


def make_server(options: argparse.Namespace, folder: Path, clock: RoundClock) -> ServerApp:
    """The server: it runs all the rounds with federated averaging."""
    rounds = 1 + options.rounds
    config = {
        "folder": str(folder),
        "batch": options.batch,
        "local-steps": options.local_steps,
        "seed": options.seed,
        "step": STEP,
        "full-batch": options.full_batch,
    }
    model = np.zeros((options.dimension, options.outputs), dtype=np.float32)
    app = ServerApp()

    @app.main()
    def serve(grid: Grid, context: Context) -> None:
        grid.pull_interval = options.pull_interval
        if options.api == "message":
            SummingFedAvg(options, clock).start(
                grid=grid,
                initial_arrays=ArrayRecord([model]),
                num_rounds=rounds,
                train_config=ConfigRecord(config),
            )
        else:
            legacy_context = LegacyContext(
                context,
                config=ServerConfig(num_rounds=rounds),
                strategy=SummingLegacyFedAvg(options, clock, model, config),
            )
            DefaultWorkflow()(grid, legacy_context)

    return app


def run(options: argparse.Namespace) -> tuple[list[float], np.ndarray]:
    """Run one round, then the timed ones.

    Returns the seconds of each timed round and the model after the first
    round, which is not timed.
    """
    clock = RoundClock()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["FLWR_HOME"] = str(folder / "flwr")
        write_data(options, folder)
        run_simulation(
            server_app=make_server(options, folder, clock),
            client_app=(message_app if options.api == "message" else ClientApp(client_fn=make_client)),
            num_supernodes=options.devices,
            backend_config={
                "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
                "init_args": {
                    "num_cpus": options.workers,
                    "_node_ip_address": "127.0.0.1",
                    "_temp_dir": str(folder / "ray"),
                },
            },
        )
    return list(np.diff(clock.ends)), clock.first_model


def list_deviations(options: argparse.Namespace) -> list[str]:
    """What differs from Flower's defaults, in words."""
    return [
        f"grid.pull_interval {options.pull_interval} s (default 0.1)",
        f"client_resources num_cpus 1 (default 2): {options.workers} clients in parallel",
        "one BLAS thread per worker",
        "fraction_evaluate 0: no evaluation of the model",
        "every device in every round, with weight 1",
        "server applies devices * (average - model), so that the average is a sum",
        f"{options.api} API, run by the deprecated run_simulation",
        "batches drawn with replacement; data in memory-mapped files",
        "Ray on the loopback address, its files in a temporary folder",
        "telemetry, update check, usage statistics and all HTTP off",
    ]


def run_quietly(options: argparse.Namespace) -> tuple[list[float], np.ndarray]:
    """Run with what Flower prints sent to standard error."""
    with contextlib.redirect_stdout(sys.stderr):
        return run(options)


def main() -> None:
    """Run the workload and print one line of JSON."""
    options = read_options(
        __doc__.splitlines()[0],
        ("--workers", {"type": int, "default": 2, "help": "clients that Ray runs in parallel"}),
        (
            "--pull-interval",
            {"type": float, "default": 0.005, "help": "seconds between the server's looks for replies (Flower: 0.1)"},
        ),
        (
            "--api",
            {
                "choices": ("message", "numpy-client"),
                "default": "message",
                "help": "Flower's message API, or its older NumPyClient",
            },
        ),
    )
    name = f"{version('flwr')} (ray {version('ray')})"
    print_result("flower", name, options, run_quietly, list_deviations(options))


if __name__ == "__main__":
    # Under its own name, so that Ray's workers import this module, and keep
    # its cache, rather than receive a copy of `__main__` with every message
    import peer_flower

    peer_flower.main()
