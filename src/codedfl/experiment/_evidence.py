"""What a verdict needs to know of a comparison, without its data and models, so that many seeds fit in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from codedfl.data import Task
from codedfl.experiment._comparison import Comparison
from codedfl.experiment._noise import row_scores
from codedfl.privacy import keeps
from codedfl.training import Evaluation, RunResult, Status
from codedfl.typing import FloatArray

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
