"""The header of a table in text: which separator it has is found out."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from codedfl._messages import shown
from codedfl.errors import InputError

SEPARATORS = (",", ";", "\t")


def csv_header(path: Path) -> tuple[list[str], str]:
    """Return the names in the first line of a .csv or .tsv file, and the separator: that which makes the most names.

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


@contextmanager
def refusing_other_encodings(source: str | Path) -> Iterator[None]:
    """Turn what Python raises on text that is not in UTF-8 into an ``InputError``.

    Args:
        source: the file, or how messages name it.
    """
    try:
        yield
    except UnicodeDecodeError as error:
        name = shown(source) if isinstance(source, Path) else source
        raise InputError(f"{name} is not text in UTF-8: save it as UTF-8 in the program that wrote it.") from error
