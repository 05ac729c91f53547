"""Refusals and TOML of a configuration other than that of a comparison."""

from __future__ import annotations

import tomllib
from typing import Annotated, Any

import pytest
from pydantic import Field

from codedfl.config import Section, parse_section, section_lines
from tests.support import refusal_of

Word = Annotated[str, Field(min_length=1)]


class Engine(Section):
    """Only the first line

    is written.
    """

    power_w: float = Field(gt=0, description="power")
    torque_nm: float | None = Field(None, ge=0, description="torque, if it is known")


class Car(Section):
    """A car."""

    name: Word = Field(max_length=9, description="what it is called")
    doors: tuple[Word, ...] = Field((), description="its doors")
    engine: Engine
    extras: dict[str, Any] = Field({}, description="anything else")


GOOD = {"name": "Otto", "engine": {"power_w": 7.5}}


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"name": "Otto"}, "the section [engine] is missing: write it."),
        ({"name": "Otto", "engine": {}}, "engine.power_w is missing: give it (power)."),
        (GOOD | {"name": ""}, 'name = "" is not possible: it must be a non-empty string (at most 9 characters).'),
        (
            GOOD | {"doors": "left"},
            'doors = "left" is not possible: it must be a list of non-empty strings.',
        ),
        (GOOD | {"doors": ["left", ""]}, 'doors[1] = "" is not possible: it must be a non-empty string.'),
        (
            GOOD | {"engine": {"power_w": 1, "torque_nm": -1}},
            "engine.torque_nm = -1 is not possible: it must be a finite number (0 or more).",
        ),
        (GOOD | {"engine": 3}, "engine = 3 is not possible: it must be a section with keys and values."),
        (GOOD | {"nmae": 3}, "nmae: there is no such key, did you mean name?"),
        (GOOD | {"zzz": 3}, "zzz: there is no such key; the keys are name, doors, engine, extras."),
        (
            GOOD | {"engine": {"power_w": 1, "zzz": 3}},
            "engine.zzz: there is no such key; the keys are power_w, torque_nm.",
        ),
    ],
)
def test_any_configuration_is_refused_in_one_sentence(values: dict[str, Any], sentence: str) -> None:
    assert refusal_of(lambda: parse_section(Car, values)) == sentence


def test_help_with_unknown_keys_can_be_given() -> None:
    refused = refusal_of(lambda: parse_section(Car, GOOD | {"zzz": 3}, help_with_keys="ask Otto"))
    assert refused == "zzz: there is no such key; ask Otto."


def test_a_value_that_is_left_out_is_written_as_a_comment() -> None:
    car = parse_section(Car, GOOD | {"extras": {"radio": True}})
    lines = section_lines(car)
    assert lines == [
        "# what it is called",
        'name = "Otto"',
        "# its doors",
        "doors = []",
        "",
        "# Only the first line",
        "[engine]",
        "# power",
        "power_w = 7.5",
        "# torque, if it is known",
        "# torque_nm =",
    ]
    assert parse_section(Car, tomllib.loads("\n".join(lines))) == parse_section(Car, GOOD)
