"""Traits of each device, given or read from a file: its price of privacy, its interference and the least noise it accepts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from codedfl._device_table import read_device_table
from codedfl._messages import shown
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
        raise InputError(f"{name} = {shown(values, 80)} must be numbers, one per device.") from error


def _require(name: str, values: FloatArray, holds: npt.NDArray[np.bool_], allowed: str) -> None:
    bad = np.flatnonzero(~(holds & np.isfinite(values)))
    if bad.size:
        raise InputError(f"{name}[{bad[0]}] = {values[bad[0]]} must be {allowed}.")


def _frozen(values: FloatArray) -> FloatArray:
    copy = np.array(values, dtype=np.float64)
    copy.flags.writeable = False
    return copy


def read_devices(path: str | Path) -> tuple[tuple[str, ...], DeviceTraits]:
    r"""Read the names and traits of devices, one row per device.

    Args:
        path: a .csv (UTF-8) or .parquet file with the column ``sensitivity`` and optionally ``name``, ``h2`` (interference
            ``h_i^2``, 0 by default) and ``min_noise_variance`` (0 by default). Rows may be in any order of sensitivity.

    Returns:
        The names, ``device-1`` and so on where the file has none, and the traits, in the order of the file.

    Raises:
        InputError: the file cannot be read, a column is unknown or missing, or a value is out of range.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "devices.csv"
        ...     _ = file.write_text("name,sensitivity\nphone,1.5\nwatch,2\n")
        ...     names, traits = read_devices(file)
        >>> names, traits.sensitivity.tolist()
        (('phone', 'watch'), [1.5, 2.0])
    """
    table = read_device_table(path, ["sensitivity"], ["name", "h2", "min_noise_variance"])
    if table.rows == 0:
        raise InputError(f"{table.source} has a header but no row: give one row per device.")
    others = {"h2": "interference", "min_noise_variance": "min_noise_variance"}
    traits = DeviceTraits(
        table.numbers("sensitivity"),
        **{trait: table.numbers(column) for column, trait in others.items() if column in table.columns},
    )
    if "name" in table.columns:
        return table.unique_names(), traits
    return tuple(f"device-{row + 1}" for row in range(table.rows)), traits
