"""Remarks on a table: what is possible but suspicious, and what was done about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from codedfl._messages import listing, shown
from codedfl.data._cells import EPOCH
from codedfl.data._column import Column
from codedfl.data._dataset import Task

if TYPE_CHECKING:
    from codedfl.data._fitting import Draft

FEW_ROWS = 5
"""A device with fewer training rows than this is named."""

FEW_CLASSES = 10
"""Largest number of different whole numbers in a target that look like classes."""

ENOUGH_ROWS = 20
"""Number of rows from which on a column with another whole number in each looks like an identifier."""

MOST_NAMES = 8


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


def remarks_on_target(targets: pd.DataFrame, task: Task) -> list[str]:
    """Return a remark if a column of numbers, which is predicted by a regression, looks like classes.

    Example:
        >>> remarks_on_target(pd.DataFrame({"ill": [0, 1, 1, 0]}), "regression")[0].split(":")[0]
        "the target 'ill' has only the values 0, 1, which look like classes, but numbers are predicted by a regression"
    """
    if task != "regression":
        return []
    remarks = []
    for name in targets:
        values = np.unique(targets[name].to_numpy(np.float64))
        if len(values) <= min(FEW_CLASSES, len(targets) // 2) and (values == np.rint(values)).all():
            remarks.append(
                f"the target {shown(name)} has only the values {listing(f'{value:.0f}' for value in values)}, which look like "
                "classes, but numbers are predicted by a regression: set data.task = 'classification' to predict classes, or"
                " data.task = 'regression' to confirm."
            )
    return remarks


def remarks_on_devices(devices: Sequence[str], training: Sequence[str]) -> list[str]:
    """Return remarks on devices with few rows.

    Args:
        devices: the device of each row, test rows included.
        training: the device of each training row.

    Example:
        >>> for remark in remarks_on_devices(["a", "b", "b"] + 9 * ["c"], ["a", "b"] + 6 * ["c"]):
        ...     print(remark)
        the only row of a is for training: nothing of it is tested.
        few training rows: b (1); up to 6 elsewhere.
    """
    rows, trained = Counter(devices), Counter(training)
    single = [name for name in sorted(rows) if rows[name] == 1]
    few = [f"{name} ({trained[name]})" for name in sorted(trained) if trained[name] < FEW_ROWS and rows[name] > 1]
    remarks = []
    if single:
        them = "it" if len(single) == 1 else "them"
        remarks.append(f"the only row of {listing(single, MOST_NAMES)} is for training: nothing of {them} is tested.")
    if few:
        most = max(trained.values())
        elsewhere = f"; up to {most} elsewhere" if most >= FEW_ROWS else ""
        remarks.append(f"few training rows: {listing(few, MOST_NAMES)}{elsewhere}.")
    return remarks


def _kinds(drafts: Sequence[Draft]) -> list[str]:
    """Return how columns were read, unless all of them are numbers or truth values."""
    fitted = [draft.fitted for draft in drafts if draft.fitted is not None]
    dates = [column.name for column in fitted if column.kind == "date"]
    categories = [f"{column.name} ({len(column.categories)})" for column in fitted if column.kind == "category"]
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
        if draft.fitted is not None and draft.found.kind == "number" and not draft.fitted.given:
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
    if isinstance(column.fill, str):
        return f"most frequent {shown(column.fill, 30)}" if column.fill else "none of the categories"
    if column.kind == "boolean":
        return f"most frequent {'true' if column.fill else 'false'}"
    how = "median" if column.bounds is None else "middle of the bounds"
    if column.kind == "date":
        return f"{how} {EPOCH + pd.Timedelta(days=column.fill):%Y-%m-%d}"
    return f"{how} {column.fill:,.6g}"


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
