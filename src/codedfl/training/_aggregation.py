"""How the server combines what arrived with what it computed (Sec. III-D).

An aggregation sees which device sent what. Updates are added in the order of the devices, whatever order they came in.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from codedfl.errors import InputError
from codedfl.typing import BoolArray, FloatArray

DeviceUpdate = tuple[int, FloatArray]
"""The number of a device and the accumulated gradient that it sent."""


class Aggregation(Protocol):
    """A rule that makes one global update of many."""

    def combine(
        self,
        device_updates: Iterable[DeviceUpdate],
        server_update: FloatArray | None,
        arrival_probability: FloatArray,
        covered: BoolArray,
        model: FloatArray,
    ) -> FloatArray:
        """Return the global update ``g(W_k)``.

        Args:
            device_updates: what arrived.
            server_update: what the server computed; None for nothing.
            arrival_probability: ``p_i``, (N,).
            covered: whose data the server's coded dataset stands for, (N,).
            model: ``W_k``.
        """


@dataclass(frozen=True)
class Sum:
    """Add up everything: ``g(W_k) = sum_i 1_i g_i + g_s``.

    FedAvg has no server update, DP-CFL no device updates; CFL-FB and CodedFedL have both, weighted in the parity data.
    """

    def combine(
        self,
        device_updates: Iterable[DeviceUpdate],
        server_update: FloatArray | None,
        arrival_probability: FloatArray,  # noqa: ARG002 (no reweighting)
        covered: BoolArray,  # noqa: ARG002
        model: FloatArray,
    ) -> FloatArray:
        """Return ``sum_i 1_i g_i + g_s``."""
        total = np.zeros_like(model) if server_update is None else server_update.copy()
        for _, update in device_updates:
            total += update
        return total


@dataclass(frozen=True)
class InverseProbability:
    """Weight devices by one over their arrival probability: ``g(W_k) = sum_i w_i 1_i g_i / p_i + (1 - w) g_s``.

    Both parts estimate the gradient over the data that the coded dataset stands for, so those devices have ``w_i = w``; with
    ``w = 1/2`` this is (5) in the paper. A device that uploaded no coded data speaks for itself alone, with ``w_i = 1``.

    Args:
        device_weight: ``w``, the share of the devices' part.

    Example:
        >>> updates = [(0, np.array([[1.0]])), (2, np.array([[3.0]]))]
        >>> covered = np.array([True, True, True])
        >>> InverseProbability().combine(updates, np.array([[10.0]]), np.array([0.5, 0.9, 1.0]), covered, np.zeros((1, 1)))
        array([[7.5]])
    """

    device_weight: float = 0.5

    def __post_init__(self) -> None:
        if not 0.0 <= self.device_weight <= 1.0:
            raise InputError(f"device_weight = {self.device_weight} must be between 0 and 1.")

    def combine(
        self,
        device_updates: Iterable[DeviceUpdate],
        server_update: FloatArray | None,
        arrival_probability: FloatArray,
        covered: BoolArray,
        model: FloatArray,
    ) -> FloatArray:
        """Return ``sum_i w_i 1_i g_i / p_i + (1 - w) g_s``."""
        total = np.zeros_like(model)
        for device, update in device_updates:
            weight = self.device_weight if covered[device] else 1.0
            total += total.dtype.type(weight / arrival_probability[device]) * update
        if server_update is not None:
            total += total.dtype.type(1.0 - self.device_weight) * server_update
        return total
