"""What a page shows of a run, wherever it came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from codedfl.privacy import keeps
from codedfl.results import best_schemes

State = Literal["completed", "interrupted", "going", "waiting", "silent"]

STATES: dict[State, str] = {
    "completed": "completed",
    "interrupted": "interrupted",
    "going": "in progress",
    "waiting": "not begun",
    "silent": "unfinished",
}


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

    def best_schemes(self) -> frozenset[str]:
        """Return the schemes to mark as the best."""
        scores = {str(scheme["scheme"]): scheme.get(self.metric) for scheme in self.schemes}
        private = {str(scheme["scheme"]) for scheme in self.schemes if keeps(scheme.get("privacy") or {}, self._target)}
        numbers = {name: score if isinstance(score, int | float) else None for name, score in scores.items()}
        return best_schemes(numbers, private if self.private else None)

    @property
    def names(self) -> list[str]:
        """The names of the devices."""
        return [str(device["device"]) for device in self.devices]
