"""The two configuration files of a federation, read and written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from codedfl._messages import shown
from codedfl.config import Section, option_lines, parse_section, read_toml, section_lines
from codedfl.errors import InputError
from codedfl.federation._client_config import ClientConfig
from codedfl.federation._federation_config import FederationConfig

_SectionT = TypeVar("_SectionT", bound=Section)


def read_federation(path: str | Path) -> FederationConfig:
    """Read ``federation.toml``.

    Raises:
        InputError: naming the file and the first key that is wrong, its value and what is allowed.
    """
    return _read(FederationConfig, path)


def read_client(path: str | Path) -> ClientConfig:
    """Read ``client.toml``.

    Raises:
        InputError: naming the file and the first key that is wrong, its value and what is allowed.
    """
    return _read(ClientConfig, path)


def parse_federation(values: Mapping[str, Any]) -> FederationConfig:
    """Validate the nested values of a federation.

    Raises:
        InputError: naming the first key that is wrong, its value and what is allowed.

    Example:
        >>> parse_federation({"devices": ["a"], "training": {"rounds": 0}, "data": {
        ...     "columns": ["x"], "target": ["y"], "task": "regression"}})
        Traceback (most recent call last):
        codedfl.errors.InputError: training.rounds = 0 is not possible: it must be an integer (1 or more, at most 1000000000).
    """
    return parse_section(FederationConfig, values)


def parse_client(values: Mapping[str, Any]) -> ClientConfig:
    """Validate the nested values of a device.

    Raises:
        InputError: naming the first key that is wrong, its value and what is allowed.
    """
    return parse_section(ClientConfig, values)


def federation_toml(config: FederationConfig) -> str:
    """Write a federation as TOML, with one line of explanation before every field."""
    return _to_toml(config, option_lines("options", config.scheme, config.options) if config.options else [])


def client_toml(config: ClientConfig) -> str:
    """Write the configuration of a device as TOML, with one line of explanation before every field."""
    return _to_toml(config)


def _read(kind: type[_SectionT], path: str | Path) -> _SectionT:
    values = read_toml(path)
    try:
        return parse_section(kind, values)
    except InputError as error:
        raise InputError(f"{shown(Path(path))}: {error}") from error


def _to_toml(config: Section, more: Sequence[str] = ()) -> str:
    summary = (type(config).__doc__ or "").splitlines()[0]
    return "\n".join([f"# {summary}", "", *section_lines(config), *more]) + "\n"
