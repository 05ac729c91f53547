"""Which scheme reaches a common score first, on either clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from codedfl.experiment._evidence import Clock, Evidence
from codedfl.experiment._noise import difference_over_seeds
from codedfl.typing import FloatArray

WITHIN = 0.01
"""Distance to the centralised score that counts as having arrived: one point of accuracy, or 0.01 of R2."""

SHARE = 0.95
"""Share of the centralised score to look at if nothing comes closer."""


SHORTEST_S = 1e-3
"""Shorter times count as this in ratios."""


@dataclass(frozen=True)
class Goal:
    """A score to reach.

    Args:
        words: what it is, to follow "is first" in a sentence.
        scores: the score under each seed.
    """

    words: str
    scores: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Race:
    """The schemes that reached a goal under every seed and held it, on one clock.

    Args:
        clock: the clock.
        times: seconds under each seed by scheme, the earliest mean first.
        steps: seconds between two evaluations at that time, by scheme: what a time cannot be told more exactly than.
    """

    clock: Clock
    times: Mapping[str, FloatArray]
    steps: Mapping[str, float]

    @property
    def seconds(self) -> dict[str, float]:
        """Mean time by scheme, the earliest first."""
        return {name: float(times.mean()) for name, times in self.times.items()}

    @property
    def first(self) -> tuple[str, ...]:
        """The earliest scheme, and those that cannot be told from it."""
        names = list(self.times)
        return tuple(name for name in names if not self.sooner(names[0], name))

    def sooner(self, one: str, other: str) -> bool:
        """Whether a scheme was sooner than another: by more than the curves resolve and, over seeds, by more than noise.

        Times vary in proportion, so it is their ratios over which the interval is taken, with the resolution added to both.
        """
        if one == other or one not in self.times or other not in self.times:
            return one != other and one in self.times
        step = max(self.steps[one], self.steps[other])
        if (self.times[other] - self.times[one]).mean() <= step:
            return False
        if self.times[one].size == 1:
            return True
        late, early = (np.log(np.maximum(self.times[name] + step, SHORTEST_S)) for name in (other, one))
        return difference_over_seeds(late, early).low > 0


def goal_of(evidence: Sequence[Evidence], names: Sequence[str]) -> Goal | None:
    """Return the most demanding goal that some scheme reached under every seed; None without one.

    One point below the centralised score, then 95% of it, then one point below the best of the schemes. A goal must be above
    the score of the constant answer, and above an R2 of zero, under every seed: arriving below that is no merit.
    """
    floors = [each.constant_score if each.task == "classification" else 0.0 for each in evidence]
    for goal in _goals(evidence, names):
        worth_it = all(score > floor for score, floor in zip(goal.scores, floors, strict=True))
        if worth_it and race(evidence, names, goal, "training").times:
            return goal
    return None


def race(evidence: Sequence[Evidence], names: Sequence[str], goal: Goal, clock: Clock) -> Race:
    """Return who reached a goal and held it, and when."""
    times: dict[str, FloatArray] = {}
    steps: dict[str, float] = {}
    for name in names:
        schemes = [next(scheme for scheme in each.schemes if scheme.name == name) for each in evidence]
        found = [scheme.reached(score, clock) for scheme, score in zip(schemes, goal.scores, strict=True)]
        reached = [each for each in found if each is not None]
        if len(reached) == len(evidence):
            times[name] = np.array([seconds for seconds, _ in reached])
            steps[name] = max(step for _, step in reached)
    ordered = sorted(times, key=lambda name: float(times[name].mean()))
    return Race(clock, {name: times[name] for name in ordered}, steps)


def _goals(evidence: Sequence[Evidence], names: Sequence[str]) -> Iterator[Goal]:
    accuracy = evidence[0].task == "classification"
    metric, close = ("accuracy", "1 point") if accuracy else ("R2", "0.01")

    def shown(scores: Sequence[float]) -> str:
        mean = float(np.mean(scores))
        return f"{mean:.1%}" if accuracy else f"{mean:.3f}"

    centralised = [each.centralised for each in evidence if each.centralised is not None]
    if len(centralised) == len(evidence):
        words = f"the centralised {metric} of {shown(centralised)}"
        yield Goal(f"within {close} of {words}", tuple(score - WITHIN for score in centralised))
        if min(centralised) > 0:
            yield Goal(f"at {SHARE:.0%} of {words}", tuple(SHARE * score for score in centralised))
    if names:
        ends = [[s.score for s in each.schemes if s.name in names] for each in evidence]
        best = [max(scores) for scores in ends]
        yield Goal(f"within {close} of the best {metric} of {shown(best)}", tuple(score - WITHIN for score in best))
