"""Users' own tables as they are in a .csv, .tsv or .parquet file; what pandas would change silently is refused."""

from __future__ import annotations

import csv
import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

from codedfl._messages import did_you_mean, listing, shown
from codedfl.errors import InputError
from codedfl.files import csv_header, read_parquet, refuse_too_many_columns, refusing_damage, refusing_other_encodings

_DECIMAL_COMMA = re.compile(r"[-+]?\d+(,\d+)?([eE][-+]?\d+)?")


@dataclass(frozen=True)
class Columns:
    """Columns of a file that are not features.

    Args:
        target: column(s) to predict (``data.target``).
        device: column that names the device of each row, or "" (``data.device_column``).
        drop: columns to leave out (``data.drop``).
        bounds: features with bounds that the user knows (``data.bounds``).
        categories: features with categories that the user knows (``data.categories``).
    """

    target: tuple[str, ...]
    device: str = ""
    drop: tuple[str, ...] = ()
    bounds: Mapping[str, tuple[float | str, float | str]] = field(default_factory=dict)
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class RawTable:
    """The contents of one file, as they are in it.

    Args:
        path: the file, for messages.
        features: the columns without another role, in the types of the file.
        targets: the target column(s).
        devices: the device of each row, if the file names it.
        problems: what is wrong with the names, targets and devices, one sentence each.
    """

    path: Path
    features: pd.DataFrame
    targets: pd.DataFrame
    devices: tuple[str, ...] | None
    problems: tuple[str, ...] = ()


def read_table(path: Path | str) -> pd.DataFrame:
    r"""Read a .csv, .tsv or .parquet file as it is, with unique column names that are text.

    Columns of a .csv file are separated by commas, semicolons or tabs; with the latter two, numbers may have decimal commas.

    Raises:
        InputError: the file cannot be read, a column has no name or that of another, or there are no rows.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "wards.csv"
        ...     _ = file.write_text("ward;beds\na;1,5\nb;2\n", encoding="utf-8")
        ...     read_table(file)
          ward  beds
        0    a   1.5
        1    b   2.0
    """
    path = Path(path)
    frame = read_parquet(path) if path.suffix.lower() == ".parquet" else read_csv(path)
    names = [str(name) for name in frame.columns]
    frame.columns = pd.Index(names, dtype=object)
    refuse_repeated_names(path, names)
    if len(frame) == 0:
        raise InputError(f"{shown(path)} has no rows: give a file with at least one.")
    return frame


def table_columns(path: Path | str) -> tuple[str, ...]:
    """Return the names of the columns of a .csv or .parquet file, without reading its rows."""
    path = Path(path)
    if path.suffix.lower() == ".parquet":
        if find_spec("pyarrow") is None:
            read_parquet(path)  # says how to install it
        from pyarrow import parquet

        with refusing_damage(path, "a .parquet file"):
            return tuple(str(name) for name in parquet.read_schema(path).names)
    with refusing_damage(path, "a .csv file"), refusing_other_encodings(path):
        return tuple(csv_header(path)[0])


def read_raw(path: Path, columns: Columns, *, for_test: bool = False) -> RawTable:
    """Read a .csv or .parquet file: every column without another role is a feature.

    Args:
        path: the file.
        columns: the columns that are not features.
        for_test: the rows are test rows, whose file may lack the device column and the dropped columns.

    Returns:
        The table, with a list of problems; it is up to the caller to refuse them, together with those that it finds itself.
    """
    frame = read_table(path)
    names = list(frame.columns)
    problems = _role_problems(path, names, columns, for_test)
    features = [name for name in names if name not in (*columns.target, columns.device, *columns.drop)]
    if not features:
        problems.append(f"{shown(path)} has no column left as a feature: shorten data.target or data.drop.")
    targets = frame[[name for name in dict.fromkeys(columns.target) if name in names]]
    devices = frame[columns.device] if columns.device in names else None
    for column in [*(targets[name] for name in targets), *([] if devices is None else [devices])]:
        rows = np.flatnonzero(column.isna())
        if rows.size:
            problems.append(
                f"column {shown(column.name)} of {shown(path)} has {rows.size} missing value(s) (empty, NaN, NA or None), in "
                f"row(s) {listing((str(row + 1) for row in rows), 5)}: fill them in or remove their rows."
            )
    return RawTable(
        path,
        frame[features],
        targets,
        None if devices is None else tuple(str(value) for value in devices),
        tuple(problems),
    )


