"""From the columns of a raw table to numbers, by scikit-learn's transformers with fixed, serialisable parameters."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from itertools import groupby
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from pydantic import ConfigDict, TypeAdapter, ValidationError

from codedfl._messages import listing, shown
from codedfl._validation import refuse_all
from codedfl.data._cells import (
    FLOAT32_LIMIT,
    ISO,
    Cells,
    Kind,
    as_booleans,
    as_categories,
    as_days,
    as_numbers,
    beyond_float32,
)
from codedfl.errors import InputError
from codedfl.typing import FloatArray

VERSION = 1
"""Version of what `Preprocessing.to_dict` writes."""

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
        double: whether single precision would lose digits in which rows differ, as those of seconds since 1970.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    name: str
    kind: Kind
    fill: float | str
    categories: tuple[str, ...] = ()
    bounds: tuple[float, float] | None = None
    date_format: str = ISO
    given: bool = False
    double: bool = False

    def __post_init__(self) -> None:
        is_text = self.is_category
        ordered = self.bounds is None or -FLOAT32_LIMIT <= self.bounds[0] < self.bounds[1] <= FLOAT32_LIMIT
        if (
            isinstance(self.fill, str) != is_text
            or not (isinstance(self.fill, str) or abs(self.fill) <= FLOAT32_LIMIT)
            or is_text != bool(self.categories)
            or len(set(self.categories)) < len(self.categories)
            or (is_text and self.bounds is not None)
            or not ordered
        ):
            raise InputError(f"the preprocessing of the column {shown(self.name)} is not consistent: fit it again.")

    @property
    def is_category(self) -> bool:
        """Whether its values are text rather than numbers."""
        return self.kind == "category"

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the numeric columns that it becomes."""
        return tuple(f"{self.name}={category}" for category in self.categories) or (self.name,)

    def read(self, cells: pd.Series) -> tuple[npt.NDArray[Any], list[str]]:
        """Return the cells of a table as text for a category, else as float64, and the problems with them."""
        if self.is_category:
            return as_categories(cells), []
        read: Mapping[Kind, Callable[[pd.Series], Cells]] = {
            "number": as_numbers,
            "boolean": as_booleans,
            "date": partial(as_days, date_format=self.date_format),
        }
        values, bad = read[self.kind](cells)
        problems = []
        if bad.any():
            examples = listing([shown(value, 30) for value in pd.unique(cells[bad].astype(object).map(str))[:3]])
            problems.append(
                f"column {shown(self.name)} has {np.count_nonzero(bad)} value(s) that are not {_VALUES[self.kind]} ({examples}): "
                "correct them, or leave cells without a value empty."
            )
        if problem := beyond_float32(f"column {shown(self.name)}", values):
            problems.append(problem)
        return values, problems


