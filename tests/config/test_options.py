from __future__ import annotations

import tomllib
from datetime import date
from typing import Any

import pytest

from codedfl.config import load_config, parse_config, parse_override, to_toml
from codedfl.errors import InputError


def test_bounds_and_categories_survive_toml() -> None:
    given = {
        "bounds": {"age": [0, 120], "admitted": [date(2020, 1, 1), "2024-12-31"], 'odd "name".x': [-1.5, 2]},
        "categories": {"ward": ["surgery", 2], "zip": []},
    }
    config = load_config(overrides={"data": given})
    assert config.data.bounds["age"] == (0.0, 120.0)
    assert config.data.bounds["admitted"] == ("2020-01-01", "2024-12-31")
    assert config.data.categories == {"ward": ("surgery", "2"), "zip": ()}
    for comments in (True, False):
        assert parse_config(tomllib.loads(to_toml(config, comments=comments))) == config


def test_a_table_of_toml_gives_bounds() -> None:
    config = parse_config(tomllib.loads("[data.bounds]\nage = [0, 120]\nseen = [2020-01-01, 2024-12-31]\n"))
    assert config.data.bounds == {"age": (0.0, 120.0), "seen": ("2020-01-01", "2024-12-31")}


def test_each_column_may_be_set_by_itself() -> None:
    texts = ["data.bounds.age=[0, 120]", 'data.categories.ward=["a", "b"]', "data.bounds.dose.mg=[0, 5]"]
    data = load_config(overrides=[parse_override(text) for text in texts]).data
    assert data.bounds == {"age": (0.0, 120.0), "dose.mg": (0.0, 5.0)}
    assert data.categories == {"ward": ("a", "b")}


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("bounds.age", [120, 0], r"data\.bounds\.age = \[120, 0\] is not possible: give two numbers, or two dates"),
        ("bounds.age", [0], r"data\.bounds\.age = \[0\]"),
        ("bounds.age", [0, 1, 2], r"data\.bounds\.age"),
        ("bounds.age", 3, r"data\.bounds\.age = 3"),
        ("bounds.age", [False, True], r"data\.bounds\.age = \[false, true\]"),
        ("bounds.age", [0, float("inf")], r"data\.bounds\.age"),
        ("bounds.age", [0, "2020-01-01"], r"data\.bounds\.age"),
        ("bounds.age", ["2021-01-01", "2020-01-01"], r"data\.bounds\.age"),
        ("bounds.age", ["2020-01-01", "2020-01-01T00:00+00:00"], r"data\.bounds\.age"),
        ("bounds", 3, r"data\.bounds = 3 is not possible"),
        ("categories.ward", "ab", r"data\.categories\.ward = \"ab\" is not possible: give a list of different words"),
        ("categories.ward", ["a", "a"], r"data\.categories\.ward"),
        ("categories.ward", ["a", " "], r"data\.categories\.ward"),
        ("categories.ward", [1.5], r"data\.categories\.ward"),
        ("categories", [], r"data\.categories = \[\] is not possible"),
    ],
)
def test_what_cannot_be_is_refused(key: str, value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_config(overrides=[(f"data.{key}", value)])


def test_a_column_has_bounds_or_categories() -> None:
    with pytest.raises(InputError, match=r"the column 'a' is in data\.bounds and in data\.categories"):
        load_config(overrides={"data.bounds": {"a": [0, 1]}, "data.categories": {"a": ["x"]}})
