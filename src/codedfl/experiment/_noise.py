"""Whether a difference of scores is more than noise: over the test rows of one run, or over seeds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import stdtrit

from codedfl.data import Task
from codedfl.typing import FloatArray

Source = Literal["rows", "seeds"]
"""Where noise comes from: which rows are in the test set, or everything that a seed decides."""

ERROR = 0.05
"""Probability that at least one interval of a verdict misses its difference."""


@dataclass(frozen=True)
class Difference:
    """A mean difference with its confidence interval.

    Args:
        value: the mean difference.
        low: lower end of the interval.
        high: upper end.

    Example:
        >>> Difference(0.02, 0.01, 0.03).more_than_noise, Difference(0.02, -0.01, 0.05).more_than_noise
        (True, False)
    """

    value: float
    low: float
    high: float

    @property
    def more_than_noise(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.low > 0 or self.high < 0


def row_scores(task: Task, labels: FloatArray, predictions: FloatArray) -> FloatArray:
    r"""Split a score over the test rows, so that the spread of the parts is that of the score, (n,).

    The mean is the accuracy or the R2. A row's part is 1 or 0 for a class that is right or wrong. R2 is a ratio of means,
    :math:`1 - \bar e / \bar s`, with squared errors e and squared deviations s of the targets from their mean; a row's part is
    R2 plus the row's influence on it, :math:`(\bar e s_i / \bar s - e_i) / \bar s`, averaged over outputs.

    Example:
        >>> labels = np.array([[0.0], [1.0], [2.0]])
        >>> float(row_scores("regression", labels, labels + 0.5).mean())  # 1 - 0.25 / (2 / 3)
        0.625
    """
    if task == "classification":
        return np.asarray(predictions.argmax(axis=1) == labels.argmax(axis=1), np.float64)
    errors = np.square(np.asarray(predictions, np.float64) - labels)
    spread = np.square(labels - labels.mean(axis=0, dtype=np.float64))
    error, mean = errors.mean(axis=0), spread.mean(axis=0)
    known = mean > 0  # a constant target has an R2 by convention: 1 if it is met, else 0
    safe = np.where(known, mean, 1.0)
    parts = 1 - error / safe + (error * spread / safe - errors) / safe
    return np.asarray(np.where(known, parts, error == 0).mean(axis=1))


def difference_over_rows(task: Task, first: FloatArray, second: FloatArray, comparisons: int = 1) -> Difference:
    """Compare two models on the same test rows, by the difference of their scores in each row.

    For classes these are 1, 0 and -1, so that only rows count on which the models disagree, as in McNemar's test. One such row
    of each sign is added, after which the interval keeps its confidence down to a few rows (Bonett and Price, 2012).

    Args:
        task: classification or regression.
        first: scores of the rows of one model, see `row_scores`, (n,).
        second: those of the other.
        comparisons: how many intervals are to hold at once.

    Example:
        >>> right, wrong = np.ones(100), np.zeros(100)
        >>> difference_over_rows("classification", right, wrong).more_than_noise
        True
    """
    differences = first - second
    value = float(differences.mean())
    if task == "classification":
        differences = np.concatenate([differences, [1.0, -1.0]])
    return _interval(value, differences, comparisons)


def difference_over_seeds(
    first: FloatArray, second: FloatArray, comparisons: int = 1, resolution: float = 0.0
) -> Difference:
    """Compare two series of results that have their seeds in common: a t-interval of the paired differences.

    Args:
        first: one result per seed.
        second: the same seeds.
        comparisons: how many intervals are to hold at once.
        resolution: steps in which results come, such as one test row. A few seeds may agree to the last step by chance, so the
            variance of two rounding errors is added.

    Example:
        >>> difference_over_seeds(np.array([0.90, 0.91, 0.92]), np.array([0.80, 0.81, 0.83])).more_than_noise
        True
        >>> difference_over_seeds(np.array([0.9]), np.array([0.1])).more_than_noise  # one seed shows no spread
        False
    """
    differences = first - second
    return _interval(float(differences.mean()), differences, comparisons, resolution**2 / 6)


def half_width(values: FloatArray, comparisons: int = 1, more_variance: float = 0.0) -> float:
    """Return half the t-interval of a mean; infinite for a single value.

    Example:
        >>> round(half_width(np.array([1.0, 2.0, 3.0])), 3)  # 4.303 / sqrt(3)
        2.484
    """
    n = len(values)
    if n < 2:
        return math.inf
    variance = float(values.var(ddof=1)) + more_variance
    return -float(stdtrit(n - 1, ERROR / (2 * comparisons))) * math.sqrt(variance / n)


def _interval(value: float, values: FloatArray, comparisons: int, more_variance: float = 0.0) -> Difference:
    centre, half = float(values.mean()), half_width(values, comparisons, more_variance)
    return Difference(value, centre - half, centre + half)
