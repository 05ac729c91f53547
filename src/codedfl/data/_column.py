"""What happens to one column of a raw table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from pydantic import ConfigDict

from codedfl._messages import listing, shown
from codedfl.data._cells import ISO, Cells, as_days, as_numbers, as_truths, as_words
from codedfl.data._kinds import Kind
from codedfl.errors import InputError
from codedfl.typing import FloatArray

_FLOAT32_LIMIT = float(np.finfo(np.float32).max)
_VALUES = {"number": "numbers", "boolean": "true or false", "date": "dates"}


@dataclass(frozen=True)
class Column:
    """What happens to one column of a raw table.

    Args:
        name: its name.
        kind: what its values are.
        fill: stands in for missing values: a number (of days, for dates) or a category; "" for none of the categories.
        categories: those that get a column of their own; others are zero in all of them.
        bounds: clip numbers to these and scale them to [-1, 1]; None to leave them as they are.
        date_format: format of dates in text, besides ISO 8601.
        given: whether all of this was given by the user, so that nothing was learnt from data.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    name: str
    kind: Kind
    fill: float | str
    categories: tuple[str, ...] = ()
    bounds: tuple[float, float] | None = None
    date_format: str = ISO
    given: bool = False

    def __post_init__(self) -> None:
        is_text = self.kind == "category"
        ordered = self.bounds is None or -_FLOAT32_LIMIT <= self.bounds[0] < self.bounds[1] <= _FLOAT32_LIMIT
        if (
            isinstance(self.fill, str) != is_text
            or not (isinstance(self.fill, str) or abs(self.fill) <= _FLOAT32_LIMIT)
            or is_text != bool(self.categories)
            or len(set(self.categories)) < len(self.categories)
            or (is_text and self.bounds is not None)
            or not ordered
        ):
            raise InputError(f"the preprocessing of the column {shown(self.name)} is not consistent: fit it again.")

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the numeric columns that it becomes."""
        return tuple(f"{self.name}={category}" for category in self.categories) or (self.name,)

    def read(self, cells: pd.Series) -> tuple[npt.NDArray[Any], list[str]]:
        """Return the cells of a table as text for a category, else as float64, and the problems with them."""
        if self.kind == "category":
            return as_words(cells), []
        values, bad = _read_cells(cells, self.kind, self.date_format)
        problems = []
        if bad.any():
            examples = listing([shown(value, 30) for value in pd.unique(cells[bad].astype(object).map(str))[:3]])
            problems.append(
                f"column {shown(self.name)} has {np.count_nonzero(bad)} value(s) that are not {_VALUES[self.kind]} ({examples}): "
                "correct them, or leave cells without a value empty."
            )
        problems += _too_large(self.name, values)
        return values, problems


def _read_cells(cells: pd.Series, kind: Kind, date_format: str) -> Cells:
    """Return the cells of a column that is no category as float64, and those that are not of its kind."""
    if kind == "date":
        return as_days(cells, date_format)
    return as_truths(cells) if kind == "boolean" else as_numbers(cells)


def _too_large(name: str, values: FloatArray) -> list[str]:
    """Return a problem if there are numbers that single precision cannot hold."""
    count = np.count_nonzero(np.abs(values) > _FLOAT32_LIMIT)
    if not count:
        return []
    return [
        f"column {shown(name)} has {count} value(s) that are infinite or beyond {_FLOAT32_LIMIT:.1e}: rescale them or remove "
        "their rows."
    ]
