"""An empirical audit: a lower bound on epsilon, measured with canaries in one run of each scheme."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from codedfl._validation import require_fraction
from codedfl.audits._canaries import MembershipStatistics, PlantedCanaries, plant_canaries
from codedfl.audits._server_view import add_updates, add_uploads
from codedfl.config import Config, to_toml
from codedfl.experiment import Experiment, Pace, build_experiment, rounds_of
from codedfl.files import plain, write_atomically
from codedfl.parallel import one_blas_thread
from codedfl.privacy import Covers, EmpiricalBound, audit_scores, model_scores
from codedfl.progress import Progress
from codedfl.results import guarantee_of_run, releases_of
from codedfl.schemes import make_scheme
from codedfl.training import (
    LearningRate,
    PreparedScheme,
    Round,
    Run,
    RunResult,
    Scheme,
    train_together,
)
from codedfl.typing import ShortRepr

MOST_ROUNDS = 10
"""Rounds of a scheme that does not set their number itself: its updates are in the clear, and few of them tell everything."""


@dataclass(frozen=True)
class SchemeAudit:
    """What canaries have shown about one scheme.

    Args:
        scheme: its name.
        title: its name in a table.
        claimed_epsilon: what it claims, the largest over devices; infinite if it claims nothing.
        covers: what the claim is about: ``everything``, the ``upload``, or ``nothing``.
        threat_model: ``each message`` or ``sums only``.
        bound: the lower bound for what the claim covers; for everything if it covers nothing.
        everything: the lower bound for everything that the server sees.
    """

    scheme: str
    title: str
    claimed_epsilon: float
    covers: Covers
    threat_model: str
    bound: EmpiricalBound
    everything: EmpiricalBound

    @property
    def refuted(self) -> bool:
        """Whether the claim is below what was measured."""
        return self.claimed_epsilon < self.bound.epsilon


@dataclass(frozen=True, repr=False)
class EmpiricalAudit(ShortRepr):
    """An audit of the schemes of a configuration with canaries.

    Args:
        config: the configuration.
        schemes: one audit per scheme.
    """

    config: Config
    schemes: tuple[SchemeAudit, ...]

    @property
    def refuted(self) -> tuple[SchemeAudit, ...]:
        """The schemes whose claims are refuted."""
        return tuple(audit for audit in self.schemes if audit.refuted)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers, strings and lists; a claim of nothing is None."""
        summary: dict[str, Any] = plain(
            {
                "dataset": self.config.data.dataset,
                "seed": self.config.seed,
                "empirical": [
                    {
                        "scheme": audit.scheme,
                        "claimed_epsilon": audit.claimed_epsilon if math.isfinite(audit.claimed_epsilon) else None,
                        "covers": audit.covers,
                        "threat_model": audit.threat_model,
                        "epsilon_lower_bound": audit.bound.epsilon,
                        "everything_lower_bound": audit.everything.epsilon,
                        "delta": audit.bound.delta,
                        "confidence": audit.bound.confidence,
                        "canaries": audit.bound.canaries,
                        "guesses": audit.bound.guesses,
                        "correct": audit.bound.correct,
                        "refuted": audit.refuted,
                    }
                    for audit in self.schemes
                ],
            }
        )
        return summary


def run_empirical_audit(
    config: Config, *, canaries: int = 1000, confidence: float = 0.95, progress: Progress | None = None
) -> EmpiricalAudit:
    """Measure a lower bound on the epsilon of every scheme of a configuration, each in one run.

    Canaries are added to the data of the devices, each by a fair coin. From everything that the server sees, coins are guessed;
    right guesses prove a lower bound on epsilon (`codedfl.privacy.audit_scores`). A scheme that claims less than that has a
    mistake in its analysis or in its code. The reverse does not hold: a low bound proves nothing.

    Only updates of at most `MOST_ROUNDS` rounds are looked at, unless the scheme sets the number of rounds itself. Nothing is
    tuned: with ``learning_rate.scale = "grid"`` the step size is the smallest of the grid.

    Args:
        config: data, schemes and the privacy that they are to keep.
        canaries: ``m``.
        confidence: the probability with which a claim that is true is not refuted, for each scheme.
        progress: where to report progress.

    Raises:
        InputError: if the number of canaries, the confidence or the configuration is unsuitable.

    Example:
        >>> from codedfl.config import load_config
        >>> audit = run_empirical_audit(load_config(overrides=[("schemes", ["fed3r"])]), canaries=100)
        >>> audit.schemes[0].covers, audit.schemes[0].bound.epsilon > 2, audit.refuted
        ('nothing', True, ())
    """
    require_fraction("confidence", confidence)
    progress = progress or Progress()
    progress.update(f"loading {config.data.dataset}")
    experiment = build_experiment(config)
    planted = plant_canaries(experiment.setting, canaries)
    schemes = [make_scheme(name, config.options.get(name)) for name in config.schemes]
    for scheme in schemes:  # refused here, and not after others have trained
        scheme.require_possible(planted.setting, scheme.plan(planted.setting))
    # The rows of absent canaries are zero, and so are their norms.
    with planted.setting.workers, one_blas_thread(), np.errstate(divide="ignore"):
        audits = [_audit(scheme, experiment, planted, confidence, progress) for scheme in schemes]
    return EmpiricalAudit(config, tuple(audits))


