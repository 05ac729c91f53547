"""Refusals of a configuration: one sentence that names the field, the value and what is allowed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from codedfl._messages import listing, no_such_key, shown_json, shown_key
from codedfl.config._schema import Section
from codedfl.errors import InputError


def refusal(kind: type[Section], problems: Sequence[Mapping[str, Any]], help_with_keys: str = "") -> str:
    """Turn the first of pydantic's errors into one sentence that names the field, the value and what is allowed.

    Args:
        kind: the whole configuration, to which the locations of the errors refer.
        problems: pydantic's errors.
        help_with_keys: where to look if no known key resembles an unknown one; empty to list the known ones.
    """
    first = problems[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, InputError):  # raised by one of our own checks, already a full sentence
        return str(cause)
    section, path = _field_at(kind, first["loc"])
    if first["type"] == "extra_forbidden":
        prefix, known = "".join(f"{part}." for part in path), section.model_fields
        return no_such_key(prefix, str(first["loc"][-1]), known, help_with_keys or f"the keys are {listing(known, 30)}")
    name = ".".join(map(shown_key, path))
    if first["type"] == "missing" and path[-1] == first["loc"][-1]:  # not an item of a list
        field = section.model_fields.get(path[-1])
        return (
            f"{name} is missing: give it ({field.description})."
            if field
            else f"the section [{name}] is missing: write it."
        )
    # If a field has alternatives, the error about a list item says which item is wrong.
    in_lists = (item for item in problems if _field_at(kind, item["loc"])[1] == path and _is_item(item))
    closest = next(in_lists, first)
    index = f"[{closest['loc'][-1]}]" if _is_item(closest) else ""
    wanted = cause or f"it must be {_allowed(section, path[-1], of_item=bool(index))}"
    return f"{name}{index} = {shown_json(closest['input'])} is not possible: {wanted}."


def _is_item(problem: Mapping[str, Any]) -> bool:
    return isinstance(problem["loc"][-1], int) and problem["type"] != "missing"


def _field_at(kind: type[Section], location: Sequence[str | int]) -> tuple[type[Section], list[str]]:
    """Return the section of a field and its full name, without pydantic's additions for alternatives and items.

    That of a section is the section itself.
    """
    section = kind
    path: list[str] = []
    for part in location:
        if part not in section.model_fields:
            break
        path.append(str(part))
        annotation = section.model_fields[str(part)].annotation
        section = annotation if isinstance(annotation, type) and issubclass(annotation, Section) else section
    return section, [str(part) for part in location] if path == ["options"] else path


def _allowed(section: type[Section], field: str, of_item: bool) -> str:
    schema = section.model_json_schema()["properties"].get(field, {})
    if not {"type", "anyOf", "enum"} & set(schema) or schema.get("type") == "object":
        return "a section with keys and values"
    if of_item:
        schema = next(option for option in schema.get("anyOf", [schema]) if option.get("type") == "array")
        schema = schema.get("items") or schema["prefixItems"][0]
    return _described(schema)


def _described(schema: Mapping[str, Any], plural: bool = False) -> str:
    """Describe in words what a JSON schema allows."""
    kind = schema.get("type")
    if "anyOf" in schema:
        # A value that may be left out is null in the schema, but TOML has no null.
        return " or ".join(_described(option) for option in schema["anyOf"] if option.get("type") != "null")
    if "enum" in schema or "const" in schema:
        *most, last = (json.dumps(value) for value in schema.get("enum", [schema.get("const")]))
        return f"{', '.join(most)} or {last}" if most else last
    if kind == "array":
        items = schema.get("prefixItems")
        if items:
            return f"a list of {len(items)} {_described(items[0], plural=True)}"
        return f"a {'non-empty ' * ('minItems' in schema)}list of {_described(schema['items'], plural=True)}"
    words = {"number": "a finite number", "integer": "an integer", "string": "a string", "boolean": "true or false"}
    word = "a non-empty string" if "minLength" in schema else words[str(kind)]
    return (f"{word.split(' ', 1)[1]}s" if plural else word) + _bounds(schema)


def _bounds(schema: Mapping[str, Any]) -> str:
    wording = {
        "exclusiveMinimum": "above {:g}",
        "minimum": "{} or more",
        "exclusiveMaximum": "below {:g}",
        "maximum": "at most {}",
        "maxLength": "at most {} characters",
    }
    bounds = ", ".join(text.format(schema[name]) for name, text in wording.items() if name in schema)
    return f" ({bounds})" if bounds else ""