@dataclass(frozen=True)
class Preprocessing:
    """A fitted map from the columns of a raw table to numeric columns.

    Missing values are filled in, categories become one column of 0 and 1 each, truth values 0 and 1, and dates days since
    2000-01-01. Numbers stay as they are, unless they have bounds: then they are clipped to them and scaled to [-1, 1].
    `fit_preprocessing` makes one.

    Args:
        columns: what happens to each column, in the order of the output.

    Example:
        >>> ward = Column("ward", "category", "surgery", categories=("intensive care", "surgery"))
        >>> preprocessing = Preprocessing((Column("age", "number", 50.0), ward))
        >>> preprocessing.output_names
        ('age', 'ward=intensive care', 'ward=surgery')
        >>> frame = pd.DataFrame({"ward": ["surgery", "maternity"], "name": ["Ann", "Bob"], "age": [33, None]})
        >>> preprocessing.transform(frame, source="'new.csv'")
        array([[33.,  0.,  1.],
               [50.,  0.,  0.]], dtype=float32)
    """

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        if not self.columns:
            raise InputError("the preprocessing has no columns: give at least one.")
        for names in (self.input_names, self.output_names):
            repeated = (
                next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
            )
            if repeated is not None:
                raise InputError(
                    f"the preprocessing has two columns {shown(repeated)}: rename one of them in the table."
                )

    @property
    def input_names(self) -> tuple[str, ...]:
        """Columns of the raw table that it reads, in order."""
        return tuple(column.name for column in self.columns)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the numeric columns that it makes."""
        return tuple(name for column in self.columns for name in column.output_names)

    @property
    def learnt(self) -> tuple[str, ...]:
        """Columns for which something was learnt from data; empty if the user gave bounds or categories for all."""
        return tuple(column.name for column in self.columns if not column.given)

    @property
    def is_numeric(self) -> bool:
        """Whether every column is a number or a truth value that is only filled in, not clipped, scaled or encoded."""
        return all(column.kind in ("number", "boolean") and column.bounds is None for column in self.columns)

    @property
    def precision(self) -> np.dtype[Any]:
        """Floating type of the numeric columns."""
        return np.dtype(np.float64 if any(column.double for column in self.columns) else np.float32)

    def transform(self, frame: pd.DataFrame, *, source: str) -> FloatArray:
        """Return the rows of a raw table as numbers.

        Args:
            frame: the table, with the columns in any order; others are ignored.
            source: the table as messages name it.

        Returns:
            (n, p), finite, in `precision`.

        Raises:
            InputError: a column is missing or has values of another kind; the message starts with ``source``.
        """
        place_of = {str(name): place for place, name in reversed(list(enumerate(frame.columns)))}
        lacking = [name for name in self.input_names if name not in place_of]
        if lacking:
            raise InputError(
                f"{source} has no column {listing(map(shown, lacking))} (found: {listing(map(str, frame.columns)) or 'none'}): "
                "add what is missing, under the name that it had in training."
            )
        read: dict[str, npt.NDArray[Any] | pd.Series] = {}
        problems: list[str] = []
        for column in self.columns:
            values, wrong = column.read(frame.iloc[:, place_of[column.name]])
            # Left to itself, pandas would turn text into a type of its own, which not every scikit-learn knows.
            read[column.name] = pd.Series(values, dtype=object) if column.categories else values
            problems += wrong
        refuse_all(source, problems)
        if len(frame) == 0:
            return np.empty((0, len(self.output_names)), self.precision)
        return np.ascontiguousarray(self._transformer.transform(pd.DataFrame(read)), dtype=self.precision)

    @cached_property
    def _transformer(self) -> Any:
        """The columns as scikit-learn's transformers, fitted to rows that lead to these very parameters."""
        from sklearn.compose import ColumnTransformer
        from sklearn.impute import SimpleImputer
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import MinMaxScaler, OneHotEncoder

        parts: list[tuple[str, Any, list[str]]] = []
        for kind, group in groupby(self.columns, lambda column: (column.is_category, column.bounds is not None)):
            columns = list(group)
            if kind == (True, False):
                encoder = OneHotEncoder(
                    categories=[np.array(column.categories, dtype=object) for column in columns],
                    handle_unknown="ignore",
                    sparse_output=False,
                )
                step = make_pipeline(SimpleImputer(strategy="most_frequent"), encoder)
            elif kind == (False, True):
                step = make_pipeline(SimpleImputer(strategy="median"), MinMaxScaler((-1, 1), clip=True))
            else:
                step = SimpleImputer(strategy="median")
            parts.append((f"part {len(parts)}", step, [column.name for column in columns]))
        # The median of the two bounds is their middle, and that of one value the value itself.
        rows = {
            column.name: pd.Series(
                column.bounds or (column.fill,) * 2, dtype=object if column.categories else np.float64
            )
            for column in self.columns
        }
        return ColumnTransformer(parts).fit(pd.DataFrame(rows))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON: strings, numbers, lists and objects."""
        columns = [
            {**asdict(column), "categories": list(column.categories), "bounds": column.bounds and list(column.bounds)}
            for column in self.columns
        ]
        for column in columns:
            if not column["double"]:  # which earlier versions of this library do not know
                del column["double"]
        return {"version": VERSION, "columns": columns}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Preprocessing:
        """Return what `to_dict` wrote.

        Raises:
            InputError: it is malformed, or of another version.

        Example:
            >>> preprocessing = Preprocessing((Column("age", "number", 50.0, bounds=(0.0, 120.0)),))
            >>> Preprocessing.from_dict(preprocessing.to_dict()) == preprocessing
            True
        """
        if not isinstance(values, Mapping) or values.get("version") != VERSION:
            raise InputError(
                f"the preprocessing is not of version {VERSION}, which this codedfl reads: train the model again."
            )
        try:
            # By way of JSON, in which a list may stand for a tuple and 1 for 1.0, but nothing else is converted.
            columns = TypeAdapter(tuple[Column, ...]).validate_json(json.dumps(values.get("columns")), strict=True)
        except (ValidationError, TypeError, ValueError, RecursionError) as error:
            raise InputError("the columns of the preprocessing are malformed: train the model again.") from error
        return cls(columns)
