"""Turn what callers hand in into arrays of one known kind, or refuse it in a sentence."""

from __future__ import annotations

from typing import cast

import numpy as np
import numpy.typing as npt

from codedfl._messages import shown
from codedfl._validation import require_finite
from codedfl.errors import InputError
from codedfl.typing import FloatArray, IntArray

LARGEST_POWER_DBM = 300.0


def float_vector(name: str, values: npt.ArrayLike) -> FloatArray:
    """Return a read-only float64 copy of a vector of finite numbers."""
    try:
        vector = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a vector of numbers, one for each device.") from None
    if vector.ndim != 1:
        raise InputError(f"{name} has shape {vector.shape}: give a vector with one number for each device.")
    require_finite(name, vector)
    vector.setflags(write=False)
    return vector


def counts(name: str, values: npt.ArrayLike, devices: int) -> IntArray:
    """Return whole numbers, zero or more, spread over the devices along the last axis."""
    try:
        array = np.asarray(values)
    except ValueError:
        raise InputError(f"{name} must be whole numbers, one for all devices or one for each.") from None
    if array.dtype.kind == "f":
        whole = np.isfinite(array) & (array == np.floor(array)) & (np.abs(array) < 2.0**62)
        if not whole.all():
            raise InputError(f"{name} = {array[~whole][0]} must be a whole number, zero or more.")
    elif array.dtype.kind not in "iu":
        raise InputError(f"{name} must be whole numbers, zero or more, not {array.dtype.name} values.")
    if (array < 0).any():
        raise InputError(f"{name} = {array[array < 0][0]} must be a whole number, zero or more.")
    if array.ndim and array.shape[-1] not in (1, devices):
        raise InputError(
            f"{name} has shape {array.shape} for {devices} device(s): give one number, or one for each device."
        )
    spread = (*array.shape[:-1], devices)
    return np.broadcast_to(array.astype(np.int64), spread)


def count_vector(name: str, values: npt.ArrayLike, devices: int) -> IntArray:
    """Return a read-only vector of whole numbers, zero or more, one for each device."""
    vector = counts(name, values, devices).copy()
    if vector.ndim != 1:
        raise InputError(f"{name} has shape {vector.shape}: give one number, or one for each of {devices} device(s).")
    vector.setflags(write=False)
    return vector


def whole_number(name: str, value: float, least: int) -> int:
    """Return an integer that is ``least`` or more; a float such as 5.0 counts as one, a boolean does not."""
    try:
        whole = int(value)
    except (TypeError, ValueError, OverflowError):
        whole = least - 1
    if isinstance(value, bool | np.bool_) or whole != value or whole < least:
        raise InputError(f"{name} = {shown(value)} must be a whole number, {least} or more.")
    return whole


def require_powers_dbm(name: str, values: float | FloatArray) -> None:
    """Refuse powers so far from any radio that they are surely not in dBm (and would not fit a float in watts)."""
    powers = np.atleast_1d(np.asarray(values, dtype=np.float64))
    possible = np.abs(powers) <= LARGEST_POWER_DBM
    if not possible.all():
        raise InputError(
            f"{name} = {cast(float, powers[~possible][0])} must lie from {-LARGEST_POWER_DBM:g} to "
            f"{LARGEST_POWER_DBM:g}: give a power in dBm, such as 20 for 0.1 watts."
        )
