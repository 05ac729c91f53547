"""What a verdict needs to know of a comparison, without its data and models, so that many seeds fit in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from codedfl.curvature import FactorUpload, SubspaceUpload
from codedfl.data import Task
from codedfl.experiment._comparison import Comparison
from codedfl.experiment._noise import row_scores
from codedfl.experiment._privacy_statement import Covers
from codedfl.private import SketchUpload
from codedfl.training import CodedUpload, Evaluation, RunResult, Status
from codedfl.typing import FloatArray

Clock = Literal["training", "everything"]
"""The paper's clock, which counts training alone, or one that also charges what comes before it."""

BYTES_A_NUMBER = 4

CODED = (CodedUpload, FactorUpload, SubspaceUpload, SketchUpload)
"""Uploads of random combinations of samples; exact or noisy statistics are not coded."""


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
        covers: what its epsilon covers; None if the run has none to keep.
    """

    name: str
    title: str
    coded: bool
    status: Status
    curve: tuple[Evaluation, ...]
    rows: FloatArray
    upload_bytes: float
    covers: Covers | None

    @property
    def score(self) -> float:
        """The score of the model that the scheme returned."""
        return self.curve[-1].score

    @property
    def usable(self) -> bool:
        """Whether there is a model with a score."""
        return self.status != "diverged" and math.isfinite(self.score)

    def reached(self, score: float, clock: Clock) -> tuple[float, float] | None:
        """Return when a score was first seen, and the time since the evaluation before; None if it was never seen."""
        before = 0.0
        for point in self.curve:
            seconds = point.simulated_time_s if clock == "training" else point.everything_charged_s
            if point.score >= score:
                return seconds, (seconds - before if point.round else 0.0)
            before = seconds
        return None


@dataclass(frozen=True, eq=False)
class Evidence:
    """One comparison.

    Args:
        seed: its seed.
        task: classification or regression.
        test_rows: number of test rows that models were scored on.
        centralised: score of the centralised optimum; None if it is unknown.
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
    data_bytes: float
    epsilon: float | None
    delta: float
    sums_only: bool
    interrupted: bool
    schemes: tuple[SchemeEvidence, ...]


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
    return Evidence(
        seed=comparison.config.seed,
        task=federation.task,
        test_rows=len(comparison.evaluator.test_data[1]),
        centralised=centralised if math.isfinite(centralised) else None,
        data_bytes=float(BYTES_A_NUMBER * federation.total_samples * (columns + targets)),
        epsilon=target.epsilon if target else None,
        delta=comparison.config.privacy.delta,
        sums_only=target.sums_only if target else False,
        interrupted=comparison.interrupted,
        schemes=tuple(_scheme(comparison, result) for result in comparison.results),
    )


def _scheme(comparison: Comparison, result: RunResult) -> SchemeEvidence:
    task, (features, labels) = comparison.setting.federation.task, comparison.evaluator.test_data
    private = comparison.setting.privacy is not None
    rows: FloatArray = np.zeros(0)
    if math.isfinite(result.final.score):
        rows = row_scores(task, labels, features @ result.model.astype(features.dtype))
    return SchemeEvidence(
        name=result.scheme.name,
        title=result.scheme.title,
        coded=isinstance(result.scheme.upload, CODED),
        status=result.status,
        curve=tuple(result.curve),
        rows=rows,
        upload_bytes=float(result.progress.ledger.coded_bits.sum()) / 8,
        covers=comparison.privacy(result.scheme.name)["covers"] if private else None,
    )
