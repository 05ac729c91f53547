"""A user's own data after reading: features as numbers, targets still as they were written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from codedfl._messages import listing
from codedfl.errors import InputError
from codedfl.typing import FloatArray

_FLOAT32_LIMIT = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Columns:
    """Which columns of a file play a part other than being a feature.

    Args:
        target: column(s) to predict (``data.target``).
        device: column that says which device a row belongs to, or "" (``data.device_column``).
        drop: columns to leave out (``data.drop``).
    """

    target: tuple[str, ...]
    device: str = ""
    drop: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Table:
    """What was read from one file.

    Args:
        path: the file, for messages.
        features: (m, p), float32, finite.
        feature_names: names of the p columns.
        targets: the target column(s), without missing values, of whatever type the file has.
        devices: the device of each row, if the file says so.
    """

    path: Path
    features: FloatArray
    feature_names: tuple[str, ...]
    targets: pd.DataFrame
    devices: tuple[str, ...] | None = None

    def with_features(self, names: tuple[str, ...]) -> FloatArray:
        """Return the features in the order of ``names``, or refuse if they are others."""
        if self.feature_names == names:
            return self.features
        lacking = sorted(set(names) - set(self.feature_names))
        surplus = sorted(set(self.feature_names) - set(names))
        if lacking or surplus:
            raise InputError(
                f"the test rows in {str(self.path)!r} lack the feature(s) {listing(lacking) or 'none'} and have the extra "
                f"feature(s) {listing(surplus) or 'none'}: give them the features of the training rows."
            )
        position = {name: column for column, name in enumerate(self.feature_names)}
        return np.ascontiguousarray(self.features[:, [position[name] for name in names]])


def as_float32(name: str, values: npt.NDArray[Any]) -> FloatArray:
    """Return numbers as a C-contiguous float32 array, or refuse missing and unrepresentable ones.

    Example:
        >>> as_float32("column 'a'", np.array([1, 2]))
        array([1., 2.], dtype=float32)
    """
    missing = int(np.count_nonzero(np.isnan(values)))
    if missing:
        raise missing_values(name, missing)
    with np.errstate(over="ignore"):
        converted = np.ascontiguousarray(values, dtype=np.float32)
    outside = int(converted.size - np.count_nonzero(np.isfinite(converted)))
    if outside:
        raise InputError(
            f"{name} has {outside} value(s) that are infinite or beyond {_FLOAT32_LIMIT:.1e}: rescale them or remove their "
            "rows."
        )
    return converted


def missing_values(name: str, count: int) -> InputError:
    """Return the error for a column with missing values."""
    return InputError(
        f"{name} has {count} missing value(s) (empty, NaN, NA or None): fill them in or remove their rows."
    )
