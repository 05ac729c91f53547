"""Configurations in TOML: read, merge with overrides, write with a comment for every field."""

from __future__ import annotations

import inspect
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from codedfl.errors import InputError
from codedfl.experiment.config import Config, Section, no_such_key, shown_key
from codedfl.schemes import SCHEMES


def load_config(path: Path | None = None, overrides: Sequence[tuple[str, Any]] = ()) -> Config:
    """Read a configuration.

    Args:
        path: a TOML file; None for the defaults.
        overrides: (``section.key``, value) pairs that take precedence, in their order.

    Raises:
        InputError: for a file that cannot be read, an unknown key or a value out of range.

    Example:
        >>> load_config(overrides=[("coding.noise_variance", 0.5)]).coding.noise_variance
        0.5
        >>> load_config(overrides=[("coding.noise", 0.5)])
        Traceback (most recent call last):
        codedfl.errors.InputError: coding.noise: there is no such key, did you mean coding.noise_variance?
    """
    values: dict[str, Any] = {}
    if path is not None:
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror}): give the path of a TOML file.") from error
        except (ValueError, RecursionError) as error:  # not UTF-8, not TOML, too many digits, too deep
            raise InputError(f"{path} is not valid TOML ({error}): correct it there.") from error
    for key, value in overrides:
        _assign(values, key, value)
    return parse_config(values)


def parse_config(values: Mapping[str, Any]) -> Config:
    """Validate a nested mapping of values.

    Raises:
        InputError: naming the first field that is wrong, its value and what is allowed.
    """
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise InputError(_sentence(error.errors())) from error


def parse_override(text: str) -> tuple[str, Any]:
    """Split ``section.key=value``; the value is read as TOML, or as a plain string if it is not.

    Example:
        >>> parse_override("training.local_steps=3"), parse_override("data.dataset=mnist")
        (('training.local_steps', 3), ('data.dataset', 'mnist'))
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InputError(f"--set {text!r} must look like section.key=value.")
    try:
        parsed = tomllib.loads(f"value = {value}")
    except (ValueError, RecursionError):
        parsed = {"value": value}
    return key.strip(), parsed["value"] if len(parsed) == 1 else value


def to_toml(config: Config, *, comments: bool = True) -> str:
    """Write a configuration as TOML, with one line of explanation before every field unless told otherwise."""
    lines: list[str] = []
    sections = {name for name in Config.model_fields if isinstance(getattr(config, name), BaseModel)}
    _write_fields(config, [name for name in Config.model_fields if name not in (*sections, "options")], lines, comments)
    for name in Config.model_fields:
        if name in sections:
            section = getattr(config, name)
            lines.append("")
            if comments:
                lines.append(f"# {(type(section).__doc__ or '').strip()}")
            lines.append(f"[{name}]")
            _write_fields(section, list(type(section).model_fields), lines, comments)
    for scheme, options in config.options.items():
        lines += ["", f"[options.{scheme}]"]
        for name, value in options.items():
            if comments:
                lines.append(f"# {_option_help(scheme)[name]}")
            lines.append(f"{name} = {_toml(value)}")
    return "\n".join(lines) + "\n"


def _write_fields(section: BaseModel, names: list[str], lines: list[str], comments: bool) -> None:
    plain = section.model_dump(mode="json", include=set(names))
    for name in names:
        if comments:
            lines.append(f"# {type(section).model_fields[name].description}")
        lines.append(f"{name} = {_toml(plain[name])}")


def _toml(value: object) -> str:
    """Write a value; JSON is TOML but for one character that TOML wants escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _option_help(scheme: str) -> dict[str, str]:
    """Read what the options of a scheme mean off the docstring of its builder, or of another one with an option of that name."""
    found: dict[str, str] = {}
    for builder in (*SCHEMES.values(), SCHEMES[scheme]):
        _, _, after = inspect.getdoc(builder).partition("\nArgs:\n")  # type: ignore[union-attr]
        arguments = after.partition("\n\n")[0]
        for name, text in re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", arguments, re.MULTILINE):
            found[name] = " ".join(text.replace("``", "").rstrip(".").split())
    return found


def _assign(values: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    for parent in parents:
        values = values.setdefault(parent, {})
        if not isinstance(values, dict):
            raise InputError(
                f"{shown_key(key)}: {shown_key(parent)} is a value, not a section; `codedfl config` lists all keys."
            )
    values[last] = value


def _sentence(problems: Sequence[Mapping[str, Any]]) -> str:
    """Turn the first of pydantic's errors into one sentence that names the field, the value and what is allowed."""
    first = problems[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, InputError):  # raised by a check of our own, complete
        return str(cause)
    section, path = _field_at(first["loc"])
    if first["type"] == "extra_forbidden":
        return no_such_key("".join(f"{part}." for part in path), str(first["loc"][-1]), section.model_fields)
    # Of the alternatives that a field has, the one that looked into a list knows which item is wrong.
    in_lists = (item for item in problems if _field_at(item["loc"])[1] == path and _is_item(item))
    closest = next(in_lists, first)
    index = f"[{closest['loc'][-1]}]" if _is_item(closest) else ""
    wanted = cause or f"it must be {_allowed(section, path[-1], of_item=bool(index))}"
    return f"{'.'.join(map(shown_key, path))}{index} = {_shown(closest['input'])} is not possible: {wanted}."


def _is_item(problem: Mapping[str, Any]) -> bool:
    return isinstance(problem["loc"][-1], int) and problem["type"] != "missing"


def _field_at(location: Sequence[str | int]) -> tuple[type[Section], list[str]]:
    """Return the section that a field is in and its full name, without what pydantic adds for alternatives and items."""
    section: type[Section] = Config
    path: list[str] = []
    for part in location:
        if part not in section.model_fields:
            break
        path.append(str(part))
        default = section.model_fields[str(part)].default
        section = type(default) if isinstance(default, Section) else section
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
    """Say in words what a JSON schema allows."""
    kind = schema.get("type")
    if "anyOf" in schema:
        return " or ".join(_described(option) for option in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        *most, last = (json.dumps(value) for value in schema.get("enum", [schema.get("const")]))
        return f"{', '.join(most)} or {last}" if most else last
    if kind == "array":
        items = schema.get("prefixItems")
        if items:
            return f"a list of {len(items)} {_described(items[0], plural=True)}"
        return f"a {'non-empty ' * ('minItems' in schema)}list of {_described(schema['items'], plural=True)}"
    words = {"number": "a finite number", "integer": "an integer", "string": "a string", "boolean": "true or false"}
    word = words[str(kind)]
    return (f"{word.split(' ', 1)[1]}s" if plural else word) + _bounds(schema)


def _bounds(schema: Mapping[str, Any]) -> str:
    wording = {
        "exclusiveMinimum": "above {:g}",
        "minimum": "{} or more",
        "exclusiveMaximum": "below {:g}",
        "maximum": "at most {}",
    }
    bounds = ", ".join(text.format(schema[name]) for name, text in wording.items() if name in schema)
    return f" ({bounds})" if bounds else ""


def _shown(value: object) -> str:
    try:
        text = json.dumps(value, default=str)
    except (TypeError, ValueError, RecursionError):  # odd keys, thousands of digits, nested without end
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."
