"""Tables in .csv files: separators and decimal commas are found out, and what pandas would change silently is refused."""

from __future__ import annotations

import csv
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from codedfl._messages import shown
from codedfl.errors import InputError
from codedfl.files import csv_header, refuse_too_many_columns, refusing_damage, refusing_other_encodings

_DECIMAL_COMMA = re.compile(r"[-+]?\d+(,\d+)?([eE][-+]?\d+)?")


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
