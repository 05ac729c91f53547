"""Tables with one row per device, from .csv, .tsv and .parquet files."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from codedfl._messages import did_you_mean, listing, shown
from codedfl.errors import InputError
from codedfl.files import csv_header, read_parquet, refusing_other_encodings, require_file
from codedfl.typing import FloatArray

Allowed = Literal[
    "a finite number",
    "a positive finite number",
    "a number from 0 to 1",
    "0 or 1",
    "a whole number, zero or more",
]


@dataclass(frozen=True, eq=False)
class DeviceTable:
    """The columns of a file, still as they were written.

    Args:
        source: the file as messages name it, for example ``fleet.file = 'fleet.csv'``.
        columns: the cells of each column, from top to bottom: text from a .csv file, any type from a .parquet file.
        rows: how many rows there are below the header.
        decimal: the decimal sign of numbers in text, besides the point.
    """

    source: str
    columns: dict[str, list[Any]]
    rows: int
    decimal: str = "."

    def numbers(self, column: str, allowed: Allowed = "a finite number") -> FloatArray:
        """Return a column as float64, or refuse the first cell that is not what is allowed."""
        values = np.array([_number(cell, self.decimal) for cell in self.columns[column]])
        good = np.isfinite(values)
        if allowed == "a positive finite number":
            good &= values > 0
        elif allowed == "a number from 0 to 1":
            good &= (values >= 0) & (values <= 1)
        elif allowed == "0 or 1":
            good &= (values == 0) | (values == 1)
        elif allowed == "a whole number, zero or more":
            # Beyond 2**53 a float no longer tells whole numbers apart.
            good &= (values >= 0) & (values < 2.0**53) & (values == np.rint(values))
        if not good.all():
            row = int(np.argmin(good))
            hint = _percent_hint(self.columns[column][row], self.decimal) if allowed == "a number from 0 to 1" else ""
            raise self.refusal(row, column, f"must be {allowed}{hint}")
        return values

    def names(self, column: str = "name") -> tuple[str, ...]:
        """Return a column of names, or refuse one that is missing (empty or NaN)."""
        names = tuple("" if cell is None else str(cell) for cell in self.columns[column])
        for row, name in enumerate(names):
            if name.lower() in ("", "nan", "<na>"):
                raise self.refusal(row, column, "is not a name: name every device")
        return names

    def unique_names(self, column: str = "name") -> tuple[str, ...]:
        """Return a column of names, or refuse a name that is missing or occurs twice."""
        names = self.names(column)
        first: dict[str, int] = {}
        for row, name in enumerate(names):
            if first.setdefault(name, row) != row:
                raise self.refusal(row, column, f"has a row already, row {first[name] + 1}: keep one of them")
        return names

    def refusal(self, row: int, column: str, what: str) -> InputError:
        """Return the error for a cell; ``row`` counts from 0, the message from 1 below the header."""
        return InputError(
            f"{self.source}, column {shown(column)}, row {row + 1}: {shown(self.columns[column][row])} {what}."
        )


def read_device_table(
    path: str | Path, required: Sequence[str], optional: Sequence[str] = (), *, field: str = "", others: bool = False
) -> DeviceTable:
    r"""Read a table with one row per device.

    Args:
        path: a .csv or .tsv file in UTF-8 with a header, or a .parquet file. Columns are separated by commas,
            semicolons or tabs; with the latter two, numbers may have decimal commas.
        required: columns that must be there.
        optional: columns that may be there.
        field: the configuration field that the path was given in, for messages; empty if there is none.
        others: whether further columns are ignored rather than refused.

    Raises:
        InputError: the file cannot be read, a row is longer or shorter than the header, or a column is missing, repeated or
            unknown. The message names file, row and column.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "fleet.csv")
        ...     _ = file.write_text("name,mac_rate\na,1.3e6\nb,1.5e6\n", encoding="utf-8")
        ...     table = read_device_table(file, ["mac_rate"], ["name"])
        >>> table.unique_names(), table.numbers("mac_rate")
        (('a', 'b'), array([1300000., 1500000.]))
    """
    path = Path(path)
    require_file(field, path)
    source = f"{field} = {shown(path)}" if field else shown(path)
    if path.suffix.lower() == ".parquet":
        frame = read_parquet(path)
        header, rows = [str(name) for name in frame.columns], len(frame)
        _require_columns(source, header, required, optional, others)
        columns = {name: frame.iloc[:, place].tolist() for place, name in enumerate(header)}
        return DeviceTable(source, columns, rows)
    (header, *lines), separator = _read_csv(path, source)
    _require_columns(source, header, required, optional, others)
    for number, line in enumerate(lines, start=1):
        if len(line) != len(header):
            raise InputError(
                f"{source}, row {number} has {len(line)} value(s) for the {len(header)} column(s) of the header: give one for "
                "each column."
            )
    places = [header.index(name) for name in (*required, *optional) if name in header]
    columns = {header[place]: [line[place] for line in lines] for place in places}
    return DeviceTable(source, columns, len(lines), "." if separator == "," else ",")


def _read_csv(path: Path, source: str) -> tuple[list[list[str]], str]:
    """Return the cells of all lines, and the separator."""
    try:
        with refusing_other_encodings(source), path.open(encoding="utf-8-sig", newline="") as file:
            _, separator = csv_header(path)
            reader = csv.reader(file, delimiter=separator, strict=True)
            lines = [[cell.strip() for cell in line] for line in reader if line]
    except (OSError, csv.Error) as error:
        raise InputError(f"{source} is not a CSV file in UTF-8 ({error}): correct it.") from error
    if not lines:
        raise InputError(f"{source} is empty: give a header and one row per device.")
    return lines, separator


def _require_columns(
    source: str, header: Sequence[str], required: Sequence[str], optional: Sequence[str], others: bool
) -> None:
    known = (*required, *optional)
    for column in header:
        if column in known and header.count(column) > 1:
            raise InputError(f"{source} has more than one column {shown(column)}: keep one of them.")
        if column not in known and not others:
            raise InputError(
                f"{source} has a column {shown(column)}, but only {listing(known)} are known: rename or remove it."
                + did_you_mean(column, known)
            )
    for column in required:
        if column not in header:
            raise InputError(
                f"{source} has no column {shown(column)} (found: {listing(map(shown, header))}): name the columns in the first "
                "line, separated by commas."
            )


def _percent_hint(cell: Any, decimal: str) -> str:
    """Return how to write a cell that looks like a percentage."""
    percent = _number(str(cell).removesuffix("%").strip(), decimal)
    return f": write {percent:g} percent as {percent / 100:g}" if 0 <= percent <= 100 else ""


def _number(cell: Any, decimal: str = ".") -> float:
    # A boolean is an integer to Python, and "1_000" a number.
    if isinstance(cell, bool | np.bool_) or (isinstance(cell, str) and "_" in cell):
        return math.nan
    try:
        return float(cell.replace(decimal, ".") if isinstance(cell, str) else cell)
    except (TypeError, ValueError, OverflowError):
        return math.nan
