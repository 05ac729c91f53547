"""Answers that were recorded."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from codedfl._short_repr import ShortRepr
from codedfl.errors import InputError
from codedfl.fleet._inputs import whole_number
from codedfl.streams import Streams
from codedfl.typing import BoolArray, FloatArray, IntArray

MILLISECOND = 1e-3


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

    fixed_deadline: ClassVar[bool] = False

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
        """Return the means."""
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
