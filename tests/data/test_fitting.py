from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from codedfl.data import Column, fit_preprocessing
from codedfl.data._fitting import MAX_CATEGORIES, fit_with_remarks
from codedfl.errors import InputError

FRAME = pd.DataFrame(
    {
        "age": [20.0, None, 40.0, 90.0, 10.0, 60.0],
        "ward": ["a", "b", "b", None, "c", "b"],
        "seen": ["2000-01-02", "2000-01-03", None, "2000-01-05", "2000-01-09", "2000-01-02"],
        "smokes": [True, True, None, False, True, False],
        "country": ["NL"] * 6,
    }
)


def columns_of(frame: pd.DataFrame, **options: Any) -> dict[str, Column]:
    return {column.name: column for column in fit_preprocessing(frame, **options).columns}


def test_kinds_medians_and_categories_are_learnt() -> None:
    columns = columns_of(FRAME)
    assert list(columns) == ["age", "ward", "seen", "smokes"]
    assert columns["age"] == Column("age", "number", 40.0)
    assert columns["ward"] == Column("ward", "category", "b", ("a", "b", "c"))
    assert columns["seen"] == Column("seen", "date", 2.0)
    assert columns["smokes"] == Column("smokes", "boolean", 1.0)


def test_only_training_rows_are_learnt_from() -> None:
    columns = columns_of(FRAME, rows=np.array([0, 2, 3, 5]))
    assert columns["age"].fill == np.median([20, 40, 90, 60])
    assert columns["ward"].categories == ("a", "b")
    changed = FRAME.assign(age=FRAME["age"].where(~FRAME.index.isin([1, 4]), 1e6))
    assert columns_of(changed, rows=np.array([0, 2, 3, 5])) == columns


def test_a_column_that_is_constant_or_missing_in_the_training_rows_is_left_out() -> None:
    assert "smokes" not in columns_of(FRAME, rows=np.array([0, 1, 2, 4]))
    assert "age" not in columns_of(FRAME, rows=np.array([0, 1]))
    assert "age" not in columns_of(FRAME, rows=np.array([1]))
    assert "country" in columns_of(FRAME, rows=np.array([0])), "a single row tells nothing"


def test_rare_categories_have_no_column() -> None:
    words = [f"w{number:02}" for number in range(50) for _ in range(60 - number)]
    fitted, remarks = fit_with_remarks(pd.DataFrame({"w": words, "x": range(len(words))}))
    assert fitted.columns[0].categories == tuple(f"w{number:02}" for number in range(MAX_CATEGORIES))
    assert any("'w' has 50 categories: the 20 most frequent have a column each" in remark for remark in remarks)
    rare = pd.DataFrame({"w": ["w49", "never seen"], "x": [1, 2]})
    assert not fitted.transform(rare, source="it")[:, :-1].any()


def test_text_that_differs_in_every_row_is_left_out_unless_it_is_declared() -> None:
    frame = pd.DataFrame({"id": [f"P{row}" for row in range(30)], "x": np.arange(30) / 7})
    fitted, remarks = fit_with_remarks(frame)
    assert fitted.input_names == ("x",)
    assert remarks == ("columns left out: id (another text in almost every row, as in an identifier).",)
    assert fit_preprocessing(frame, categories={"id": ()}).input_names == ("id", "x")


def test_numbers_may_be_declared_categories() -> None:
    fitted = fit_preprocessing(pd.DataFrame({"zip": [10.0, 20.0, 10.0, None]}), categories={"zip": ()})
    assert fitted.output_names == ("zip=10", "zip=20")
    assert fitted.learnt == ("zip",)


