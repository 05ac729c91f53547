"""Read measured device profiles from a CSV file."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import numpy as np
import pandas as pd

from codedfl.errors import InputError
from codedfl.fleet._profiles import Fleet, checked_names
from codedfl.typing import FloatArray, IntArray

NUMBERS = ("mac_rate", "transmit_power_dbm")


def read_fleet(path: str | PathLike[str], names: Sequence[str]) -> Fleet:
    r"""Read a fleet from a CSV file with columns ``mac_rate`` and ``transmit_power_dbm``, and perhaps ``name``.

    With a ``name`` column the rows may be in any order and are matched to ``names``; without one they are in the order
    of ``names``. Either way there is exactly one row for each device. Other columns are ignored.

    Args:
        path: the file (UTF-8).
        names: the devices of the experiment.

    Raises:
        InputError: the file cannot be read, or a device, column or number is missing or wrong; rows are counted from 1
            below the header.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "fleet.csv"
        ...     _ = file.write_text("name,mac_rate,transmit_power_dbm\nb,1.5e6,23\na,1.3e6,17\n")
        ...     read_fleet(file, ["a", "b"]).mac_rate
        array([1300000., 1500000.])
    """
    given = checked_names(names)
    table = _table(path)
    for column in NUMBERS:
        if column not in table:
            raise InputError(
                f"fleet.file = {str(path)!r} has no column {column!r} (found: {', '.join(map(repr, table))}): "
                "name the columns in the first line, separated by commas."
            )
    order = _rows_by_name(path, table, given) if "name" in table else _rows_in_order(path, table, given)
    values = {column: _numbers(path, table, column)[order] for column in NUMBERS}
    return Fleet(names=given, **values)


def _table(path: str | PathLike[str]) -> pd.DataFrame:
    """Everything as text: the header is read as a row, so that a longer row is an error and not a hidden index."""
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            cells = pd.read_csv(file, header=None, dtype=str, keep_default_na=False, skipinitialspace=True)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(f"fleet.file = {str(path)!r} cannot be read ({reason}): give a readable CSV file.") from None
    except pd.errors.EmptyDataError:
        raise InputError(f"fleet.file = {str(path)!r} is empty: give a header and a row for each device.") from None
    except ValueError as error:  # pandas' parser errors and bad encodings are both of this kind
        reason = " ".join(str(error).split()).rstrip(".")
        raise InputError(f"fleet.file = {str(path)!r} is not a CSV file in UTF-8 ({reason}): correct it.") from None
    cells = cells.fillna("").apply(lambda column: column.str.strip())
    header = list(cells.iloc[0])
    for column in (*NUMBERS, "name"):
        if header.count(column) > 1:
            raise InputError(f"fleet.file = {str(path)!r} has more than one column {column!r}: keep one of them.")
    table: pd.DataFrame = cells.iloc[1:].reset_index(drop=True)
    table.columns = pd.Index(header)
    return table


def _numbers(path: str | PathLike[str], table: pd.DataFrame, column: str) -> FloatArray:
    values = pd.to_numeric(table[column], errors="coerce").to_numpy(dtype=np.float64)
    bad = ~np.isfinite(values)
    what = "a finite number"
    if column == "mac_rate":
        bad |= values <= 0
        what = "a positive finite number"
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"fleet.file = {str(path)!r}, column {column!r}, row {row + 1}: {table[column].iloc[row]!r} must be {what}."
        )
    return values


def _rows_in_order(path: str | PathLike[str], table: pd.DataFrame, names: tuple[str, ...]) -> IntArray:
    if len(table) != len(names):
        raise InputError(
            f"fleet.file = {str(path)!r} has {len(table)} row(s) for {len(names)} device(s): give one row for each "
            "device, in order, or add a column 'name'."
        )
    return np.arange(len(names))


def _rows_by_name(path: str | PathLike[str], table: pd.DataFrame, names: tuple[str, ...]) -> IntArray:
    column = table["name"]
    again = column.duplicated().to_numpy()
    unknown = ~column.isin(names).to_numpy()
    for bad, what in ((unknown, "is not a device of this experiment"), (again, "has a row already")):
        if bad.any():
            row = int(np.argmax(bad))
            raise InputError(
                f"fleet.file = {str(path)!r}, column 'name', row {row + 1}: {column.iloc[row]!r} {what}: give exactly "
                f"one row for each of the {len(names)} device(s)."
            )
    order = pd.Index(column).get_indexer(pd.Index(names))
    if (order < 0).any():
        missing = names[int(np.argmax(order < 0))]
        raise InputError(f"fleet.file = {str(path)!r} has no row for device {missing!r}: add one.")
    return np.asarray(order, dtype=np.int64)
