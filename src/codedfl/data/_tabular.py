"""Tables in .csv and .parquet files, read with pandas."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

from codedfl._messages import did_you_mean, listing
from codedfl._reading import refusing_damage
from codedfl.data._table import Columns, Table, as_float32, missing_values
from codedfl.errors import InputError
from codedfl.typing import FloatArray


def read_frame(path: Path, columns: Columns, *, for_test: bool = False) -> Table:
    """Read a .csv or .parquet file: every column that plays no other part is a feature.

    Args:
        path: the file.
        columns: the columns that are not features.
        for_test: the rows are test rows, whose file may do without the device column and the dropped columns.
    """
    frame = _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path)
    names = [str(name) for name in frame.columns]
    frame.columns = pd.Index(names, dtype=object)
    _refuse_repeated_names(path, names)
    if len(frame) == 0:
        raise InputError(f"{str(path)!r} has no rows: give a file with at least one.")
    _require_columns(path, names, columns, for_test)
    features = [name for name in names if name not in (*columns.target, columns.device, *columns.drop)]
    if not features:
        raise InputError(f"{str(path)!r} has no column left as a feature: shorten data.target or data.drop.")
    for name in columns.target:
        _refuse_missing(path, frame[name])
    has_devices = bool(columns.device) and columns.device in names
    return Table(
        path=path,
        features=_features(path, frame, features),
        feature_names=tuple(features),
        targets=frame[list(columns.target)],
        devices=_devices(path, frame[columns.device]) if has_devices else None,
    )


def _read_csv(path: Path) -> pd.DataFrame:
    with refusing_damage(path, "a .csv file"), warnings.catch_warnings():
        # A row with more fields than the header is a warning to pandas, which then drops the surplus.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        # pandas renames repeated and empty names, so the header is read once more as plain text.
        header = pd.read_csv(path, header=None, nrows=1, dtype=str, keep_default_na=False).iloc[0].tolist()
        if "" in header:
            raise InputError(
                f"column {header.index('') + 1} of {str(path)!r} has no name: name it, or write the file without row numbers."
            )
        _refuse_repeated_names(path, header)
        return pd.read_csv(path, index_col=False, low_memory=False)


def _read_parquet(path: Path) -> pd.DataFrame:
    if find_spec("pyarrow") is None:
        raise InputError(f'reading {str(path)!r} needs pyarrow: run pip install "codedfl[parquet]".')
    from pyarrow import parquet

    with refusing_damage(path, "a .parquet file"), parquet.ParquetFile(path) as file:
        table = file.read()
        # Damaged text would otherwise only show when it is looked at.
        table.validate(full=True)
        frame: pd.DataFrame = table.to_pandas()
        return frame


def _refuse_repeated_names(path: Path, names: Sequence[str]) -> None:
    repeated, count = Counter(names).most_common(1)[0] if names else ("", 0)
    if count > 1:
        raise InputError(f"{str(path)!r} has more than one column {repeated!r}: give each column its own name.")


def _require_columns(path: Path, names: list[str], columns: Columns, for_test: bool) -> None:
    if not columns.target:
        raise InputError(
            f"data.target is empty: name the column(s) to predict, out of those of {str(path)!r}: {listing(names)}."
        )
    roles = [("data.target", name) for name in columns.target]
    if not for_test:
        roles += [("data.device_column", columns.device)] if columns.device else []
        roles += [("data.drop", name) for name in columns.drop]
    seen: dict[str, str] = {}
    for field, name in roles:
        if name not in names:
            raise InputError(
                f"{field} = {name!r} is not a column of {str(path)!r}, which has: {listing(names)}."
                + did_you_mean(name, names)
            )
        if name in seen and not (field == seen[name] == "data.drop"):
            raise InputError(f"the column {name!r} is named in {seen[name]} and again in {field}: name it once.")
        seen[name] = field


def _features(path: Path, frame: pd.DataFrame, names: list[str]) -> FloatArray:
    features = np.empty((len(frame), len(names)), dtype=np.float32)
    for position, name in enumerate(names):
        column = frame[name]
        if not (is_numeric(column) or pd.api.types.is_bool_dtype(column.dtype)):
            raise InputError(
                f"the feature column {name!r} of {str(path)!r} has dtype {column.dtype}, which is not numeric or boolean: "
                "encode it as numbers, or leave it out with data.drop."
            )
        _refuse_missing(path, column)
        features[:, position] = as_float32(f"column {name!r} of {str(path)!r}", column.to_numpy(dtype=np.float64))
    return features


def _devices(path: Path, column: pd.Series) -> tuple[str, ...]:
    _refuse_missing(path, column)
    return tuple(str(value) for value in column)


def _refuse_missing(path: Path, column: pd.Series) -> None:
    missing = int(column.isna().sum())
    if missing:
        raise missing_values(f"column {str(column.name)!r} of {str(path)!r}", missing)


def is_numeric(column: pd.Series) -> bool:
    """Tell whether a column holds real numbers; booleans are not counted as such.

    Example:
        >>> [is_numeric(pd.Series(values)) for values in ([1, 2], [0.5], [True], ["a"], [1j])]
        [True, True, False, False, False]
    """
    types = pd.api.types
    dtype = column.dtype
    return types.is_numeric_dtype(dtype) and not types.is_bool_dtype(dtype) and not types.is_complex_dtype(dtype)
