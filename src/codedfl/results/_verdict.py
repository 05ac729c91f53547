"""The verdict on a comparison: which scheme is best, on which clock, by how much, and whether that is more than noise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from codedfl.errors import InputError
from codedfl.results._comparison import Comparison
from codedfl.results._evidence import (
    Clock,
    Difference,
    Differences,
    Evidence,
    SchemeEvidence,
    Source,
    difference_over_seeds,
    evidence_of,
    schemes_of,
)
from codedfl.results._words import in_words
from codedfl.schemes import YARDSTICK
from codedfl.training import Evaluation
from codedfl.typing import FloatArray

Coding = Literal["pays", "does not pay", "makes little difference"]

WORTH = 1.2
"""Ratio of times from which on one of two schemes is the better choice."""


@dataclass(frozen=True, eq=False)
class Verdict:
    """What a comparison says to somebody who has to choose.

    Args:
        evidence: the comparisons, one per seed.
        candidates: the schemes that count: those with a usable model under every seed, and with an epsilon to keep, those that
            keep it for everything that devices send; the best first.
        scores: their mean scores.
        lead: the best minus the next; None with fewer than two candidates.
        may_be_best: the candidates that noise does not rule out as the best. With a probability of 95%, the one with the best
            expected score is among them.
        noise: whether that counts the noise of the test rows, which one seed shows, or that of the seed.
        useful: the candidates that are better than a constant answer, see `codedfl.experiment.Evidence`, by more than noise.
            Without any, there is no race, and nothing is said about coding or FedAvg.
        cost: the centralised optimum minus the best; None if it is unknown.
        goal: a common score to reach, above that of the constant answer; None without one.
        training: who reached and held it from when on, on the training clock.
        everything: the same with everything charged.
        coding: whether coded schemes reach the goal sooner than others, everything charged; None if that was not compared.
        fedavg_suffices: whether nothing is better or sooner than FedAvg by more than noise; None without FedAvg, others or a
            goal.
        fell: schemes that peaked and fell clearly, under most seeds, with the trend of one run.
        rising: schemes that still improved clearly in the last quarter, under most seeds.
        heavy: schemes whose upload is larger than the data, with its bytes.
    """

    evidence: tuple[Evidence, ...]
    candidates: tuple[str, ...]
    scores: Mapping[str, float]
    lead: Difference | None
    may_be_best: tuple[str, ...]
    noise: Source
    useful: tuple[str, ...]
    cost: Difference | None
    goal: Goal | None
    training: Race | None
    everything: Race | None
    coding: Coding | None
    fedavg_suffices: bool | None
    fell: Mapping[str, Trend]
    rising: tuple[str, ...]
    heavy: Mapping[str, float]

    @property
    def best(self) -> str | None:
        """The candidate with the best score, by more than noise or not; None without candidates."""
        return self.candidates[0] if self.candidates else None

    @property
    def sentences(self) -> tuple[str, ...]:
        """The verdict in words, for readers who do not know the paper."""
        return in_words(self)

    def schemes(self, name: str) -> list[SchemeEvidence]:
        """Return what is known of a scheme under each seed."""
        return schemes_of(self.evidence, name)


def verdict(comparisons: Comparison | Evidence | Sequence[Comparison | Evidence]) -> Verdict:
    """Judge a comparison, or several of the same setting under different seeds.

    Args:
        comparisons: one comparison per seed, or what `codedfl.experiment.evidence_of` keeps of it.

    Raises:
        InputError: if there is none, or they differ in task, epsilon or schemes.

    Example:
        >>> from codedfl.experiment import run
        >>> given = {"schemes": ["fedavg", "scfl"], "training.rounds": 5, "learning_rate.scale": 0.5}
        >>> found = verdict(run(given))
        >>> found.noise, len(found.candidates), len(found.sentences) > 1
        ('rows', 2, True)
    """
    given = [comparisons] if isinstance(comparisons, Comparison | Evidence) else list(comparisons)
    evidence = tuple(each if isinstance(each, Evidence) else evidence_of(each) for each in given)
    _require_alike(evidence)
    names = _candidates(evidence)
    scores = {name: float(np.mean([s.score for s in schemes_of(evidence, name)])) for name in names}
    names.sort(key=lambda name: -scores[name])
    differences = Differences(evidence, names)
    likely = tuple(i for i in names if not any(differences.between(j, i).low > 0 for j in names if j != i))
    useful = tuple(name for name in names if differences.beats_constant(name))
    goal = goal_of(evidence, names) if useful else None
    training = race(evidence, names, goal, "training") if goal else None
    everything = race(evidence, names, goal, "everything") if goal else None
    test_rows = evidence[0].test_rows if evidence[0].task == "classification" else None
    trends = {
        s.name: [trend_of(each.curve, test_rows) for each in schemes_of(evidence, s.name)] for s in evidence[0].schemes
    }
    return Verdict(
        evidence=evidence,
        candidates=tuple(names),
        scores=scores,
        lead=differences.between(names[0], names[1]) if len(names) > 1 else None,
        may_be_best=likely,
        noise="rows" if len(evidence) == 1 else "seeds",
        useful=useful,
        cost=differences.below_centralised(names[0]) if names else None,
        goal=goal,
        training=training,
        everything=everything,
        coding=_coding(evidence, names, everything) if everything else None,
        fedavg_suffices=YARDSTICK in likely and YARDSTICK in everything.first
        if everything and YARDSTICK in names and len(names) > 1
        else None,
        fell={n: next(c for c in each if c and c.fell) for n, each in trends.items() if _mostly(each, "fell")},
        rising=tuple(name for name, each in trends.items() if name in names and _mostly(each, "rising")),
        heavy={
            scheme.name: scheme.upload_bytes
            for scheme in evidence[0].schemes
            if scheme.upload_bytes > evidence[0].data_bytes
        },
    )


def _candidates(evidence: Sequence[Evidence]) -> list[str]:
    """Return the schemes that count."""
    return [
        scheme.name
        for scheme in evidence[0].schemes
        if all(s.usable and s.private for s in schemes_of(evidence, scheme.name))
        and len(schemes_of(evidence, scheme.name)) == len(evidence)
    ]


def _coding(evidence: Sequence[Evidence], names: Sequence[str], everything: Race) -> Coding | None:
    """Say whether coding pays: which kind of scheme is first with everything charged, and whether by enough to matter."""
    coded = {name for name in names if schemes_of(evidence, name)[0].coded}
    if not coded or coded == set(names):
        return None
    with_code, without = (
        next((name for name in everything.times if (name in coded) is kind), None) for kind in (True, False)
    )
    if with_code is None or without is None:
        return "does not pay" if with_code is None else "pays"
    seconds = everything.seconds
    if everything.sooner(with_code, without) and seconds[without] >= WORTH * seconds[with_code]:
        return "pays"
    if everything.sooner(without, with_code) and seconds[with_code] >= WORTH * seconds[without]:
        return "does not pay"
    return "makes little difference"


def _mostly(trends: Sequence[Trend | None], what: str) -> bool:
    return sum(bool(getattr(trend, what, False)) for trend in trends) > len(trends) / 2


def _require_alike(evidence: Sequence[Evidence]) -> None:
    if not evidence:
        raise InputError("a verdict needs at least one comparison: give one.")
    for each in evidence[1:]:
        same = (each.task, each.epsilon, each.sums_only) == (
            evidence[0].task,
            evidence[0].epsilon,
            evidence[0].sums_only,
        )
        if not same:
            raise InputError(
                "a verdict over seeds needs comparisons that differ in nothing but the seed, but these differ in their task or"
                " their epsilon: judge them one by one."
            )


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


LEAST_EVALUATIONS = 20
"""Fewer evaluations do not tell a trend from jitter."""

LEAST_WIDTH = 4
"""Evaluations to average over, at least."""

LEAST_FALL = 0.01
"""A fall that is worth a word: one point of accuracy, or 0.01 of R2."""

LEAST_RISE = 0.005
"""The same for what the last quarter of a run added."""

ERRORS = 4.0
"""Standard errors that a change must exceed: the best tenth is chosen, so that chance has many tries."""

LEAST_ROWS = 9
"""Test rows whose class must have changed: k of them have a standard error of at least the root of k, and this is three."""


@dataclass(frozen=True)
class Trend:
    """How a run went.

    Args:
        peak: mean score of its best tenth.
        peak_s: simulated training time in the middle of that.
        end: mean score of its last tenth.
        fell: whether the end is clearly below the peak.
        rising: whether the last quarter of the run still improved it clearly.
    """

    peak: float
    peak_s: float
    end: float
    fell: bool
    rising: bool


def trend_of(curve: Sequence[Evaluation], test_rows: int | None = None) -> Trend | None:
    r"""Compare the last tenth of a learning curve with its best tenth, and with the tenth before the last quarter.

    Means over a tenth of the evaluations, and at least four, smooth the jitter from round to round. Its variance is half the
    mean square of successive differences in the second half of the run. A change counts if it is large enough to matter and
    exceeds four standard errors of the difference of two such means.

    All evaluations share their test rows, so averaging does not remove the noise of those. An accuracy that changes by k rows
    does so with a standard error of at least :math:`\sqrt k` rows, if no row changed the other way (McNemar). It must exceed
    three of those, which takes more than nine rows. R2 has no such bound, and a curve does not hold its rows.

    Args:
        curve: the evaluations of a run.
        test_rows: number of test rows behind an accuracy; None for R2.

    Returns:
        The trend; None if there are fewer than twenty evaluations with a score.

    Example:
        >>> def point(k, score):
        ...     return Evaluation(k, float(k), float(k), 0.0, 0.0, score, score, 0.0, 0.0, 0.0, 0.0)
        >>> found = trend_of([point(k, 0.9 - 0.001 * abs(k - 20)) for k in range(60)])
        >>> found.fell, found.peak_s, found.rising
        (True, 20.0, False)
    """
    points = [point for point in curve if math.isfinite(point.score)]
    if len(points) < LEAST_EVALUATIONS:
        return None
    scores = np.array([point.score for point in points])
    width = max(LEAST_WIDTH, len(scores) // 10)
    means = np.convolve(scores, np.ones(width) / width, mode="valid")
    successive = np.diff(scores[len(scores) // 2 :])
    jitter = ERRORS * math.sqrt(float(np.mean(successive**2)) / 2 * 2 / width)
    clear = max(jitter, LEAST_ROWS / test_rows) if test_rows else jitter
    best, end = int(means.argmax()), float(means[-1])
    fall, rise = float(means[best]) - end, end - float(means[3 * len(scores) // 4 - width])
    return Trend(
        peak=float(means[best]),
        peak_s=points[best + width // 2].simulated_time_s,
        end=end,
        fell=fall >= LEAST_FALL and fall > clear,
        rising=rise >= LEAST_RISE and rise > clear,
    )
