"""Aggregation: the server combines the updates that arrived with its own (Sec. III-D)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from codedfl.errors import InputError
from codedfl.fleet import Attendance
from codedfl.typing import BoolArray, FloatArray

DeviceUpdate = tuple[int, FloatArray]
"""The index of a device and the accumulated gradient that it sent."""

Payload = Mapping[str, FloatArray]
"""What travels between the server and a device in a round, by the names that the scheme declares."""


@dataclass(frozen=True, eq=False)
class Round:
    """The inputs of the aggregation at the end of a round.

    Args:
        number: ``k``.
        step_size: ``eta_k``.
        attendance: the devices asked, those that arrived, and their batch sizes.
        arrival_probability: ``p_i``, (N,).
        covered: whose data the coded dataset at the server stands for, (N,).
        payloads: index and message of every device whose message arrived, in device order. They can be read once, and are
            computed while they are read.
        server_update: the server's update on the coded data; None without one.
    """

    number: int
    step_size: float
    attendance: Attendance
    arrival_probability: FloatArray
    covered: BoolArray
    payloads: Iterable[tuple[int, Payload]]
    server_update: FloatArray | None

    @property
    def updates(self) -> Iterator[DeviceUpdate]:
        """The updates among the messages."""
        return ((device, payload["update"]) for device, payload in self.payloads)


class Aggregation(ABC):
    """A rule that combines updates into one global update."""

    @property
    def device_weight(self) -> float | None:
        """``w`` of a rule that weights updates by ``w / p_i`` and the server's by ``1 - w``; None for another rule."""
        return None

    @abstractmethod
    def combine(self, round: Round, model: FloatArray) -> FloatArray:
        """Return the global update ``g(W_k)``, of the shape and precision of ``model``."""

    def mean_weights(
        self,
        arrival_probability: FloatArray,  # noqa: ARG002 (for subclasses)
        covered: BoolArray,  # noqa: ARG002
    ) -> tuple[FloatArray, float] | None:
        """Return the mean weights of the devices' updates, (N,), and of the server's; None if there are none that are fixed."""
        return None

    def describe(self) -> str:
        """Return how updates are weighted, in the words of a table."""
        return type(self).__name__


@dataclass(frozen=True)
class Sum(Aggregation):
    """The plain sum: ``g(W_k) = sum_i 1_i g_i + g_s``.

    FedAvg has no server update, DP-CFL no device updates; CFL-FB and CodedFedL have both, weighted in the parity data.
    """

    def mean_weights(self, arrival_probability: FloatArray, covered: BoolArray) -> tuple[FloatArray, float]:  # noqa: ARG002
        """Return the mean weights of the devices' updates and of the server's: ``p_i`` and 1."""
        return arrival_probability, 1.0

    def combine(self, round: Round, model: FloatArray) -> FloatArray:
        """Return ``sum_i 1_i g_i + g_s``."""
        total = np.zeros_like(model) if round.server_update is None else round.server_update.copy()
        for _, update in round.updates:
            total += update
        return total

    def describe(self) -> str:
        """Return that it is a sum."""
        return "sum"


@dataclass(frozen=True)
class InverseProbability(Aggregation):
    """Weights of one over the arrival probability: ``g(W_k) = sum_i w_i 1_i g_i / p_i + (1 - w) g_s``, up to a cap.

    Both parts estimate the gradient over the data that the coded dataset stands for, so those devices have ``w_i = w``; with
    ``w = 1/2`` this is (5) in the paper. A device that uploaded no coded data has ``w_i = 1``: its own updates alone
    represent its data.

    ``1 / p_i`` is capped at ``C``: the weight is ``w_i / max(p_i, 1 / C)``. Without a cap, a device that arrives once in
    thousands of rounds throws the model far off when it does. The price is a bias: a device with ``p_i < 1 / C`` contributes
    the share ``C p_i`` of its gradient on average.

    Args:
        device_weight: ``w``, the share of the devices' part.
        weight_cap: ``C``, the largest weight of an update before the factor ``w_i``.

    Example:
        >>> nobody_late = Attendance(np.array([1, 0, 1]), np.array([True, False, True]), np.zeros(3))
        >>> updates = [(0, {"update": np.array([[1.0]])}), (2, {"update": np.array([[3.0]])})]
        >>> covered = np.array([True, True, True])
        >>> round = Round(0, 0.1, nobody_late, np.array([0.5, 0.9, 1.0]), covered, updates, np.array([[10.0]]))
        >>> InverseProbability().combine(round, np.zeros((1, 1)))
        array([[7.5]])
    """

    device_weight: float = 0.5
    weight_cap: float = 100.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.device_weight <= 1.0:
            raise InputError(f"device_weight = {self.device_weight} must be between 0 and 1.")
        if not 1.0 <= self.weight_cap < math.inf:
            raise InputError(f"weight_cap = {self.weight_cap} must be a finite number, 1 or more.")

    def mean_weights(self, arrival_probability: FloatArray, covered: BoolArray) -> tuple[FloatArray, float]:
        """Return the mean weights of the devices' updates and of the server's: ``w_i min(1, C p_i)`` and ``1 - w``."""
        weights = np.where(covered, self.device_weight, 1.0)
        return weights * np.minimum(1.0, self.weight_cap * arrival_probability), 1.0 - self.device_weight

    def combine(self, round: Round, model: FloatArray) -> FloatArray:
        """Return ``sum_i w_i 1_i g_i / max(p_i, 1 / C) + (1 - w) g_s``."""
        total = np.zeros_like(model)
        for device, update in round.updates:
            weight = self.device_weight if round.covered[device] else 1.0
            probability = max(round.arrival_probability[device], 1.0 / self.weight_cap)
            total += total.dtype.type(weight / probability) * update
        if round.server_update is not None:
            total += total.dtype.type(1.0 - self.device_weight) * round.server_update
        return total

    def describe(self) -> str:
        """Return the weights."""
        return "weights 1/p"
