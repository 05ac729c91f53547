from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from codedfl.data._fitting import fit_with_remarks
from codedfl.data._remarks import remarks_on_devices, remarks_on_target


def remarks(**columns: Any) -> tuple[str, ...]:
    return fit_with_remarks(pd.DataFrame({"x": np.arange(30) / 7, **columns}))[1]


def test_plain_numbers_need_no_remark() -> None:
    assert remarks(flag=[True, False] * 15, count=[1, 2, 3] * 10) == ()


@pytest.mark.parametrize(
    ("column", "remark"),
    [
        (["a", "b", "c"] * 10, "categories have a column each: c (3)."),
        (["2020-01-01", "2020-01-02"] * 15, "dates are days since 2000-01-01: c."),
        ([7] * 30, "columns left out: c (the same value in all training rows)."),
        (
            [f"P{row}" for row in range(30)],
            "columns left out: c (another text in almost every row, as in an identifier).",
        ),
        (
            range(30),
            "another whole number in every row, as in an identifier: c; a model should not learn from that, so",
        ),
        ([1.5, None, 2.5] * 10, "missing values were filled in: c (10: median 2)."),
        ([21_000, None, 23_000] * 10, "missing values were filled in: c (10: median 22,000)."),
        ([True, None, True, True, False] * 6, "missing values were filled in: c (6: most frequent true)."),
    ],
)
def test_what_is_done_or_suspicious_is_said(column: Any, remark: str) -> None:
    (found,) = remarks(c=list(column))
    assert found.startswith(remark)


def test_what_stands_in_for_missing_values_is_said() -> None:
    frame = pd.DataFrame(
        {
            "income": [0.0, None, 50_000.0] * 10,
            "ward": ["surgery", None, "surgery", "cardiology", "surgery", "cardiology"] * 5,
            "blood": ["a", None, "b"] * 10,
            "seen": ["2024-01-01", None, "2024-01-03"] * 10,
        }
    )
    given = {"bounds": {"income": (0, 200_000)}, "categories": {"blood": ["a", "b"]}}
    assert fit_with_remarks(frame, **given)[1][1] == (  # type: ignore[arg-type]
        "missing values were filled in: income (10: middle of the bounds 100,000), ward (5: most frequent 'surgery'), blood (10:"
        " none of the categories), seen (10: median 2024-01-02)."
    )


def test_few_rows_make_no_identifier() -> None:
    assert fit_with_remarks(pd.DataFrame({"x": range(19)}))[1] == ()
    assert len(fit_with_remarks(pd.DataFrame({"x": range(20)}))[1]) == 1


@pytest.mark.parametrize(
    ("values", "looks_like_classes"),
    [
        ([0, 1] * 10, True),
        ([0.0, 1.0] * 10, True),
        ([1, 2, 3, 4, 5] * 4, True),
        ([0, 1], False),
        ([0.5, 1] * 10, False),
        (list(range(11)) * 3, False),
    ],
)
def test_numbers_that_look_like_classes_are_pointed_out(values: list[float], looks_like_classes: bool) -> None:
    found = remarks_on_target(pd.DataFrame({"y": values}), "regression")
    assert len(found) == looks_like_classes
    assert not found or "set data.task = 'classification' to predict classes" in found[0]
    assert remarks_on_target(pd.DataFrame({"y": values}), "classification") == []


def test_devices_with_few_rows_are_named() -> None:
    many = [f"d{number}" for number in range(20)]
    (remark,) = remarks_on_devices(many * 8, many * 3)
    assert remark.startswith("few training rows: d0 (3), d1 (3), d10 (3), ")
    assert remark.endswith(", ... (20 in all).")
    assert remarks_on_devices(["a"] * 10, ["a"] * 7) == []
    assert remarks_on_devices(["a", "b", "c", "c"], ["a", "b", "c"])[0] == (
        "the only row of a, b is for training: nothing of them is tested."
    )