def test_with_bounds_and_categories_nothing_is_learnt() -> None:
    given: dict[str, Any] = {
        "bounds": {"age": (0, 100), "seen": ("2000-01-01", "2000-01-11"), "smokes": (0, 1)},
        "categories": {"ward": ("a", "b"), "country": ("NL", "BE")},
    }
    fitted, remarks = fit_with_remarks(FRAME, **given)
    assert fitted.learnt == ()
    assert fitted == fit_preprocessing(FRAME.iloc[:2].assign(age=[1, 2]), **given), "whatever the data"
    expected = [
        [-0.6, 1, 0, -0.8, 1, 1, 0],
        [0, 0, 1, -0.6, 1, 1, 0],
        [-0.2, 0, 1, 0, 0, 1, 0],
        [0.8, 0, 0, -0.2, -1, 1, 0],
        [-0.8, 0, 0, 0.6, 1, 1, 0],
        [0.2, 0, 1, -0.8, -1, 1, 0],
    ]
    # Rounding to float32 happens once, at the end.
    np.testing.assert_array_equal(fitted.transform(FRAME, source="it"), np.array(expected, dtype=np.float32))
    assert "1 value(s) of 'ward' are not in data.categories.ward, and counted as none of them." in remarks


def test_values_outside_of_bounds_are_clipped_and_counted() -> None:
    fitted, remarks = fit_with_remarks(pd.DataFrame({"age": [-5, 50, 300]}), bounds={"age": (0, 100)})
    assert fitted.transform(pd.DataFrame({"age": [-5, 50, 300]}), source="it").ravel().tolist() == [-1, 0, 1]
    assert "2 value(s) of 'age' are outside of data.bounds.age, and clipped." in remarks


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"bounds": {"agee": (0, 1)}},
            r"^'my\.csv': data\.bounds\.agee is given, but 'agee' is not a .* Did you mean 'age'\?$",
        ),
        (
            {"categories": {"word": ()}},
            r"data\.categories\.word is given, but 'word' is not a feature.* Did you mean 'ward'\?$",
        ),
        ({"bounds": {"ward": (0, 1)}}, r"column 'ward' has 5 value\(s\) that are not numbers \('a', 'b', 'c'\)"),
        ({"bounds": {"age": (1, 0)}}, r"data\.bounds\.age = \[1, 0\] must be a lower and a higher value"),
        ({"bounds": {"age": ("x", "y")}}, r"data\.bounds\.age must be two numbers or two dates"),
        ({"bounds": {"ward": ("2020-01-01", "2021-01-01")}}, r"column 'ward' has 5 value\(s\) that are not dates"),
    ],
)
def test_what_is_given_has_to_fit(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit_preprocessing(FRAME, source="'my.csv'", **options)


def test_all_problems_are_listed_at_once() -> None:
    bad = pd.DataFrame({"a": [1.0, np.inf], "b": [None, None], "c": ["1", "?"], "d": ["1/2/2024", "2/3/2024"]})
    with pytest.raises(InputError) as caught:
        fit_with_remarks(bad, source="'my.csv'", bounds={"e": (0, 1)}, problems=["the first."])
    first, *lines = str(caught.value).splitlines()
    assert first == "'my.csv' has 6 problems:"
    assert lines[0] == "- the first."
    assert [line.split("'")[1] for line in lines[1:]] == ["e", "a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": [1, 1], "b": ["x", "x"]}, "every feature of the table is constant"),
        ({"a": [1, 1, 1], "b": ["x", "y", "z"]}, "the table has no column left as a feature"),
    ],
)
def test_without_a_column_to_learn_from_a_table_is_refused(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit_preprocessing(pd.DataFrame(columns))


def test_scikit_learn_agrees_on_a_random_table() -> None:
    """A ColumnTransformer written by hand, fitted to the same rows."""
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=200), "w": rng.choice(list("abcde"), 200), "z": rng.integers(0, 9, 200)})
    frame.loc[rng.random(200) < 0.2, "x"] = np.nan
    frame["w"] = frame["w"].astype(object).where(rng.random(200) > 0.2, np.nan)
    rows = np.sort(rng.permutation(200)[:120])
    words = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore"))
    by_hand = make_column_transformer(
        (SimpleImputer(strategy="median"), ["x"]), (words, ["w"]), ("passthrough", ["z"]), sparse_threshold=0
    )
    expected = by_hand.fit(frame.iloc[rows]).transform(frame).astype(np.float32)
    np.testing.assert_array_equal(fit_preprocessing(frame, rows=rows).transform(frame, source="it"), expected)


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
