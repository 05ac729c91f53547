"""Fit the preprocessing of a raw table, and remark on what is suspicious in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from codedfl._messages import did_you_mean, listing, shown
from codedfl._validation import refuse_all
from codedfl.data._cells import EPOCH, InferredKind, as_categories, as_days, infer_kind, needs_double
from codedfl.data._preprocessing import Column, Preprocessing
from codedfl.errors import InputError
from codedfl.typing import FloatArray, IntArray

MAX_CATEGORIES = 20
"""Largest number of categories of a column that get a column of their own, if they are learnt from the data."""

ENOUGH_ROWS = 20
"""Number of rows from which on a column with another whole number in each looks like an identifier."""

MOST_NAMES = 8
"""Columns that a remark names."""

Bounds = Mapping[str, tuple[float | str, float | str]]
Categories = Mapping[str, Sequence[str]]


@dataclass
class Draft:
    """A column while it is examined and fitted.

    Args:
        cells: the raw column.
        inferred: its kind.
        values: the same cells as float64, or as text for a category.
        fitted: what happens to it; None if it is left out.
        reason: why it is left out, as `remarks_on` words it.
        shared: how many of its categories have no column of their own.
        problems: what is wrong with it, one sentence each.
        declared: whether the user said that it has categories.
    """

    cells: pd.Series
    inferred: InferredKind
    values: FloatArray | npt.NDArray[np.object_]
    fitted: Column | None = None
    reason: str = ""
    shared: int = 0
    problems: list[str] = field(default_factory=list)
    declared: bool = False

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.cells.name)

    @property
    def present(self) -> npt.NDArray[Any]:
        """The values that are not missing."""
        present: npt.NDArray[Any] = self.values[~pd.isna(self.values)]
        return present


def fit_preprocessing(
    frame: pd.DataFrame,
    *,
    rows: IntArray | None = None,
    bounds: Bounds | None = None,
    categories: Categories | None = None,
    source: str = "the table",
) -> Preprocessing:
    """Fit the preprocessing of a raw table, whose columns are all features.

    Numbers, truth values, dates and categories are told apart by all rows; medians, most frequent values and categories come from
    the training rows. Columns with one value in all training rows, and text with (almost) as many values as rows, are left out.

    Args:
        frame: the table.
        rows: numbers of the training rows; all by default.
        bounds: lower and upper bound of columns of numbers or dates, which are then neither fitted nor left out.
        categories: the categories of columns, which are then neither fitted nor left out; an empty list says that a column has
            categories, and has them learnt from the training rows.
        source: the table as messages name it.

    Raises:
        InputError: there are problems with the columns; the message lists all of them.

    Example:
        >>> frame = pd.DataFrame({"age": [30, None, 50], "ward": ["a", "b", "a"], "country": ["x", "x", "x"]})
        >>> fitted = fit_preprocessing(frame)
        >>> fitted.output_names, fitted.transform(frame, source="the table").tolist()
        (('age', 'ward=a', 'ward=b'), [[30.0, 1.0, 0.0], [40.0, 0.0, 1.0], [50.0, 1.0, 0.0]])
        >>> fit_preprocessing(frame[["age"]], bounds={"age": (0, 100)}).transform(frame, source="the table").ravel()
        array([-0.4,  0. ,  0. ], dtype=float32)
    """
    return fit_with_remarks(frame, rows=rows, bounds=bounds, categories=categories, source=source)[0]


def fit_with_remarks(
    frame: pd.DataFrame,
    *,
    rows: IntArray | None = None,
    bounds: Bounds | None = None,
    categories: Categories | None = None,
    source: str = "the table",
    problems: Sequence[str] = (),
) -> tuple[Preprocessing, tuple[str, ...]]:
    """Fit as `fit_preprocessing` does, and also return what the user should know, one sentence each.

    Args:
        frame: the table.
        rows: as for `fit_preprocessing`.
        bounds: as for `fit_preprocessing`.
        categories: as for `fit_preprocessing`.
        source: as for `fit_preprocessing`.
        problems: what is already known to be wrong with the table.
    """
    bounds, categories = bounds or {}, categories or {}
    drafts = [_examine(frame.iloc[:, place], bounds, categories) for place in range(frame.shape[1])]
    unknown = _unknown_names(frame, bounds, categories)
    refuse_all(source, [*problems, *unknown, *(problem for draft in drafts for problem in draft.problems)])
    training = np.arange(len(frame)) if rows is None else rows
    for draft in drafts:
        if draft.fitted is None:
            draft.reason = _reason_to_leave_out(draft, training)
    _learn([draft for draft in drafts if draft.fitted is None and not draft.reason], training)
    kept = tuple(draft.fitted for draft in drafts if draft.fitted is not None)
    if not kept:
        constant = all(draft.reason == "constant" for draft in drafts)
        raise InputError(
            f"every feature of {source} is constant: give at least one column that differs between rows."
            if constant
            else f"{source} has no column left as a feature, as all have one value in every row or another in each: add a column."
        )
    return Preprocessing(kept), remarks_on(drafts)


def _unknown_names(frame: pd.DataFrame, bounds: Mapping[str, Any], categories: Mapping[str, Any]) -> list[str]:
    names = [str(name) for name in frame.columns]
    return [
        f"{section}.{name} is given, but {shown(name)} is not a feature, only {listing(names)}.{did_you_mean(name, names)}"
        for section, columns in (("data.bounds", bounds), ("data.categories", categories))
        for name in columns
        if name not in names
    ]


def _examine(cells: pd.Series, bounds: Mapping[str, Any], categories: Mapping[str, Sequence[str]]) -> Draft:
    """Find out what a column is, from what the user gave or from its cells."""
    name = str(cells.name)
    if name in bounds:
        return _with_bounds(cells, bounds[name])
    inferred = InferredKind("category") if name in categories else infer_kind(cells)
    if inferred.problem:
        return Draft(cells, inferred, np.empty(0), problems=[inferred.problem])
    if inferred.is_category:
        draft = Draft(cells, inferred, as_categories(cells), declared=name in categories)
        if categories.get(name):
            draft.fitted = Column(name, "category", "", tuple(categories[name]), given=True)
        return draft
    probe = Column(name, inferred.kind, 0.0, date_format=inferred.date_format)
    values, problems = probe.read(cells)
    return Draft(cells, inferred, values, problems=problems)


def _with_bounds(cells: pd.Series, bounds: Sequence[float | str]) -> Draft:
    name = str(cells.name)
    numbers = [float(bound) for bound in bounds if isinstance(bound, int | float)]
    if len(numbers) == 2:
        low, high = numbers
        inferred = InferredKind("number")
    else:
        (low, high), bad = as_days(pd.Series([str(bound) for bound in bounds], dtype=object))
        if bad.any():
            return Draft(
                cells, InferredKind(), np.empty(0), problems=[f"data.bounds.{name} must be two numbers or two dates."]
            )
        inferred = InferredKind("date", infer_kind(cells).date_format)
    if not -1e38 < low < high < 1e38:
        problem = f"data.bounds.{name} = {shown(list(bounds))} must be a lower and a higher value."
        return Draft(cells, inferred, np.empty(0), problems=[problem])
    column = Column(
        name, inferred.kind, (low + high) / 2, bounds=(low, high), date_format=inferred.date_format, given=True
    )
    values, problems = column.read(cells)
    return Draft(cells, inferred, values, column, problems=problems)


def _reason_to_leave_out(draft: Draft, training: IntArray) -> str:
    """Return why nothing can be learnt from a column; empty if something can."""
    values = draft.values[training]
    values = values[~pd.isna(values)]
    if len(values) == 0 or (len(training) > 1 and (values == values[0]).all()):
        return "constant"
    if draft.inferred.is_category and not draft.declared:
        distinct, present = pd.Series(draft.values).nunique(), len(draft.present)
        if distinct == present > 2 or (distinct > MAX_CATEGORIES and 2 * distinct > present):
            return "identifier"
    return ""


def _learn(drafts: Sequence[Draft], training: IntArray) -> None:
    """Fit the columns to the training rows."""
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import OneHotEncoder

    for kinds, strategy in ((("number", "date"), "median"), (("boolean",), "most_frequent")):
        columns = [draft for draft in drafts if draft.inferred.kind in kinds]
        if columns:
            table = np.column_stack([draft.values[training] for draft in columns])
            for draft, fill in zip(columns, SimpleImputer(strategy=strategy).fit(table).statistics_, strict=True):
                values = draft.values[training]
                draft.fitted = Column(
                    draft.name,
                    draft.inferred.kind,
                    float(fill),
                    date_format=draft.inferred.date_format,
                    double=needs_double(values[~pd.isna(values)]),
                )
    for draft in drafts:
        if draft.inferred.is_category:
            imputer = SimpleImputer(strategy="most_frequent")
            words = imputer.fit_transform(draft.values[training].reshape(-1, 1))
            encoder = OneHotEncoder(max_categories=MAX_CATEGORIES + 1, handle_unknown="infrequent_if_exist").fit(words)
            rare = encoder.infrequent_categories_[0]
            draft.shared = 0 if rare is None else len(rare)
            kept = tuple(word for word in encoder.categories_[0] if rare is None or word not in rare)
            draft.fitted = Column(draft.name, "category", str(imputer.statistics_[0]), kept)


def remarks_on(drafts: Sequence[Draft]) -> tuple[str, ...]:
    """Return what the user should know about the columns of a table, one sentence each."""
    remarks = [
        *_kinds(drafts),
        *_left_out(drafts),
        *_identifiers(drafts),
        *_filled(drafts),
        *(_rare(draft) for draft in drafts if draft.shared),
        *_outside(drafts),
    ]
    return tuple(remarks)


def _kinds(drafts: Sequence[Draft]) -> list[str]:
    """Return how columns were read, unless all of them are numbers or truth values."""
    fitted = [draft.fitted for draft in drafts if draft.fitted is not None]
    dates = [column.name for column in fitted if column.kind == "date"]
    categories = [f"{column.name} ({len(column.categories)})" for column in fitted if column.is_category]
    parts = [f"categories have a column each: {listing(categories, MOST_NAMES)}"] if categories else []
    parts += [f"dates are days since 2000-01-01: {listing(dates, MOST_NAMES)}"] if dates else []
    return [f"{'; '.join(parts)}."] if parts else []


def _left_out(drafts: Sequence[Draft]) -> list[str]:
    wording = {
        "constant": "the same value in all training rows",
        "identifier": "another text in almost every row, as in an identifier",
    }
    left_out = {text: [draft.name for draft in drafts if draft.reason == reason] for reason, text in wording.items()}
    parts = [f"{listing(names, MOST_NAMES)} ({text})" for text, names in left_out.items() if names]
    return [f"columns left out: {'; '.join(parts)}."] if parts else []


def _identifiers(drafts: Sequence[Draft]) -> list[str]:
    names = []
    for draft in drafts:
        if draft.fitted is not None and draft.inferred.kind == "number" and not draft.fitted.given:
            values = np.asarray(draft.present, dtype=np.float64)
            distinct = len(np.unique(values)) == len(values) >= ENOUGH_ROWS
            if distinct and (values == np.rint(values)).all():
                names.append(draft.name)
    if not names:
        return []
    return [
        f"another whole number in every row, as in an identifier: {listing(names, MOST_NAMES)}; a model should not learn from "
        "that, so leave it out with data.drop unless it is a measurement."
    ]


def _filled(drafts: Sequence[Draft]) -> list[str]:
    filled = [
        f"{draft.name} ({len(draft.values) - len(draft.present)}: {_stand_in(draft.fitted)})"
        for draft in drafts
        if draft.fitted is not None and len(draft.present) < len(draft.values)
    ]
    return [f"missing values were filled in: {listing(filled, MOST_NAMES)}."] if filled else []


def _stand_in(column: Column) -> str:
    """Return what stands in for missing values of a column, in words."""
    middle = "median" if column.bounds is None else "middle of the bounds"
    match column.kind:
        case "category":
            return f"most frequent {shown(column.fill, 30)}" if column.fill else "none of the categories"
        case "boolean":
            return f"most frequent {'true' if column.fill else 'false'}"
        case "date":
            return f"{middle} {EPOCH + pd.Timedelta(days=float(column.fill)):%Y-%m-%d}"
        case "number":
            return f"{middle} {column.fill:,.{10 if column.double else 6}g}"


def _rare(draft: Draft) -> str:
    kept = len(draft.fitted.categories) if draft.fitted else 0
    return (
        f"the column {shown(draft.name)} has {kept + draft.shared} categories: the {kept} most frequent have a column each, the "
        "others none."
    )


def _outside(drafts: Sequence[Draft]) -> list[str]:
    """Return how many values are outside of what the user gave."""
    remarks = []
    for draft in drafts:
        column = draft.fitted
        if column is None or not column.given:
            continue
        if column.bounds is not None:
            values = np.asarray(draft.present, dtype=np.float64)
            count = int(np.count_nonzero((values < column.bounds[0]) | (values > column.bounds[1])))
            what = f"outside of data.bounds.{column.name}, and clipped"
        else:
            count = int(np.count_nonzero(~np.isin(draft.present.astype(str), column.categories)))
            what = f"not in data.categories.{column.name}, and counted as none of them"
        if count:
            remarks.append(f"{count} value(s) of {shown(column.name)} are {what}.")
    return remarks
