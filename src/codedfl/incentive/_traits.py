"""Traits of each device: its price of privacy, its interference and the least noise it accepts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from codedfl._validation import require_at_least
from codedfl.errors import InputError
from codedfl.typing import FloatArray

LEAST, MOST = 1e-100, 1e100
"""Beyond these limits, products and ratios of sensitivities and variances may overflow."""
_RANGE = f"between {LEAST:g} and {MOST:g}: choose other units"


@dataclass(frozen=True, eq=False)
class DeviceTraits:
    """Sensitivity, interference and least noise of every device, in any order.

    Args:
        sensitivity: ``mu_i > 0``, the reward that a device wants for one bit of privacy.
        interference: ``h_i^2 >= 0``, one number for all devices or one per device; 0 gives the bound that holds for all data.
        min_noise_variance: ``sigma_min,i^2 >= 0``, the least noise that a device accepts, one number for all devices or one
            per device.

    Raises:
        InputError: A value is not a number, is out of range, or is missing for a device.

    Example:
        >>> DeviceTraits([1.0, 1.2], interference=5.0).least_hidden_variance.tolist()
        [5.0, 5.0]
    """

    sensitivity: FloatArray
    interference: FloatArray
    min_noise_variance: FloatArray

    def __init__(
        self,
        sensitivity: npt.ArrayLike,
        interference: npt.ArrayLike = 0.0,
        min_noise_variance: npt.ArrayLike = 0.0,
    ) -> None:
        mu = _numbers("sensitivity", sensitivity)
        if mu.ndim != 1 or mu.size == 0:
            raise InputError(f"sensitivity has shape {mu.shape}: give a list with one number per device.")
        _require("sensitivity", mu, mu > 0, "a positive finite number")
        _require("sensitivity", mu, (mu >= LEAST) & (mu <= MOST), _RANGE)
        object.__setattr__(self, "sensitivity", _frozen(mu))
        for name, given in (("interference", interference), ("min_noise_variance", min_noise_variance)):
            values = _numbers(name, given)
            if values.shape not in ((), mu.shape):
                raise InputError(f"{name} has shape {values.shape}: give one number, or {mu.size}, one per device.")
            values = np.broadcast_to(values, mu.shape)
            _require(name, values, values >= 0, "a finite number, zero or more")
            _require(name, values, (values == 0) | (values >= LEAST) & (values <= MOST), f"zero or {_RANGE}")
            object.__setattr__(self, name, _frozen(values))

    @property
    def devices(self) -> int:
        """Number of devices, ``N``."""
        return int(self.sensitivity.size)

    @property
    def least_hidden_variance(self) -> FloatArray:
        """``h_i^2 + sigma_min,i^2``: the variance that hides an entry at the largest budget that a device accepts."""
        return self.interference + self.min_noise_variance


@contextmanager
def representable() -> Iterator[None]:
    """Refuse, in one sentence, input whose results are beyond the range of double precision.

    Raises:
        InputError: An operation within overflows, or has no result.
    """
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        try:
            yield
        except ArithmeticError as error:
            raise InputError(
                "sensitivity, noise variances, reward and lambda are too far apart for double precision: give values that are "
                "closer to each other, or choose other units."
            ) from error


def require_representable(*results: npt.ArrayLike) -> None:
    """Raise an error for :func:`representable` to catch unless all numbers are finite."""
    if not all(np.isfinite(result).all() for result in results):
        raise FloatingPointError


def printed_sensitivities(devices: int) -> FloatArray:
    """Return ``mu_i = 1 + 0.02 i`` for ``i = 1..N``, as Sec. VI prints them.

    Table lambda was made with :func:`table_sensitivities`; with these its noise variances come out 0.75% larger.

    Example:
        >>> printed_sensitivities(3).round(2).tolist()
        [1.02, 1.04, 1.06]
    """
    require_at_least("devices", devices, 1)
    return 1.0 + 0.02 * np.arange(1, devices + 1)


def table_sensitivities(devices: int) -> FloatArray:
    """Return ``mu_i = 1 + 0.02 (i - 1)`` for ``i = 1..N``, with which Table lambda was made.

    Example:
        >>> table_sensitivities(3).round(2).tolist()
        [1.0, 1.02, 1.04]
    """
    require_at_least("devices", devices, 1)
    return 1.0 + 0.02 * np.arange(devices)


def _numbers(name: str, values: npt.ArrayLike) -> FloatArray:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        shown = repr(values)
        shown = shown if len(shown) <= 80 else f"{shown[:80]}..."
        raise InputError(f"{name} = {shown} must be numbers, one per device.") from error


def _require(name: str, values: FloatArray, holds: npt.NDArray[np.bool_], allowed: str) -> None:
    bad = np.flatnonzero(~(holds & np.isfinite(values)))
    if bad.size:
        raise InputError(f"{name}[{bad[0]}] = {values[bad[0]]} must be {allowed}.")


def _frozen(values: FloatArray) -> FloatArray:
    copy = np.array(values, dtype=np.float64)
    copy.flags.writeable = False
    return copy
