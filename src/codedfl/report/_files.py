"""Files of a run folder, which may be of an earlier version, incomplete or still changing."""

from __future__ import annotations

import csv
import io
import json
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from codedfl._messages import shown
from codedfl.errors import InputError


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file, or an empty one if there is no such file.

    Raises:
        InputError: the file is damaged.
    """
    content = _content(path)
    if content is None:
        return {}
    try:
        found = json.loads(content)
        if not isinstance(found, dict):
            raise ValueError("it is not a JSON object")
    except (ValueError, RecursionError) as error:
        raise _damaged(path, error) from error
    return found


def read_toml(path: Path) -> dict[str, Any]:
    """Return a TOML file as one level of ``section.key``, or nothing if there is no such file.

    Raises:
        InputError: the file is damaged.
    """
    content = _content(path)
    try:
        return {} if content is None else _flat(tomllib.loads(content))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise _damaged(path, error) from error


def read_columns(path: Path, columns: tuple[str, ...]) -> dict[str, list[str]] | None:
    """Return columns of a CSV file as text; None if there is no such file.

    Raises:
        InputError: the file lacks one of them.
    """
    content = _content(path)
    if content is None:
        return None
    rows = csv.DictReader(io.StringIO(content))
    missing = [name for name in columns if name not in (rows.fieldnames or ())]
    if missing:
        raise _damaged(path, ValueError(f"it has no column {missing[0]}"))
    found: dict[str, list[str]] = {name: [] for name in columns}
    for row in rows:
        for name in columns:
            found[name].append(row[name] or "")
    return found


def numbers(path: Path, texts: list[str]) -> list[float]:
    """Return a column as numbers.

    Raises:
        InputError: one of them is none.
    """
    try:
        return [float(each) for each in texts]
    except ValueError as error:
        raise _damaged(path, error) from error


def scores(path: Path, texts: list[str]) -> list[float | None]:
    """Return a column of scores, of which some may be unknown or beyond all bounds."""
    values = numbers(path, [each or "nan" for each in texts])
    return [value if math.isfinite(value) else None for value in values]


def read_events(path: Path) -> list[dict[str, Any]]:
    """Return the events of a journal in order, without lines that a crash cut off."""
    events = []
    for line in (_content(path) or "").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            events.append(event)
    return events


def last_change(path: Path) -> float:
    """Return when a file last changed, in seconds; minus infinity if there is none."""
    try:
        return path.stat().st_mtime
    except OSError:
        return -math.inf


def _content(path: Path) -> str | None:
    if not path.is_file():
        return None
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> InputError:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(". ")[:120]
    return InputError(f"{shown(path)} cannot be read ({reason}): restore it, or run again.")


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict) and value:
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
