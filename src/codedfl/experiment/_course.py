"""The course of a learning curve: whether it fell after its peak, or was still rising at its end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from codedfl.training import Evaluation

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
class Course:
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


def course_of(curve: Sequence[Evaluation], test_rows: int | None = None) -> Course | None:
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
        The course; None if there are fewer than twenty evaluations with a score.

    Example:
        >>> def point(k, score):
        ...     return Evaluation(k, float(k), float(k), 0.0, 0.0, score, score, 0.0, 0.0, 0.0, 0.0)
        >>> found = course_of([point(k, 0.9 - 0.001 * abs(k - 20)) for k in range(60)])
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
    return Course(
        peak=float(means[best]),
        peak_s=points[best + width // 2].simulated_time_s,
        end=end,
        fell=fall >= LEAST_FALL and fall > clear,
        rising=rise >= LEAST_RISE and rise > clear,
    )
