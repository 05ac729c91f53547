"""What a page shows of a run, wherever it came from, and the files it is read from.

Files may be of an earlier version, incomplete or still changing.
"""

from __future__ import annotations

import csv
import io
import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from codedfl._messages import shown
from codedfl.errors import InputError
from codedfl.results import SCORE, TO_95, TO_95_CHARGED, ResultTable, keeping

State = Literal["completed", "interrupted", "going", "waiting", "silent"]

STATES: dict[State, str] = {
    "completed": "completed",
    "interrupted": "interrupted",
    "going": "in progress",
    "waiting": "not begun",
    "silent": "unfinished",
}


SHARE = 95
"""Percentage of the centralised score for which times are shown."""


@dataclass(frozen=True)
class Curve:
    """The learning curve of a scheme.

    Args:
        scheme: its name.
        title: its name for people.
        round: rounds completed at each evaluation.
        training_s: seconds on the training clock.
        everything_s: seconds with everything charged.
        score: accuracy or R2, None where it is not known.
    """

    scheme: str
    title: str
    round: Sequence[float]
    training_s: Sequence[float]
    everything_s: Sequence[float]
    score: Sequence[float | None]

    def time_to(self, target: float | None, clock: Sequence[float]) -> float | None:
        """Return the time of the first evaluation at or above a score; None if there is none."""
        if target is None:
            return None
        reached = (s for s, value in zip(clock, self.score, strict=True) if value is not None and value >= target)
        return next(reached, None)


@dataclass(frozen=True)
class Record:
    """A run, completed or not.

    Args:
        name: its name among the runs of a page.
        path: its folder.
        kind: a simulated run, or a real federation.
        state: how it stands.
        told: the same in a sentence.
        title: what was run.
        metric: ``accuracy`` or ``r2``.
        reference: score of the centralised optimum, if known.
        curves: the learning curves.
        schemes: results and costs of each scheme, as in ``summary.json``; fewer while a run goes on.
        devices: what is known about each device.
        verdict: sentences about the outcome.
        notes: what to know before trusting it.
        facts: sizes and other facts by name.
        details: content of ``details.json``.
        config: the configuration, by ``section.key``.
        environment: versions of Python and the libraries.
    """

    name: str
    path: Path
    kind: Literal["run", "federation"]
    state: State
    told: str
    title: str
    metric: str
    reference: float | None
    curves: tuple[Curve, ...]
    schemes: Sequence[Mapping[str, Any]]
    devices: Sequence[Mapping[str, Any]]
    verdict: Sequence[str] = ()
    notes: Sequence[str] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)

    @property
    def private(self) -> bool:
        """Whether the run had an epsilon to keep."""
        return self._target > 0

    @property
    def _target(self) -> float:
        """The epsilon to keep; 0 for none."""
        epsilon = self.config.get("privacy.epsilon")
        return float(epsilon) if isinstance(epsilon, int | float) else 0.0

    @cached_property
    def results(self) -> ResultTable:
        """The results of the schemes, with times to a share of the centralised score as the curves tell them."""
        curves = {curve.scheme: curve for curve in self.curves}
        goal = SHARE / 100 * self.reference if self.reference is not None and self.reference > 0 else None

        def times(curve: Curve | None) -> dict[str, float | None]:
            return {
                TO_95.name: curve.time_to(goal, curve.training_s) if curve else None,
                TO_95_CHARGED.name: curve.time_to(goal, curve.everything_s) if curve else None,
            }

        rows = [{**scheme, **times(curves.get(scheme["scheme"]))} for scheme in self.schemes]
        return ResultTable(rows, self.metric, self.reference, keeping(rows, self._target))

    def best_schemes(self) -> frozenset[str]:
        """Return the schemes to mark as the best."""
        return self.results.best(SCORE)

    @property
    def names(self) -> list[str]:
        """The names of the devices."""
        return [str(device["device"]) for device in self.devices]


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
