"""TOML of any configuration: reading a file, and writing fields with a comment for every one."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from codedfl.config._schema import Section
from codedfl.config._scheme_options import option_descriptions
from codedfl.errors import InputError


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        InputError: it cannot be read, or is not TOML.
    """
    path = Path(path)
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise InputError(f"{path} is not a regular file: give the path of a TOML file.")
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): give the path of a TOML file.") from error
    except (ValueError, RecursionError) as error:  # not UTF-8, not TOML, too many digits, too deep
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is not valid TOML ({error}): correct it there.") from error


def section_lines(config: Section, *, comments: bool = True) -> list[str]:
    """Write the plain fields of a configuration and then its sections, but no field that is a table of its own.

    Args:
        config: the configuration.
        comments: put one line of explanation before every field and every section.
    """
    values = {name: getattr(config, name) for name in type(config).model_fields}
    lines = _field_lines(config, [name for name in values if not isinstance(values[name], Section | dict)], comments)
    for name, section in values.items():
        if isinstance(section, Section):
            lines.append("")
            if comments:
                lines.append(f"# {(type(section).__doc__ or '').splitlines()[0]}")
            lines += [f"[{name}]", *_field_lines(section, type(section).model_fields, comments)]
    return lines


def option_lines(table: str, scheme: str, options: Mapping[str, Any], *, comments: bool = True) -> list[str]:
    """Write the options of a scheme as a table of the given name."""
    lines = ["", f"[{table}]"]
    descriptions = option_descriptions(scheme)
    for name, value in options.items():
        if comments:
            lines.append(f"# {descriptions[name]}")
        lines.append(f"{name} = {_toml(value)}")
    return lines


def _field_lines(section: Section, names: Iterable[str], comments: bool) -> list[str]:
    names, lines = list(names), []
    plain = section.model_dump(mode="json", include=set(names))
    for name in names:
        if comments:
            lines.append(f"# {type(section).model_fields[name].description}")
        lines.append(f"# {name} =" if plain[name] is None else f"{name} = {_toml(plain[name])}")
    return lines


def _toml(value: object) -> str:
    """Write a value as JSON, which is TOML except for objects, and for one character that TOML wants escaped."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml(str(key))} = {_toml(item)}" for key, item in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
