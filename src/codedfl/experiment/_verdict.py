"""The verdict on a comparison: which scheme is best, on which clock, by how much, and whether that is more than noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from codedfl.errors import InputError
from codedfl.experiment._comparison import Comparison
from codedfl.experiment._course import Course, course_of
from codedfl.experiment._differences import Differences, schemes_of
from codedfl.experiment._evidence import Evidence, SchemeEvidence, evidence_of
from codedfl.experiment._noise import Difference, Source
from codedfl.experiment._race import Goal, Race, goal_of, race
from codedfl.schemes import YARDSTICK

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
        fell: schemes that peaked and fell clearly, under most seeds, with the course of one run.
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
    fell: Mapping[str, Course]
    rising: tuple[str, ...]
    heavy: Mapping[str, float]

    @property
    def best(self) -> str | None:
        """The candidate with the best score, by more than noise or not; None without candidates."""
        return self.candidates[0] if self.candidates else None

    @property
    def sentences(self) -> tuple[str, ...]:
        """The verdict in words, for readers who do not know the paper."""
        from codedfl.experiment._verdict_words import in_words

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
    courses = {
        s.name: [course_of(each.curve, test_rows) for each in schemes_of(evidence, s.name)] for s in evidence[0].schemes
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
        fell={n: next(c for c in each if c and c.fell) for n, each in courses.items() if _mostly(each, "fell")},
        rising=tuple(name for name, each in courses.items() if name in names and _mostly(each, "rising")),
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


def _mostly(courses: Sequence[Course | None], what: str) -> bool:
    return sum(bool(getattr(course, what, False)) for course in courses) > len(courses) / 2


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