def write_empirical_audit(audit: EmpiricalAudit, folder: Path | str) -> None:
    """Write ``empirical.json`` and the configuration to a folder."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "config.toml", to_toml(audit.config))
    write_atomically(folder / "empirical.json", json.dumps(audit.as_dict(), indent=2))


def _audit(
    scheme: Scheme, experiment: Experiment, planted: PlantedCanaries, confidence: float, progress: Progress
) -> SchemeAudit:
    progress.update(f"preparing {scheme.title}")
    prepared = scheme.prepare(planted.setting, plan=scheme.plan(planted.setting))
    sent_first, sent_later = (
        MembershipStatistics.none(len(planted.included)),
        MembershipStatistics.none(len(planted.included)),
    )
    progress.update(f"guessing from the upload of {scheme.title}")
    add_uploads(sent_first, planted, prepared)
    result = _train(experiment.config, planted, prepared, sent_later, progress)
    guarantee = guarantee_of_run(result, experiment.config, experiment.feature_map, experiment.preprocessing)
    covers = guarantee.covers
    progress.update(f"bounding epsilon of {scheme.title}")

    def bound(statistics: MembershipStatistics, what: Covers) -> EmpiricalBound:
        scores = (
            statistics.scores() if statistics.messages else model_scores(result.model, planted.features, planted.labels)
        )
        return audit_scores(
            scores,
            planted.included,
            experiment.config.privacy.delta,
            confidence=confidence,
            gaussian=_gaussian(result, what),
        )

    everything = bound(sent_first + sent_later, covers)
    covered = bound(sent_first, covers) if covers == "upload" else everything
    progress.say(f"{scheme.title}: epsilon is at least {covered.epsilon:.3g}")
    return SchemeAudit(scheme.name, scheme.title, guarantee.epsilon, covers, guarantee.against, covered, everything)


def _train(
    config: Config,
    planted: PlantedCanaries,
    prepared: PreparedScheme,
    statistics: MembershipStatistics,
    progress: Progress,
) -> RunResult:
    """Train a scheme and add its updates to the statistics; without training if devices send nothing any more."""
    scheme, setting = prepared.scheme, prepared.setting
    rounds = rounds_of(config, scheme, setting, prepared.device)
    if scheme.rounds(setting) is None:
        rounds = min(rounds, MOST_ROUNDS)
    watched = replace(prepared, scheme=cast(Scheme, _Watched(prepared, planted, statistics)))
    run = Run(
        watched,
        _rate(config, prepared),
        rounds,
        evaluate_every=max(rounds, 1),
        callbacks=[Pace(progress, scheme.title, rounds)],
    )
    if not prepared.device.broadcasts:
        return run.result
    (result,) = train_together([run])
    progress.close(scheme.title)
    return result


def _rate(config: Config, prepared: PreparedScheme) -> LearningRate:
    options = config.learning_rate
    if prepared.scheme.tunes_itself:
        return LearningRate(1.0)
    scale = min(options.grid) if options.scale == "grid" else float(options.scale)
    return LearningRate.relative(scale, prepared.smoothness, options.decay_rounds)


def _gaussian(result: RunResult, covers: Covers) -> bool:
    """Return whether all that a claim covers are Gaussian mechanisms on all rows."""
    if covers == "nothing":
        return False
    counted = [
        release.mechanism
        for sent in releases_of(result)
        for release in sent
        if covers == "everything" or release.upload
    ]
    return all(mechanism is not None and mechanism.mu is not None for mechanism in counted)


class _Watched:
    """A scheme whose updates are looked at before it applies them."""

    def __init__(self, prepared: PreparedScheme, planted: PlantedCanaries, statistics: MembershipStatistics) -> None:
        self.prepared, self.planted, self.statistics = prepared, planted, statistics

    def __getattr__(self, name: str) -> Any:
        return getattr(self.prepared.scheme, name)

    def step(self, state: Any, round: Round) -> tuple[Any, Mapping[str, float]]:
        round = replace(round, payloads=list(round.payloads))  # they can be read once
        add_updates(self.statistics, self.planted, self.prepared, state.model, round, list(round.updates))
        return self.prepared.scheme.step(state, round)
