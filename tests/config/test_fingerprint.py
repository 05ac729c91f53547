from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from codedfl.config import Config, fingerprint, parse_config
from codedfl.config._schema import Section
from codedfl.errors import InputError

ENTER_NO_RESULT = {"data.data_dir", "training.workers"}


def fields_of(section: Section, prefix: str = "") -> Iterator[str]:
    """Yield every field of the schema, and every option of every scheme."""
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, Section):
            yield from fields_of(value, f"{name}.")
        elif name == "options":
            yield from (f"options.{scheme}.{option}" for scheme, own in value.items() for option in own)
        else:
            yield f"{prefix}{name}"


def choices(schema: Any) -> Iterator[Any]:
    """Yield all values that a JSON schema lists."""
    if isinstance(schema, dict):
        yield from schema.get("enum", [])
        if "const" in schema:
            yield schema["const"]
        for item in schema.values():
            yield from choices(item)
    if isinstance(schema, list):
        for item in schema:
            yield from choices(item)


def changed(key: str) -> Config:
    """Return the defaults with another value for one field."""
    words = [*choices(Config.model_json_schema()), "free"]
    for value in (3, 0.75, "x", True, ["x"], ["scfl"], [0.5, 0.75], *words):
        inner: Any = value
        for part in reversed(key.split(".")):
            inner = {part: inner}
        try:
            config = parse_config(inner)
        except InputError:
            continue
        if config != Config():
            return config
    raise AssertionError(f"no other value of {key} was found")


@pytest.mark.parametrize("key", list(fields_of(Config())))
def test_every_field_enters_the_fingerprint_unless_the_schema_says_otherwise(key: str) -> None:
    assert (fingerprint(changed(key)) == fingerprint(Config())) is (key in ENTER_NO_RESULT)


def test_equal_configurations_have_equal_fingerprints() -> None:
    assert fingerprint(parse_config({"seed": 3})) == fingerprint(Config(seed=3))
    assert fingerprint(parse_config({"coding": {"noise_variance": 1}})) == fingerprint(
        parse_config({"coding": {"noise_variance": 1.0}})
    )
