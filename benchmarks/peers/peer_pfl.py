"""Federated averaging in pfl-research's SimulatedBackend, one process.

A small NumPy `StatefulModel` and pfl's own `FederatedAveraging`, of which only
the local training of one user is replaced: pfl has no SGD for NumPy models.
At each local step a device takes W_local -= s * g with

    g = (l / b) X_B^T (X_B W_local - Y_B)

over a random batch B of b of its l rows.  pfl averages the devices' model
differences; the model applies (number of devices) * average, their sum.

One BLAS thread.  The last line on stdout is the result as JSON; what pfl
prints at each round goes to stderr.
"""

from __future__ import annotations


import argparse
import contextlib
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from workload import STEP, draw_batch, gradient, make_device, print_result, read_options  # first: sets one BLAS thread

import numpy as np
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.context import CentralContext
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.base import StatefulModel
from pfl.stats import MappedVectorStatistics

NAME = "weights"


class LinearModel(StatefulModel):
    """Linear regression with NumPy weights, for pfl."""

    def __init__(self, options: argparse.Namespace) -> None:
        shape = (options.dimension, options.outputs)
        self.weights = np.zeros(shape, dtype=np.float32)
        # pfl averages over the devices: this makes the average a sum
        self._server_rate = np.float32(options.devices)

    def get_parameters(self, placeholders: MappedVectorStatistics | None = None) -> MappedVectorStatistics:
        """A copy of the weights, in `placeholders` if they are given."""
        if placeholders is None:
            return MappedVectorStatistics({NAME: self.weights.copy()})
        np.copyto(placeholders[NAME], self.weights)
        return placeholders

    def set_parameters(self, w: MappedVectorStatistics) -> None:
        """Restore the weights from `w`."""
        np.copyto(self.weights, w[NAME])

    def get_model_difference(
        self, other_parameters: MappedVectorStatistics, clone: bool = False
    ) -> MappedVectorStatistics:
        """The weights minus those of `other_parameters`, always a new array."""
        return MappedVectorStatistics({NAME: self.weights - other_parameters[NAME]})

    def apply_model_update(self, statistics: MappedVectorStatistics) -> tuple[LinearModel, Metrics]:
        """Add the sum of the devices' differences to the weights."""
        self.weights += self._server_rate * statistics[NAME]
        return self, Metrics()

    def evaluate(
        self,
        dataset: Dataset,
        name_formatting_fn: Callable[[str], Any],
        eval_params: NNEvalHyperParams | None = None,
    ) -> Metrics:
        """No evaluation: only training is measured."""
        return Metrics()

    def save(self, dir_path: str) -> None:
        """Write the weights to a folder."""
        np.save(Path(dir_path) / NAME, self.weights)

    def load(self, dir_path: str) -> None:
        """Read the weights from a folder."""
        self.weights = np.load(Path(dir_path) / f"{NAME}.npy")


class NumpyFederatedAveraging(FederatedAveraging):
    """pfl's federated averaging with local steps in NumPy."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self._full_batch = options.full_batch
        self._rng = np.random.default_rng(options.seed)

    def train_one_user(
        self,
        initial_model_state: MappedVectorStatistics,
        model: LinearModel,
        user_dataset: Dataset,
        central_context: CentralContext,
    ) -> tuple[MappedVectorStatistics, Metrics]:
        """Take the local steps of one device from the server's model."""
        parameters = central_context.model_train_params
        rows, targets = user_dataset.raw_data
        samples = len(user_dataset)
        scale = np.float32(samples / parameters.local_batch_size)
        step = np.float32(parameters.local_learning_rate)
        local = model.weights
        for _ in range(parameters.local_num_steps):
            index = draw_batch(self._full_batch, samples, parameters.local_batch_size, self._rng)
            local -= step * gradient(rows, targets, index, local, scale)
        return model.get_model_difference(initial_model_state), Metrics()


class RoundClock(TrainingProcessCallback):
    """Records the end of every round and the model after the first one."""

    def __init__(self) -> None:
        self.ends: list[float] = []
        self.first_model = np.empty(0)

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: LinearModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """Note the time; called by pfl at the end of each round."""
        self.ends.append(time.perf_counter())
        if central_iteration == 0:
            self.first_model = model.weights.copy()
        return False, Metrics()


def make_backend(options: argparse.Namespace) -> SimulatedBackend:
    """pfl's simulation over the devices, each of them once per round."""
    data = {device: make_device(options, device) for device in range(options.devices)}
    sampler = get_user_sampler("minimize_reuse", list(data))
    dataset = FederatedDataset.from_slices(data, sampler)
    return SimulatedBackend(training_data=dataset, val_data=dataset)


def run(options: argparse.Namespace) -> tuple[list[float], np.ndarray]:
    """Run one round, then the timed ones.

    Returns the seconds of each timed round and the model after the first
    round, which is not timed.
    """
    np.random.seed(options.seed)
    rounds = 1 + options.rounds
    clock = RoundClock()
    algorithm_params = NNAlgorithmParams(
        central_num_iterations=rounds,
        evaluation_frequency=rounds,
        train_cohort_size=options.devices,
        val_cohort_size=0,
    )
    train_params = NNTrainHyperParams(
        local_num_epochs=None,
        local_num_steps=options.local_steps,
        local_learning_rate=STEP,
        local_batch_size=options.batch,
    )
    NumpyFederatedAveraging(options).run(
        algorithm_params,
        make_backend(options),
        LinearModel(options),
        train_params,
        callbacks=[clock],
    )
    return list(np.diff(clock.ends)), clock.first_model


def run_quietly(options: argparse.Namespace) -> tuple[list[float], np.ndarray]:
    """Run with what pfl prints sent to standard error."""
    with contextlib.redirect_stdout(sys.stderr):
        return run(options)


DEVIATIONS = [
    "one process and one BLAS thread: pfl's backend reduces over processes "
    "only for a deep-learning framework, not for NumPy models",
    "NumPy StatefulModel; train_one_user of FederatedAveraging replaced, as pfl has no SGD for NumPy models",
    "batches drawn with replacement by the algorithm, not by Dataset.iter",
    "server rate = number of devices, so that the average is a sum",
    "no evaluation of the model; no validation cohort",
    "pfl's print of the metrics of each round is kept, but to stderr",
]

if __name__ == "__main__":
    print_result("pfl", version("pfl"), read_options(__doc__.splitlines()[0]), run_quietly, DEVIATIONS)
