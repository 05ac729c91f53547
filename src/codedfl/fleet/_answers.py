"""When devices answer, in words that people have: a chance, a mean with a tail, or a recording."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np
from scipy import special

from codedfl.errors import InputError
from codedfl.fleet._inputs import float_vector, whole_number
from codedfl.streams import Streams
from codedfl.typing import BoolArray, FloatArray, IntArray, ShortRepr

Z95 = float(special.ndtri(0.95))

LARGEST_TAIL = math.exp(Z95**2 / 2)
"""The largest ratio of the 95th percentile to the mean that a lognormal law has, 3.87."""

MILLISECOND = 1e-3


class Answers(Protocol):
    """When devices answer. Work is in units of what was measured, (..., N), 1 or more: twice the work takes twice as long."""

    @property
    def devices(self) -> int:
        """N."""

    @property
    def mean_s(self) -> FloatArray | None:
        """The mean time until each device answers, (N,); None if only its chance to make the deadline is known."""

    def columns(self) -> dict[str, FloatArray]:
        """Return what is known about the seconds of every device, by the name of its column in a file, (N,) each."""

    @property
    def shortest_s(self) -> float:
        """A deadline that hardly anybody makes."""

    @property
    def longest_s(self) -> float:
        """A deadline beyond which nobody else answers; infinity if there is none."""

    @property
    def rounds(self) -> int | None:
        """How many rounds were recorded; None if answers are drawn."""

    def among(self, devices: IntArray) -> Answers:
        """Return the answers of the devices with these indices."""

    def probability(self, deadline_s: float, work: FloatArray) -> FloatArray:
        """Return the probability that a device answers in time, (..., N)."""

    def attend(self, deadline_s: float, work: FloatArray, streams: Streams, round: int) -> tuple[BoolArray, BoolArray]:
        """Return who answers in time in a round, and who answers at all, (N,) each; the same at every call."""


class _Drawn:
    """Answers drawn independently: one uniform number per device and round, so that a longer deadline only adds devices."""

    rounds: ClassVar[None] = None

    def probability(self, deadline_s: float, work: FloatArray) -> FloatArray:
        raise NotImplementedError

    def attend(self, deadline_s: float, work: FloatArray, streams: Streams, round: int) -> tuple[BoolArray, BoolArray]:
        """Draw who answers in time; everybody answers sooner or later."""
        rng = streams.at("channel", round=whole_number("round", round, 0))
        in_time = rng.random(work.shape[-1]) < self.probability(deadline_s, work)
        return in_time, np.ones_like(in_time)


@dataclass(frozen=True, eq=False, repr=False)
class ArrivalChances(_Drawn, ShortRepr):
    """The chance of each device to make the deadline, whatever the deadline and the work.

    Args:
        chance: p_i, from 0 to 1, (N,).

    Example:
        >>> ArrivalChances(np.array([0.9, 0.4])).probability(10.0, np.ones(2))
        array([0.9, 0.4])
    """

    chance: FloatArray

    def __post_init__(self) -> None:
        chance = float_vector("fleet.arrival_probability", self.chance)
        if not ((chance >= 0) & (chance <= 1)).all():
            raise InputError("fleet.arrival_probability must lie from 0 to 1 for every device.")
        object.__setattr__(self, "chance", chance)

    @property
    def devices(self) -> int:
        """N."""
        return len(self.chance)

    @property
    def mean_s(self) -> None:
        """None: a chance says nothing about seconds."""

    @property
    def shortest_s(self) -> float:
        """Zero: not known."""
        return 0.0

    @property
    def longest_s(self) -> float:
        """Infinity: not known."""
        return math.inf

    def columns(self) -> dict[str, FloatArray]:
        """Return nothing: a chance says nothing about seconds."""
        return {}

    def among(self, devices: IntArray) -> ArrivalChances:
        """Return the chances of the devices with these indices."""
        return ArrivalChances(self.chance[devices])

    def probability(self, deadline_s: float, work: FloatArray) -> FloatArray:  # noqa: ARG002
        """Return p_i."""
        return np.broadcast_to(self.chance, work.shape).copy()


@dataclass(frozen=True, eq=False, repr=False)
class ResponseTimes(_Drawn, ShortRepr):
    """Lognormal times until each device answers, given by their mean and 95th percentile.

    A response is a product of many factors (load, signal, contention), so that it is never negative and its slow answers lie
    further from the middle than its fast ones. With r = p95 / mean, ``σ = z - sqrt(z² - 2 ln r)`` and ``μ = ln mean - σ² / 2``,
    z = 1.645; r = 1 is a device that always takes the same time, and r > 3.87 has no solution.

    Args:
        mean_s: mean, (N,).
        p95_s: time within which 95 of 100 answers come, from 1 to 3.87 times the mean, (N,).

    Example:
        >>> times = ResponseTimes(np.array([20.0, 30.0]), np.array([45.0, 30.0]))
        >>> times.probability(45.0, np.ones(2)).round(3), times.probability(20.0, np.ones(2)).round(3)
        (array([0.95, 1.  ]), array([0.619, 0.   ]))
    """

    mean_s: FloatArray
    p95_s: FloatArray

    def __post_init__(self) -> None:
        for name in ("mean_s", "p95_s"):
            values = float_vector(f"fleet.{name}", getattr(self, name))
            if not (values > 0).all():
                raise InputError(f"fleet.{name} must be a positive number of seconds for every device.")
            object.__setattr__(self, name, values)
        if self.mean_s.shape != self.p95_s.shape:
            raise InputError(
                f"fleet.mean_s has {self.mean_s.size} value(s) and fleet.p95_s {self.p95_s.size}: give one for each device."
            )
        for mean, p95 in zip(self.mean_s.tolist(), self.p95_s.tolist(), strict=True):
            if problem := impossible_tail(mean, p95):
                raise InputError(f"fleet.p95_s = {p95:g} {problem}.")

    @property
    def devices(self) -> int:
        """N."""
        return len(self.mean_s)

    @property
    def shortest_s(self) -> float:
        """A twentieth of the least mean, which no device makes more often than one time in six."""
        return float(self.mean_s.min()) / 20.0

    @property
    def longest_s(self) -> float:
        """Infinity: however long the deadline, a longer one lets more devices arrive."""
        return math.inf

    @cached_property
    def _deviation(self) -> FloatArray:
        """σ_i, the standard deviation of the logarithm."""
        return Z95 - np.sqrt(np.maximum(Z95**2 - 2.0 * np.log(self.p95_s / self.mean_s), 0.0))

    def columns(self) -> dict[str, FloatArray]:
        """Return both numbers."""
        return {"mean_s": self.mean_s, "p95_s": self.p95_s}

    def among(self, devices: IntArray) -> ResponseTimes:
        """Return the times of the devices with these indices."""
        return ResponseTimes(self.mean_s[devices], self.p95_s[devices])

    def probability(self, deadline_s: float, work: FloatArray) -> FloatArray:
        """Return Φ((ln(T / work) - μ) / σ)."""
        relative = deadline_s / (self.mean_s * work)
        varies = self._deviation > 0
        deviation = np.where(varies, self._deviation, 1.0)
        chance = special.ndtr(np.log(relative) / deviation + deviation / 2)
        return np.where(varies, chance, relative >= 1.0)


def impossible_tail(mean_s: float, p95_s: float) -> str:
    """Return why no lognormal law has this mean and 95th percentile, as the end of a sentence; empty if there is one.

    Example:
        >>> impossible_tail(10.0, 25.0)
        ''
        >>> impossible_tail(10.0, 8.0)
        'is below the mean of 10 s, so that the mean would be larger than nearly all answers: check that the two are not swapped'
    """
    if p95_s < mean_s:
        return (
            f"is below the mean of {mean_s:g} s, so that the mean would be larger than nearly all answers: check that the two "
            "are not swapped"
        )
    if p95_s > LARGEST_TAIL * mean_s:
        return (
            f"is more than {LARGEST_TAIL:.2f} times the mean of {mean_s:g} s, a tail that no lognormal law has: give "
            "'arrival_probability', or a recording with 'round', 'device' and 'seconds'"
        )
    return ""


@dataclass(frozen=True, eq=False, repr=False)
class RecordedAnswers(ShortRepr):
    """The answers of K recorded rounds, replayed in order and then from the start again.

    The probability of a device is its share of the recorded rounds with an answer in time.

    Args:
        seconds: time until each device answered in each round, (K, N); NaN where it did not answer.

    Example:
        >>> recorded = RecordedAnswers(np.array([[1.0, np.nan], [3.0, 8.0]]))
        >>> recorded.probability(2.0, np.ones(2)), recorded.probability(9.0, np.ones(2))
        (array([0.5, 0. ]), array([1. , 0.5]))
    """

    seconds: FloatArray

    def __post_init__(self) -> None:
        seconds = np.array(self.seconds, dtype=np.float64)
        if seconds.ndim != 2 or not seconds.size or np.isinf(seconds).any() or (seconds < 0).any():
            raise InputError(
                f"the recorded seconds have shape {seconds.shape}: give one row per round and one column per device, each a "
                "number of seconds, zero or more, or NaN for no answer."
            )
        seconds.setflags(write=False)
        object.__setattr__(self, "seconds", seconds)

    @property
    def devices(self) -> int:
        """N."""
        return int(self.seconds.shape[1])

    @property
    def rounds(self) -> int:
        """K."""
        return len(self.seconds)

    @cached_property
    def _answers(self) -> FloatArray:
        """All answers, in any order."""
        return self.seconds[~np.isnan(self.seconds)]

    @cached_property
    def mean_s(self) -> FloatArray:
        """The mean over the answers of each device; a device without any counts as slow as the slowest of the others, (N,)."""
        number = np.count_nonzero(~np.isnan(self.seconds), axis=0)
        mean: FloatArray = np.nansum(self.seconds, axis=0) / np.maximum(number, 1)
        filled: FloatArray = np.where(number > 0, mean, mean.max())
        return filled

    @cached_property
    def shortest_s(self) -> float:
        """The fastest answer on record, at least a millisecond."""
        return max(float(np.min(self._answers, initial=self.longest_s)), MILLISECOND)

    @cached_property
    def longest_s(self) -> float:
        """The slowest answer on record, at least a millisecond."""
        return float(np.max(self._answers, initial=MILLISECOND))

    def columns(self) -> dict[str, FloatArray]:
        """Return the mean."""
        return {"mean_s": self.mean_s}

    def among(self, devices: IntArray) -> RecordedAnswers:
        """Return the recorded answers of the devices with these indices."""
        return RecordedAnswers(self.seconds[:, devices])

    def probability(self, deadline_s: float, work: FloatArray) -> FloatArray:
        """Return the share of the rounds in which a device answered in time."""
        allowed = deadline_s / work
        share: FloatArray = np.mean(self.seconds <= allowed[..., None, :], axis=-2)
        return share

    def attend(self, deadline_s: float, work: FloatArray, streams: Streams, round: int) -> tuple[BoolArray, BoolArray]:  # noqa: ARG002
        """Return who answered in time in the recorded round, and who answered at all."""
        seconds = self.seconds[whole_number("round", round, 0) % self.rounds]
        return seconds <= deadline_s / work, ~np.isnan(seconds)
