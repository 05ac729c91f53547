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

from codedfl._messages import shown_key
from codedfl.config._refusals import refusal
from codedfl.config._schema import Config
from codedfl.errors import InputError
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
        >>> load_config(overrides=[("coding.code_samples", 0.5)])
        Traceback (most recent call last):
        codedfl.errors.InputError: coding.code_samples: there is no such key, did you mean coding.coded_samples?
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
        raise InputError(refusal(error.errors())) from error


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
