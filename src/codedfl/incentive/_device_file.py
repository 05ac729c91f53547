"""Devices and their privacy sensitivities from a CSV file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd

from codedfl._messages import did_you_mean, listing
from codedfl._reading import refusing_damage, require_file
from codedfl.errors import InputError
from codedfl.incentive._traits import DeviceTraits
from codedfl.typing import FloatArray

COLUMNS = ("name", "sensitivity", "h2", "min_noise_variance")


def read_devices(path: Path) -> tuple[tuple[str, ...], DeviceTraits]:
    """Read devices from a CSV file, one row per device.

    Args:
        path: a CSV file with the column ``sensitivity`` and optionally ``name``, ``h2`` (interference ``h_i^2``, 0 by default)
            and ``min_noise_variance`` (0 by default), in any order of sensitivity.

    Returns:
        The names, ``device-1`` and so on where the file has none, and the traits, in the order of the file.

    Raises:
        InputError: for a file that cannot be read, an unknown or missing column, or a value out of range.
    """
    require_file("--devices-file", path)
    with refusing_damage(path, "a .csv file"):
        frame = pd.read_csv(path, index_col=False)
    names = [str(name) for name in frame.columns]
    for name in names:
        if name not in COLUMNS:
            raise InputError(
                f"{str(path)!r} has a column {name!r}, but only {listing(COLUMNS)} are known: rename or remove it."
                + did_you_mean(name, COLUMNS)
            )
    if "sensitivity" not in names or len(frame) == 0:
        raise InputError(f"{str(path)!r} must have a column 'sensitivity' and at least one row.")
    zeros = np.zeros(len(frame))
    traits = DeviceTraits(
        _numbers(path, frame, "sensitivity"),
        interference=_numbers(path, frame, "h2") if "h2" in names else zeros,
        min_noise_variance=_numbers(path, frame, "min_noise_variance") if "min_noise_variance" in names else zeros,
    )
    return _names(path, frame), traits


def _numbers(path: Path, frame: pd.DataFrame, column: str) -> FloatArray:
    numbers = pd.to_numeric(frame[column], errors="coerce").to_numpy(np.float64)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if bad.size:
        raise InputError(
            f"column {column!r} of {str(path)!r} has {frame[column].iloc[bad[0]]!r} in row {bad[0] + 1}, which is not a finite"
            " number: correct it."
        )
    return numbers


def _names(path: Path, frame: pd.DataFrame) -> tuple[str, ...]:
    if "name" not in frame.columns:
        return tuple(f"device-{i + 1}" for i in range(len(frame)))
    names = tuple(str(name) for name in frame["name"])
    repeated, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise InputError(f"{str(path)!r} names the device {repeated!r} {count} times: give each device its own name.")
    return names