def _role_problems(path: Path, names: list[str], columns: Columns, for_test: bool) -> list[str]:
    """Return what is wrong with the columns that have a role."""
    if not columns.target:
        return [
            f"data.target is empty: name the column(s) to predict, out of those of {shown(path)}: {listing(names)}."
        ]
    roles = [("data.target", name) for name in columns.target]
    if not for_test:
        roles += [("data.device_column", columns.device)] if columns.device else []
        roles += [("data.drop", name) for name in columns.drop]
    problems = []
    seen: dict[str, str] = {}
    for field_name, name in roles:
        if name not in names:
            problems.append(
                f"{field_name} = {shown(name)} is not a column of {shown(path)}, which has: {listing(names)}."
                + did_you_mean(name, names)
            )
        elif name in seen and not (field_name == seen[name] == "data.drop"):
            problems.append(
                f"the column {shown(name)} is named in {seen[name]} and again in {field_name}: name it once."
            )
        seen.setdefault(name, field_name)
    return problems


def read_csv(path: Path) -> pd.DataFrame:
    """Read a .csv or .tsv file with a comma, a semicolon or a tab between columns.

    If the separator is no comma, and a column has nothing but numbers of which some have a decimal comma, the comma is the
    decimal sign of the whole file.

    Raises:
        InputError: the file is damaged or not in UTF-8, a column has no name or that of another, or there are too many.
    """
    with refusing_damage(path, "a .csv file"), refusing_other_encodings(path), warnings.catch_warnings():
        # pandas only warns about a row with more fields than the header, and drops the surplus.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        names, separator = csv_header(path)
        if not names:
            raise InputError(f"{shown(path)} is empty: give a file with a header and rows.")
        refuse_too_many_columns(path, len(names))
        if "" in names:
            raise InputError(
                f"column {names.index('') + 1} of {shown(path)} has no name: name it, or write the file without row numbers."
            )
        refuse_repeated_names(path, names)
        try:
            frame = pd.read_csv(path, sep=separator, index_col=False, low_memory=False)
        except (pd.errors.ParserError, pd.errors.ParserWarning):
            _refuse_ragged_row(path, separator, len(names))
            raise
        if frame.iloc[:, -1].isna().any():  # pandas fills up a row that ends early without a word
            _refuse_ragged_row(path, separator, len(names))
        if separator != "," and any(_has_decimal_commas(frame[name]) for name in frame):
            frame = pd.read_csv(path, sep=separator, index_col=False, low_memory=False, decimal=",")
        return frame


def refuse_repeated_names(path: Path, names: Sequence[str]) -> None:
    """Refuse a table with two columns of one name."""
    repeated, count = Counter(names).most_common(1)[0] if names else ("", 0)
    if count > 1:
        raise InputError(f"{shown(path)} has more than one column {shown(repeated)}: give each column its own name.")


def _refuse_ragged_row(path: Path, separator: str, columns: int) -> None:
    """Refuse the first row whose number of values is not that of the header's names; empty lines are no rows."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=separator)
        for row in reader:
            if row and len(row) != columns:
                remedy = (
                    f"quote values that contain {shown(separator)}" if len(row) > columns else "keep all separators"
                )
                raise InputError(
                    f"line {reader.line_num} of {shown(path)} has {len(row)} values, the header {columns}: correct the line;"
                    f" {remedy}."
                )


def _has_decimal_commas(column: pd.Series) -> bool:
    if pd.api.types.is_numeric_dtype(column.dtype):
        return False
    values = [str(value).strip() for value in column.dropna().unique()]
    return any("," in value for value in values) and all(map(_DECIMAL_COMMA.fullmatch, values))
