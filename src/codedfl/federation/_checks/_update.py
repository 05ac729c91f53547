"""Checks of what a device computed in a round, and a bound on how large it may be."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from codedfl.federation._checks._fields import checked_array, number, require_names, require_same, whole
from codedfl.federation.transport import Packet
from codedfl.typing import FloatArray
from codedfl.uploads import LARGEST_PRODUCT

LONGEST_COMPUTATION_S = 1e6


@dataclass(frozen=True, eq=False)
class ReceivedUpdate:
    """What a device computed in a round.

    Args:
        arrays: what the scheme declares, by name, float32, read-only.
        batch_size: the samples of a local step.
        compute_s: how long the device computed, by its own clock.
    """

    arrays: Mapping[str, FloatArray]
    batch_size: int
    compute_s: float


def checked_update(
    packet: Packet, *, device: str, round: int, travels: Mapping[str, tuple[int, ...]], largest_batch: int
) -> ReceivedUpdate:
    """Check what a device computed in a round.

    It holds the arrays that the scheme declares, float32, and the values ``device``, ``round``, ``batch_size`` and ``compute_s``.

    Args:
        packet: the message.
        device: the name of the device that it comes from.
        round: the round that is under way.
        travels: shapes of the arrays that the scheme declares, by name.
        largest_batch: the samples that were asked for.

    Raises:
        BadMessage: it is anything else.

    Example:
        >>> values = {"device": "north", "round": 7, "batch_size": 5, "compute_s": 0.1}
        >>> packet = Packet({"update": np.full((3, 2), np.nan, np.float32)}, values)
        >>> checked_update(packet, device="north", round=7, travels={"update": (3, 2)}, largest_batch=20)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        codedfl.federation._checks._fields.BadMessage: update has 6 value(s) such as nan, the first at index (0, 0), ...
    """
    require_names("array", packet.arrays, tuple(travels))
    values = packet.values
    require_names("value", values, ("device", "round", "batch_size", "compute_s"))
    require_same("device", values, device)
    whole("round", values, round, round)
    batch_size = whole("batch_size", values, 1, largest_batch)
    compute_s = number("compute_s", values, LONGEST_COMPUTATION_S)
    single = np.dtype(np.float32)
    arrays = {
        name: checked_array(name, packet.arrays, single, shape, LARGEST_PRODUCT) for name, shape in travels.items()
    }
    return ReceivedUpdate(arrays, batch_size, compute_s)


def bounded(update: FloatArray, reference_norm: float | None, factor: float) -> tuple[FloatArray, bool]:
    """Scale an update down to ``factor`` times a reference norm, if its Frobenius norm is larger.

    This keeps one absurd update from destroying the model. It is not free: the bound acts whenever a device's true gradient is
    more than ``factor`` times the reference, which needs no malice, only data unlike that of the others, or a model that fits
    everybody but this device. That device then counts for less than its samples, in every such round, so the model tends to the
    optimum of a loss in which it has a smaller weight. Near the common optimum gradients of single devices do not vanish, so the
    bias does not vanish either. With a factor of 10 or more, devices with similar data are never affected.

    Args:
        update: accumulated gradients, (d, o).
        reference_norm: what is usual, for as many samples; None if that is not known yet, for no bound.
        factor: how many times as much is allowed.

    Returns:
        The update, and whether it was scaled.

    Example:
        >>> bounded(np.array([[3.0], [4.0]]), reference_norm=0.5, factor=2.0)
        (array([[0.6],
               [0.8]]), True)
    """
    if reference_norm is None:
        return update, False
    norm, limit = float(np.linalg.norm(update.astype(np.float64))), factor * reference_norm
    if norm <= limit:
        return update, False
    return (update.astype(np.float64) * (limit / norm)).astype(update.dtype), True


def typical_norm(norms: Mapping[str, float], excluding: str) -> float | None:
    """Return the median of the other devices' norms, the reference of `bounded`; None if there are none.

    A device has no influence on its own bound, and fewer than half of the others cannot move the median beyond what honest
    devices send.

    Args:
        norms: the Frobenius norm of the last accepted update of every device, per sample of its batch, by name.
        excluding: the device whose update is to be bounded.

    Example:
        >>> typical_norm({"a": 1.0, "b": 3.0, "c": 1e9, "d": 2.0}, excluding="c")
        2.0
    """
    others = [norm for name, norm in norms.items() if name != excluding]
    return float(statistics.median(others)) if others else None
