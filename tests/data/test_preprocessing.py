from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.data import Column, Preprocessing
from codedfl.errors import InputError
from tests.support import refusal_of

AGE = Column("age", "number", 50.0)
WARD = Column("ward", "category", "b", categories=("a", "b"))
SEEN = Column("seen", "date", 10.0, date_format="%d.%m.%Y")
SMOKES = Column("smokes", "boolean", 1.0)
DOSE = Column("dose", "number", 5.0, bounds=(0.0, 10.0), given=True)
ALL = Preprocessing((WARD, AGE, SEEN, DOSE, SMOKES))

FRAME = pd.DataFrame(
    {
        "age": [30, None, 70.5],
        "name": ["Ann", "Bob", "Cid"],
        "smokes": [True, None, False],
        "seen": ["02.01.2000", None, "2000-02-01"],
        "ward": ["a", None, "z"],
        "dose": [2.5, None, 99.0],
    }
)
EXPECTED = np.array(
    [
        [1, 0, 30, 1, -0.5, 1],
        [0, 1, 50, 10, 0, 1],
        [0, 0, 70.5, 31, 1, 0],
    ],
    dtype=np.float32,
)


def test_every_kind_of_column_becomes_numbers() -> None:
    assert ALL.input_names == ("ward", "age", "seen", "dose", "smokes")
    assert ALL.output_names == ("ward=a", "ward=b", "age", "seen", "dose", "smokes")
    numbers = ALL.transform(FRAME, source="'my.csv'")
    np.testing.assert_array_equal(numbers, EXPECTED, strict=True)
    assert numbers.flags.c_contiguous


def test_columns_are_found_by_name_in_any_order() -> None:
    shuffled = FRAME[list(reversed(FRAME.columns))].set_index(pd.Index([7, 7, 3]))
    np.testing.assert_array_equal(ALL.transform(shuffled, source="it"), EXPECTED)
    assert ALL.transform(FRAME.iloc[:0], source="it").shape == (0, 6)


def test_the_order_is_that_of_scikit_learn() -> None:
    names = [name.split("__", 1)[1] for name in ALL._transformer.get_feature_names_out()]
    assert [name.replace("_", "=") for name in names] == list(ALL.output_names)


def test_what_was_learnt_and_what_was_given() -> None:
    assert ALL.learnt == ("ward", "age", "seen", "smokes")
    assert Preprocessing((DOSE,)).learnt == ()
    assert Preprocessing((AGE, SMOKES)).is_numeric
    assert not ALL.is_numeric
    assert not Preprocessing((DOSE,)).is_numeric


def test_missing_columns_are_all_named() -> None:
    message = r"^'new\.csv' has no column 'ward', 'seen' \(found: age, name, smokes, dose\): add what is missing, under the name"
    with pytest.raises(InputError, match=message):
        ALL.transform(FRAME.drop(columns=["ward", "seen"]), source="'new.csv'")


def test_values_of_another_kind_are_all_named() -> None:
    cells: dict[str, Any] = {
        "age": ["x", "y", 3],
        "seen": ["soon", None, "02.01.2000"],
        "smokes": ["yes", "no", None],
        "dose": [1, np.inf, 2],
    }
    wrong = FRAME.assign(**cells)
    with pytest.raises(InputError) as caught:
        ALL.transform(wrong, source="'new.csv'")
    first, *lines = str(caught.value).splitlines()
    assert first == "'new.csv' has 4 problems:"
    assert lines[0].startswith("- column 'age' has 2 value(s) that are not numbers ('x', 'y'): correct them")
    assert "column 'seen' has 1 value(s) that are not dates ('soon')" in lines[1]
    assert "column 'dose' has 1 value(s) that are infinite" in lines[2]
    assert "column 'smokes' has 2 value(s) that are not true or false" in lines[3]
    with pytest.raises(InputError, match=r"^'new\.csv': column 'age' has 1 value\(s\)"):
        ALL.transform(FRAME.assign(age=["x", 1, 2]), source="'new.csv'")


def test_it_survives_json() -> None:
    text = json.dumps(ALL.to_dict(), allow_nan=False)
    again = Preprocessing.from_dict(json.loads(text))
    assert again == ALL
    np.testing.assert_array_equal(again.transform(FRAME, source="it"), EXPECTED)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(place=st.integers(0, 4), key=st.sampled_from([*ALL.to_dict()["columns"][0], "other"]), value=JSON)
def test_whatever_is_malformed_is_refused(place: int, key: str, value: Any) -> None:
    values = ALL.to_dict()
    values["columns"][place][key] = value

    def use() -> None:
        assert np.isfinite(Preprocessing.from_dict(values).transform(FRAME.assign(other=1), source="it")).all()

    assert "\n" not in refusal_of(use)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"version": 2, "columns": []},
        {"version": 1},
        {"version": 1, "columns": []},
        {"version": 1, "columns": [1]},
        {"version": 1, "columns": [{"name": "age", "kind": "number"}]},
        {"version": 1, "columns": {"age": {}}},
        [],
    ],
)
def test_other_objects_are_refused(values: Any) -> None:
    with pytest.raises(InputError, match="preprocessing"):
        Preprocessing.from_dict(values)


@pytest.mark.parametrize(
    ("column", "changes"),
    [
        (AGE, {"fill": "x"}),
        (AGE, {"fill": np.inf}),
        (AGE, {"fill": 1e300}),
        (AGE, {"categories": ("a",)}),
        (WARD, {"fill": 1.0}),
        (WARD, {"categories": ()}),
        (WARD, {"categories": ("a", "a")}),
        (WARD, {"bounds": (0.0, 1.0)}),
        (DOSE, {"bounds": (1.0, 1.0)}),
        (DOSE, {"bounds": (0.0, np.inf)}),
    ],
)
def test_columns_that_contradict_themselves_are_refused(column: Column, changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"the preprocessing of the column '{column.name}' is not consistent"):
        replace(column, **changes)


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(InputError, match="two columns 'age'"):
        Preprocessing((AGE, AGE))
    with pytest.raises(InputError, match="two columns 'ward=a'"):
        Preprocessing((WARD, replace(AGE, name="ward=a")))
