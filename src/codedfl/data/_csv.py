"""Tables in .csv files: separators and decimal commas are found out, and what pandas would change silently is refused."""

from __future__ import annotations

import csv
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pandas as pd

from codedfl._messages import shown
from codedfl.errors import InputError
from codedfl.files import refuse_too_many_columns, refusing_damage

SEPARATORS = (",", ";", "\t")

_DECIMAL_COMMA = re.compile(r"[-+]?\d+(,\d+)?([eE][-+]?\d+)?")


def csv_header(path: Path) -> tuple[list[str], str]:
    """Return the names in the first line of a .csv file, and the separator: that which makes the most names.

    The file is in UTF-8, with or without a byte order mark; lines before the header may be empty.
    """
    best: list[str] = []
    separator = SEPARATORS[0]
    for candidate in SEPARATORS:
        # With the wrong separator, a wide header is a single field that exceeds the limit of the parser.
        with suppress(csv.Error), path.open(encoding="utf-8-sig", newline="") as file:
            names = next(filter(None, csv.reader(file, delimiter=candidate)), [])
            if len(names) > len(best):
                best, separator = names, candidate
    return best, separator


def read_csv(path: Path) -> pd.DataFrame:
    """Read a .csv file with a comma, a semicolon or a tab between columns.

    If the separator is no comma, and a column has nothing but numbers of which some have a decimal comma, the comma is the
    decimal sign of the whole file.

    Raises:
        InputError: the file is damaged or not in UTF-8, a column has no name or that of another, or there are too many.
    """
    with refusing_damage(path, "a .csv file"), warnings.catch_warnings():
        # pandas only warns about a row with more fields than the header, and drops the surplus.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        names, separator = csv_header(path)
        refuse_too_many_columns(path, len(names))
        if "" in names:
            raise InputError(
                f"column {names.index('') + 1} of {shown(path)} has no name: name it, or write the file without row numbers."
            )
        refuse_repeated_names(path, names)
        frame = pd.read_csv(path, sep=separator, index_col=False, low_memory=False)
        if separator != "," and any(_has_decimal_commas(frame[name]) for name in frame):
            frame = pd.read_csv(path, sep=separator, index_col=False, low_memory=False, decimal=",")
        return frame


def refuse_repeated_names(path: Path, names: Sequence[str]) -> None:
    """Refuse a table with two columns of one name."""
    repeated, count = Counter(names).most_common(1)[0] if names else ("", 0)
    if count > 1:
        raise InputError(f"{shown(path)} has more than one column {shown(repeated)}: give each column its own name.")


def _has_decimal_commas(column: pd.Series) -> bool:
    if pd.api.types.is_numeric_dtype(column.dtype):
        return False
    values = [str(value).strip() for value in column.dropna().unique()]
    return any("," in value for value in values) and all(map(_DECIMAL_COMMA.fullmatch, values))
