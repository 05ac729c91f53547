"""Configurations in TOML: read, merge with overrides, write with a comment for every field."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from codedfl._messages import shown_key
from codedfl.config._presets import preset_of
from codedfl.config._refusals import refusal
from codedfl.config._schema import Config
from codedfl.config._scheme_options import option_descriptions
from codedfl.errors import InputError

Overrides = Mapping[str, Any] | Sequence[tuple[str, Any]]
"""Values by ``section.key``: a mapping, or pairs of which later ones win."""


def load_config(path: str | Path | None = None, overrides: Overrides = ()) -> Config:
    """Read a configuration from defaults, the dataset's preset (see `preset_of`), the file and overrides; later ones win.

    Args:
        path: a TOML file; None for the defaults.
        overrides: values by ``section.key``, as a mapping or as pairs.

    Raises:
        InputError: for a file that cannot be read, an unknown key or a value out of range.

    Example:
        >>> load_config(overrides={"coding.noise_variance": 0.5}).coding.noise_variance
        0.5
        >>> load_config(overrides={"data.dataset": "mnist", "training.deadline_s": 5}).features.dimension
        2000
        >>> load_config(overrides={"coding.code_samples": 0.5})
        Traceback (most recent call last):
        codedfl.errors.InputError: coding.code_samples: there is no such key, did you mean coding.coded_samples?
    """
    return load_with_preset(path, overrides)[0]


def load_with_preset(path: str | Path | None = None, overrides: Overrides = ()) -> tuple[Config, dict[str, Any]]:
    """Read a configuration as `load_config` does, and say which values came from the preset of its dataset.

    Returns:
        The configuration, and by ``section.key`` those values of the preset that neither the file nor an override sets.
    """
    values = _read(Path(path)) if path is not None else {}
    for key, value in overrides.items() if isinstance(overrides, Mapping) else overrides:
        _assign(values, key, value)
    data = values.get("data")
    dataset = data.get("dataset") if isinstance(data, dict) else None
    preset = preset_of(dataset) if isinstance(dataset, str) else {}
    taken = {key: value for key, value in preset.items() if _is_open(values, key)}
    for key, value in taken.items():
        _assign(values, key, value)
    return parse_config(values), taken


def _read(path: Path) -> dict[str, Any]:
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
        raise InputError(f"{shown_key(text)} must look like section.key=value.")
    try:
        parsed = tomllib.loads(f"value = {value}")
    except (ValueError, RecursionError):
        parsed = {"value": value}
    return key.strip(), parsed["value"] if len(parsed) == 1 else value


def to_toml(config: Config, *, comments: bool = True) -> str:
    """Write a configuration as TOML, with one line of explanation before every field if ``comments`` is set."""
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
        descriptions = option_descriptions(scheme)
        for name, value in options.items():
            if comments:
                lines.append(f"# {descriptions[name]}")
            lines.append(f"{name} = {_toml(value)}")
    return "\n".join(lines) + "\n"


def _write_fields(section: BaseModel, names: list[str], lines: list[str], comments: bool) -> None:
    plain = section.model_dump(mode="json", include=set(names))
    for name in names:
        if comments:
            lines.append(f"# {type(section).model_fields[name].description}")
        lines.append(f"{name} = {_toml(plain[name])}")


def _toml(value: object) -> str:
    """Write a value as JSON, which is TOML except for one character that TOML wants escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _is_open(values: Mapping[str, Any], key: str) -> bool:
    """Whether a field can be set: nothing has set it, and its section, if given, is one."""
    section, field = key.split(".")
    given = values.get(section, {})
    return isinstance(given, dict) and field not in given


def _assign(values: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    for parent in parents:
        values = values.setdefault(parent, {})
        if not isinstance(values, dict):
            raise InputError(
                f"{shown_key(key)}: {shown_key(parent)} is a value, not a section; `codedfl config` lists all keys."
            )
    values[last] = deepcopy(value)  # later assignments below it must not change the caller's value
