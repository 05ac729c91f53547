"""Frames of pandas and polars as a model reads them."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pandas as pd

from codedfl._messages import listing
from codedfl._validation import require_finite
from codedfl.errors import InputError
from codedfl.typing import FloatArray


def as_frame(values: Any) -> pd.DataFrame | None:
    """Return a frame of pandas or polars as one of pandas, or None for anything else.

    Example:
        >>> import polars
        >>> as_frame(polars.DataFrame({"age": [40, None], "ward": ["a", "b"]})).to_dict("list")
        {'age': [40.0, nan], 'ward': ['a', 'b']}
        >>> as_frame(np.zeros((2, 2))) is None
        True
    """
    if isinstance(values, pd.DataFrame):
        return values
    polars = sys.modules.get("polars")  # nobody has a frame of a package that was never imported
    if polars is None or not isinstance(values, polars.DataFrame | polars.LazyFrame):
        return None
    # Column by column, as the conversion of polars itself needs pyarrow.
    return pd.DataFrame({column.name: _values(column) for column in values.lazy().collect()})


def numeric_columns(frame: pd.DataFrame, names: tuple[str, ...], source: str) -> FloatArray:
    """Return columns of a frame as numbers, (n, p) in float64.

    Args:
        frame: the frame.
        names: its columns to return, in this order.
        source: its name in messages.

    Raises:
        InputError: if columns are missing, twice there, or not finite numbers.
    """
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise InputError(
            f"{source} lacks {len(missing)} column(s) that the model reads: {listing(missing)}; it has "
            f"{listing(map(str, frame.columns))}."
        )
    chosen = frame[list(names)]
    if chosen.shape[1] > len(names):
        twice = chosen.columns[chosen.columns.duplicated()].unique()
        raise InputError(
            f"{source} has several columns of the same name: {listing(twice)}; rename all but one of each."
        )
    odd = [name for name in names if chosen[name].dtype.kind not in "biuf"]
    if odd:
        raise InputError(f"{source} has column(s) that are not numbers: {listing(odd)}; the model needs numbers there.")
    inputs: FloatArray = chosen.to_numpy(np.float64, na_value=np.nan)
    require_finite(source, inputs)
    return inputs


def _values(column: Any) -> Any:
    values = column.to_numpy()
    return values if values.ndim == 1 else column.to_list()
