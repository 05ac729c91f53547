"""Configurations in TOML: read, merge with overrides, write with a comment for every field."""

from __future__ import annotations

import difflib
import inspect
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from codedfl.errors import InputError
from codedfl.experiment.config import Config
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
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror}): give the path of a TOML file.") from error
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
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
        raise InputError(_sentence(error)) from error


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
    except tomllib.TOMLDecodeError:
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
    for name, builder in SCHEMES.items():
        given = config.options.get(name, {})
        defaults = {key: item.default for key, item in inspect.signature(builder).parameters.items()}
        if given or (comments and defaults):
            lines += ["", f"[options.{name}]"]
            lines += [
                f"{key} = {json.dumps(value)}" for key, value in (defaults | given if comments else given).items()
            ]
    return "\n".join(lines) + "\n"


def _write_fields(section: BaseModel, names: list[str], lines: list[str], comments: bool) -> None:
    plain = section.model_dump(mode="json", include=set(names))
    for name in names:
        if comments:
            lines.append(f"# {type(section).model_fields[name].description}")
        lines.append(f"{name} = {json.dumps(plain[name], ensure_ascii=False)}")


def _assign(values: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    for parent in parents:
        values = values.setdefault(parent, {})
        if not isinstance(values, dict):
            raise InputError(f"{key}: {parent} is a value, not a section; `codedfl config` lists all keys.")
    values[last] = value


def _sentence(error: ValidationError) -> str:
    """Turn the first of pydantic's errors into one sentence that names the field, the value and the fix."""
    problems = error.errors()
    first = problems[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, Exception):  # raised by a check of our own
        text = str(cause)
    elif first["type"] == "extra_forbidden":
        text = _unknown_key([str(part) for part in first["loc"]])
    else:
        field = ".".join(str(part) for part in first["loc"] if str(part) in _field_names())
        text = f"{field} = {_shown(first['input'])} is not possible: {_allowed(problems)}."
    return text


def _allowed(problems: Sequence[Mapping[str, Any]]) -> str:
    """Join what each alternative of the first field asks for."""
    field = problems[0]["loc"][:2]
    wanted = [
        str(item["msg"]).replace("Input should be", "it must be") for item in problems if item["loc"][:2] == field
    ]
    return ", or ".join(dict.fromkeys(wanted)).replace(", or it must be", ", or")


def _shown(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _field_names() -> set[str]:
    names = set(Config.model_fields)
    for name in Config.model_fields:
        section = Config.model_fields[name].default
        if isinstance(section, BaseModel):
            names |= set(type(section).model_fields)
    return names


def _unknown_key(location: list[str]) -> str:
    *parents, last = location
    section = Config.model_fields[parents[0]].default if parents else Config()
    siblings = list(type(section).model_fields)
    close = difflib.get_close_matches(last, siblings, n=1, cutoff=0.5)
    prefix = "".join(f"{parent}." for parent in parents)
    if close:
        return f"{prefix}{last}: there is no such key, did you mean {prefix}{close[0]}?"
    return f"{prefix}{last}: there is no such key; `codedfl config` lists all of them."
