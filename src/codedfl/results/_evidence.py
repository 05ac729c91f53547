"""What a verdict rests on: the scores of test rows or of seeds, and differences of them with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy.special import stdtrit

from codedfl.data import Task
from codedfl.privacy import keeps
from codedfl.training import Evaluation, RunResult, Status
from codedfl.typing import FloatArray

if TYPE_CHECKING:
    from codedfl.results._comparison import Comparison


Clock = Literal["training", "everything"]
"""The paper's clock, which counts training alone, or one that also charges what comes before it."""

BYTES_A_NUMBER = 4

LEAST_HELD = 5
"""Evaluations over which a score is to be held, at least."""


@dataclass(frozen=True, eq=False)
class SchemeEvidence:
    """One scheme of a comparison.

    Args:
        name: the name of the scheme.
        title: its title.
        coded: whether devices upload coded data.
        status: how the run ended.
        curve: the learning curve.
        rows: scores of the test rows, see `row_scores`; empty without a score.
        upload_bytes: size of the upload before training, of all devices.
        private: whether it keeps the epsilon of the run for everything that devices send; True if there is none to keep.
    """

    name: str
    title: str
    coded: bool
    status: Status
    curve: tuple[Evaluation, ...]
    rows: FloatArray
    upload_bytes: float
    private: bool

    @property
    def score(self) -> float:
        """The score of the model that the scheme returned."""
        return self.curve[-1].score

    @property
    def usable(self) -> bool:
        """Whether there is a model with a score."""
        return self.status != "diverged" and math.isfinite(self.score)

    def reached(self, score: float, clock: Clock) -> tuple[float, float] | None:
        """Return when a score was reached and held, and the time since the evaluation before; None if it was not.

        That is the first evaluation at or above the score from which on most of any successive evaluations are, as many as a
        tenth of the run and at least five; of fewer evaluations until the end, most of those. A lucky evaluation between lower
        ones is no arrival, and neither is one before a lasting fall.
        """
        above = np.array([point.score >= score for point in self.curve])
        width = max(LEAST_HELD, len(above) // 10)
        held = np.array([above[k : k + width].mean() > 0.5 for k in range(len(above))], dtype=bool)
        full = held[: max(0, len(above) - width + 1)]
        lost = int(np.flatnonzero(~full)[-1]) + 1 if not full.all() else 0  # no full window from here on is below
        arrived = np.flatnonzero(above[lost:] & held[lost:])
        if arrived.size == 0:
            return None
        k = lost + int(arrived[0])
        seconds = [p.simulated_time_s if clock == "training" else p.everything_charged_s for p in self.curve]
        return seconds[k], (seconds[k] - (seconds[k - 1] if k else 0.0) if self.curve[k].round else 0.0)


@dataclass(frozen=True, eq=False)
class Evidence:
    """One comparison.

    Args:
        seed: its seed.
        task: classification or regression.
        test_rows: number of test rows that models were scored on.
        centralised: score of the centralised optimum; None if it is unknown.
        centralised_rows: its scores of the test rows; empty if it is unknown.
        constant: the constant answer that the training rows suggest, in words: their most frequent class, or their mean.
        constant_rows: its scores of the test rows; empty if they are too few for a score.
        data_bytes: size of all samples and their targets.
        epsilon: the epsilon to keep; None without one.
        delta: its delta.
        sums_only: whether that is against a server that sees only sums over devices.
        interrupted: whether the user stopped the comparison.
        schemes: one entry per scheme that ran.
    """

    seed: int
    task: Task
    test_rows: int
    centralised: float | None
    centralised_rows: FloatArray
    constant: str
    constant_rows: FloatArray
    data_bytes: float
    epsilon: float | None
    delta: float
    sums_only: bool
    interrupted: bool
    schemes: tuple[SchemeEvidence, ...]

    @property
    def constant_score(self) -> float:
        """The score of the constant answer; NaN if there are too few test rows for one."""
        return float(self.constant_rows.mean()) if self.constant_rows.size else math.nan


def evidence_of(comparison: Comparison) -> Evidence:
    """Reduce a comparison to what a verdict needs.

    Example:
        >>> from codedfl.experiment import run
        >>> found = evidence_of(run({"schemes": ["fedavg"], "training.rounds": 5, "learning_rate.scale": 0.5}))
        >>> found.schemes[0].coded, found.test_rows == found.schemes[0].rows.size
        (False, True)
    """
    setting, reference = comparison.setting, comparison.evaluator.reference
    federation, target = setting.federation, setting.privacy
    columns = min(federation.dimension, comparison.experiment.feature_map.input_dimension)
    targets = 1 if federation.task == "classification" else federation.outputs
    centralised = reference.score if reference else math.nan
    constant, constant_rows = _constant_answer(comparison)
    return Evidence(
        seed=comparison.config.seed,
        task=federation.task,
        test_rows=len(comparison.evaluator.test_data[1]),
        centralised=centralised if math.isfinite(centralised) else None,
        centralised_rows=_rows(comparison, reference.model)
        if reference and math.isfinite(centralised)
        else np.zeros(0),
        constant=constant,
        constant_rows=constant_rows,
        data_bytes=float(BYTES_A_NUMBER * federation.total_samples * (columns + targets)),
        epsilon=target.epsilon if target else None,
        delta=comparison.config.privacy.delta,
        sums_only=target.sums_only if target else False,
        interrupted=comparison.interrupted,
        schemes=tuple(_scheme(comparison, result) for result in comparison.results),
    )


def _scheme(comparison: Comparison, result: RunResult) -> SchemeEvidence:
    target = comparison.setting.privacy
    return SchemeEvidence(
        name=result.scheme.name,
        title=result.scheme.title,
        coded=result.scheme.upload is not None and result.scheme.upload.is_coded,
        status=result.status,
        curve=tuple(result.curve),
        rows=_rows(comparison, result.model) if math.isfinite(result.final.score) else np.zeros(0),
        upload_bytes=float(result.progress.ledger.coded_bits.sum()) / 8,
        private=target is None or keeps(comparison.privacy(result.scheme.name), target.epsilon),
    )


def _rows(comparison: Comparison, model: FloatArray) -> FloatArray:
    features, labels = comparison.evaluator.test_data
    return row_scores(comparison.setting.federation.task, labels, features @ model.astype(features.dtype))


def _constant_answer(comparison: Comparison) -> tuple[str, FloatArray]:
    """Return the best constant that the training rows suggest, in words, and its scores of the test rows."""
    federation, (_, labels) = comparison.setting.federation, comparison.evaluator.test_data
    answer = federation.labels.mean(axis=0, dtype=np.float64)
    predictions = np.broadcast_to(answer, labels.shape)
    if federation.task == "classification":
        words = f"always answering {federation.target_names[int(answer.argmax())]!r}"
        return words, row_scores(federation.task, labels, predictions)
    scored = len(labels) > 1
    return "the mean of the training rows", row_scores(federation.task, labels, predictions) if scored else np.zeros(0)


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


def schemes_of(evidence: Sequence[Evidence], name: str) -> list[SchemeEvidence]:
    """Return what is known of a scheme under each seed."""
    return [scheme for each in evidence for scheme in each.schemes if scheme.name == name]


class Differences:
    """Differences of scores, with intervals that hold at once.

    One seed shows the noise of the test rows, paired row by row; several show that of the seed.

    Args:
        evidence: the comparisons, one per seed.
        names: the schemes to compare.
    """

    def __init__(self, evidence: Sequence[Evidence], names: Sequence[str]) -> None:
        self.evidence, self.names = evidence, names
        self.task = evidence[0].task

    def between(self, one: str, other: str) -> Difference:
        """Return the lead of a scheme over another, with intervals for one scheme against all others."""
        first, second = schemes_of(self.evidence, one), schemes_of(self.evidence, other)
        return self._paired([s.rows for s in first], [s.rows for s in second], max(1, len(self.names) - 1))

    def above_constant(self, name: str) -> Difference:
        """Return the lead of a scheme over the constant answer, with intervals for all schemes."""
        first = [scheme.rows for scheme in schemes_of(self.evidence, name)]
        return self._paired(first, [each.constant_rows for each in self.evidence], len(self.names))

    def beats_constant(self, name: str) -> bool:
        """Whether a scheme is better than the constant answer by more than noise: over seeds, or of the rows of every seed.

        Two or three seeds have wide intervals, but a lead that the test rows of each of them confirm is no chance.
        """
        rows = [scheme.rows for scheme in schemes_of(self.evidence, name)]
        return self.above_constant(name).low > 0 or all(
            difference_over_rows(self.task, mine, each.constant_rows, len(self.names)).low > 0
            for mine, each in zip(rows, self.evidence, strict=True)
        )

    def below_centralised(self, name: str) -> Difference | None:
        """Return what a scheme lacks to the centralised optimum, with intervals for all schemes; None if that is unknown."""
        if any(each.centralised_rows.size == 0 for each in self.evidence):
            return None
        second = [scheme.rows for scheme in schemes_of(self.evidence, name)]
        return self._paired([each.centralised_rows for each in self.evidence], second, len(self.names))

    def _paired(self, first: Sequence[FloatArray], second: Sequence[FloatArray], comparisons: int) -> Difference:
        if len(self.evidence) == 1:
            return difference_over_rows(self.task, first[0], second[0], comparisons)
        step = 1 / max(1, self.evidence[0].test_rows) if self.task == "classification" else 0.0
        ends = [np.array([rows.mean() for rows in each]) for each in (first, second)]
        return difference_over_seeds(ends[0], ends[1], comparisons, step)
