"""Configurations in TOML: read, merge with presets and overrides, validate, and write with a comment for every field."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path, PurePath
from typing import Any, TypeVar

from pydantic import ValidationError

from codedfl._messages import shown, shown_key
from codedfl.config._options import option_descriptions
from codedfl.config._refusals import refusal
from codedfl.config._schema import Config, Section
from codedfl.errors import InputError

SectionT = TypeVar("SectionT", bound=Section)

Overrides = Mapping[str, Any] | Sequence[tuple[str, Any]]
"""Values by ``section.key``, or nested by section: a mapping, or pairs of which later ones win."""

_PAPER: Mapping[str, Any] = {
    "fleet.transmit_power_dbm": (15.0, 25.0),
    "fleet.straggler_ratio": 0.0,
    "coding.coded_samples": 10_000,
    "coding.noise_variance": 0.25,
    "training.total_time_s": 20_000.0,
    "learning_rate.grid": (0.125, 0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0),
    "learning_rate.tuning_share": 0.1,
}
"""Fleet, code and clock of Sec. VI-A, with a grid of step sizes fine enough for it."""

_IMAGES: Mapping[str, Any] = {
    "features.dimension": 2000,
    "features.gamma": 0.02,
    "training.deadline_s": 10.0,
    **_PAPER,
}

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "mnist": _IMAGES,
    "fashion-mnist": _IMAGES,
    "cifar10-vgg": {"training.deadline_s": 15.0, **_PAPER},
}
"""Values that a named dataset sets, overridden by the user's file and options."""


def load_config(path: str | Path | None = None, overrides: Overrides = ()) -> Config:
    """Read a configuration from defaults, the dataset's preset (see `preset_of`), the file and overrides; later ones win.

    Args:
        path: a TOML file; None for the defaults.
        overrides: values by ``section.key``, or nested by section, as a mapping or as pairs.

    Raises:
        InputError: for a file that cannot be read, an unknown key or a value out of range.

    Example:
        >>> load_config(overrides={"coding.noise_variance": 0.5}).coding.noise_variance
        0.5
        >>> load_config(overrides={"training": {"rounds": 5}, "data.devices": 7})
        Config(data=DataConfig(devices=7), training=TrainingConfig(rounds=5))
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
    if path is not None and not isinstance(path, str | os.PathLike):
        raise InputError(
            f"path = {shown(path)} is no path of a TOML file: give one, or values as load_config(overrides=...)."
        )
    pairs = _pairs(overrides)
    values = read_toml(path) if path is not None else {}
    for key, value in flatten(pairs):
        _assign(values, key, value)
    data = values.get("data")
    dataset = data.get("dataset") if isinstance(data, dict) else None
    preset = preset_of(dataset) if isinstance(dataset, str) else {}
    taken = {key: value for key, value in preset.items() if _is_open(values, key)}
    for key, value in taken.items():
        _assign(values, key, value)
    return parse_config(values), taken


def preset_of(dataset: str) -> Mapping[str, Any]:
    """Return the preset of a dataset, values by ``section.key``: the setting of Sec. VI-A; empty for other datasets.

    Example:
        >>> preset_of("mnist")["features.dimension"], preset_of("digits")
        (2000, {})
    """
    return PRESETS.get(dataset, {})


def parse_config(values: Mapping[str, Any]) -> Config:
    """Validate a nested mapping of values.

    Raises:
        InputError: naming the first field that is wrong, its value and what is allowed.
    """
    return parse_section(Config, values, help_with_keys="`codedfl config` lists all of them")


def parse_section(kind: type[SectionT], values: Mapping[str, Any], *, help_with_keys: str = "") -> SectionT:
    """Validate a nested mapping of values as a configuration of any kind.

    Args:
        kind: the configuration.
        values: its values, nested by section.
        help_with_keys: where to look if no known key resembles an unknown one; empty to list the known ones.

    Raises:
        InputError: naming the first field that is wrong, its value and what is allowed.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise InputError(refusal(kind, error.errors(), help_with_keys)) from error


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


def _pairs(overrides: Any) -> list[tuple[Any, Any]]:
    if isinstance(overrides, Mapping):
        return list(overrides.items())
    if isinstance(overrides, Iterable) and not isinstance(overrides, str | bytes):
        pairs = list(overrides)
        if all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
            return pairs
    raise InputError(
        f"overrides = {shown(overrides)} holds no values by key: give a dictionary such as {{'training.rounds': 20}}, or pairs."
    )


def flatten(pairs: Iterable[tuple[Any, Any]], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield values by ``section.key``, whether they are nested or not; paths become text."""
    for key, value in pairs:
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from flatten(value.items(), f"{name}.")
        else:
            yield name, str(value) if isinstance(value, PurePath) else value


def _is_open(values: Mapping[str, Any], key: str) -> bool:
    """Whether a preset may set a field: nothing else has set it, and its section, if there, is one."""
    section, field = key.split(".")
    fields = values.get(section, {})
    return isinstance(fields, dict) and field not in fields


def _assign(values: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".", 2)  # columns of tables, the third part of data.bounds, may have dots in their names
    for parent in parents:
        values = values.setdefault(parent, {})
        if not isinstance(values, dict):
            raise InputError(
                f"{shown_key(key)}: {shown_key(parent)} is a value, not a section; `codedfl config` lists all keys."
            )
    if isinstance(value, Mapping) and isinstance(values.get(last), dict):
        return  # an empty section changes nothing
    values[last] = deepcopy(value)  # later assignments below it must not change the caller's value


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
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): give the path of a TOML file.") from error
    except (ValueError, RecursionError) as error:  # not UTF-8, not TOML, too many digits, too deep
        raise InputError(f"{path} is not valid TOML ({error}): correct it there.") from error


def to_toml(config: Config, *, comments: bool = True) -> str:
    """Write a configuration as TOML, with one line of explanation before every field if ``comments`` is set."""
    lines = section_lines(config, comments=comments)
    for scheme, options in config.options.items():
        lines += option_lines(f"options.{scheme}", scheme, options, comments=comments)
    return "\n".join(lines) + "\n"


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
