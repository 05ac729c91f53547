"""Theory and measurement side by side: a run of SCFL, its bounds, and their files (Sec. IV-A)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from codedfl.audits._theory_of_run import READINGS, OperatingPoint, TheoryOfRun
from codedfl.config import Config, to_toml
from codedfl.errors import InputError
from codedfl.experiment import build_experiment, run
from codedfl.files import csv_text, plain, write_atomically
from codedfl.fleet import Arrivals, inverse_batch_of
from codedfl.progress import Progress
from codedfl.results import Comparison
from codedfl.schemes import make_scheme
from codedfl.setting import Setting
from codedfl.theory import (
    Constants,
    GapBound,
    Knob,
    LimitError,
    LimitPoint,
    Reading,
    RoundLaw,
    RoundVariance,
    measure_constants,
)
from codedfl.training import Callback, RunProgress, RunResult, Scheme
from codedfl.typing import FloatArray, ShortRepr

MOST_EXACT_WORK = 2e10
"""Devices times the cube of the dimension up to which ``auto`` measures the constants of Assumption 1 exactly."""

ROOM = 2.0
"""The radius of Assumption 1 over the largest model norm of the run: local models may be larger than global ones."""


@dataclass(frozen=True, eq=False, repr=False)
class TheoryReport(ShortRepr):
    """The predictions of the theory for a configuration, and the measurements. All gaps are per sample, ``(f - f*) / m``.

    Args:
        comparison: the run of SCFL.
        round: the law of a round.
        constants: those of Assumption 1.
        bounds: Theorem 1 after every round, by reading.
        at_start: exact variance of an update with one local step at ``W_0``.
        at_optimum: the same at ``W*``.
        limit: the predicted remaining gap; None if ``X^T X`` is singular.
        drawn_limit: the limit point of this run's coded data; None if it is not unique.
        sensitivity: how the bound changes with noise, code size, local steps and stragglers.
        tradeoff: the same against the privacy budget of every device, in bits.
    """

    comparison: Comparison
    round: RoundLaw
    constants: Constants
    bounds: dict[Reading, GapBound]
    at_start: RoundVariance
    at_optimum: RoundVariance
    limit: LimitError | None
    drawn_limit: LimitPoint | None
    sensitivity: dict[Knob, list[OperatingPoint]]
    tradeoff: list[OperatingPoint]

    @property
    def result(self) -> RunResult:
        """The run."""
        return self.comparison.results[0]

    @property
    def title(self) -> str:
        """The name of the dataset."""
        return self.comparison.config.data.dataset

    @property
    def rounds(self) -> int:
        """Rounds completed."""
        return self.result.final.round

    @property
    def samples(self) -> int:
        """``m``."""
        return self.comparison.setting.federation.total_samples

    @property
    def measured(self) -> list[tuple[int, float]]:
        """Rounds and the gap measured after them, per sample."""
        return [(point.round, point.gap) for point in self.result.curve if point.round > 0]

    @property
    def gap_at_start(self) -> float:
        """The gap of ``W_0``, per sample: a model that is no better has learnt nothing."""
        return self.result.curve[0].gap

    @property
    def holds(self) -> bool:
        """Whether the measured gap stays below the corrected bound at every evaluation."""
        total = self.bounds["corrected"].total / self.samples
        return all(gap <= total[rounds - 1] for rounds, gap in self.measured)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers and strings."""
        rounds, m = self.result.final.round, self.samples
        final = {name: bound.after(rounds) for name, bound in self.bounds.items()}
        summary: dict[str, Any] = plain(
            {
                "dataset": self.comparison.config.data.dataset,
                "seed": self.comparison.config.seed,
                "rounds": rounds,
                "step_size": self.result.learning_rate.initial,
                "gap_at_start": self.gap_at_start,
                "measured_gap": self.result.final.gap,
                "corrected_bound_holds": self.holds,
                "bound": {
                    name: {"total": sum(terms.values()) / m, "terms": {key: value / m for key, value in terms.items()}}
                    for name, terms in final.items()
                },
                "constants": {
                    "radius": self.constants.radius,
                    "smoothness": self.constants.smoothness,
                    "strong_convexity": self.constants.strong_convexity,
                    "printed_strong_convexity": self.constants.printed_strong_convexity,
                    "feature_norm": self.constants.feature_norm.tolist(),
                    "residual": self.constants.residual.tolist(),
                },
                "exact_variance": {
                    name: {"total": at.total(), "terms": at.terms(), "best_weight": at.best_weight}
                    for name, at in (("start", self.at_start), ("optimum", self.at_optimum))
                },
                "limit": self.limit
                and {
                    "gap": self.limit.total() / m,
                    "terms": {name: value / m for name, value in self.limit.terms().items()},
                    "best_weight": self.limit.best_weight,
                },
                "drawn_limit": self.drawn_limit
                and {
                    "gap": self.drawn_limit.gap / m,
                    "least_eigenvalue": self.drawn_limit.least_eigenvalue,
                },
                "sensitivity": {name: [vars(point) for point in points] for name, points in self.sensitivity.items()},
                "tradeoff": [vars(point) for point in self.tradeoff],
            }
        )
        return summary


NO_CAP = 1e9
"""A cap of the weights 1 / p that nothing reaches: with one, the update would be biased, which the theory leaves out."""


def run_theory(
    config: Config,
    *,
    radius: float | None = None,
    constants: Literal["auto", "exact", "cheap"] = "auto",
    progress: Progress | None = None,
    callbacks: tuple[Callback, ...] = (),
) -> TheoryReport:
    """Train SCFL as configured and compare the measurement with the theory.

    Args:
        config: data, fleet, code and training; its list of schemes is ignored.
        radius: ``phi`` of Assumption 1; by default twice the largest norm among the models of the run and ``W*``.
        constants: how the constants of Assumption 1 are measured; ``auto`` is exact unless that takes minutes.
        progress: where to report progress.
        callbacks: added to the run.

    Raises:
        InputError: if the theory does not cover the configuration, or a step size is not below ``1 / L``.

    Example:
        >>> from codedfl.config import load_config
        >>> overrides = [("training.rounds", 20), ("learning_rate.scale", 0.25), ("features.dimension", 20)]
        >>> report = run_theory(load_config(overrides=overrides))
        >>> report.holds
        True
    """
    progress = progress or Progress()
    config = _for_theory(config)
    progress.update(f"loading {config.data.dataset}")
    experiment = build_experiment(config)
    scheme, setting = make_scheme("scfl", config.options.get("scfl")), experiment.setting
    round = round_of(scheme, setting, scheme.plan(setting).arrivals)
    if setting.known_gram is None:
        raise InputError(
            f"features.dimension = {round.dimension} is too large to hold X^T X, which the theory needs: use fewer features."
        )
    norms = _LargestNorm()
    comparison = run(config, experiment=experiment, progress=progress, callbacks=(*callbacks, norms))
    if not comparison.results or comparison.results[0].status == "interrupted":
        raise KeyboardInterrupt
    result = comparison.results[0]
    progress.update("measuring the constants of Assumption 1")
    gram = setting.gram
    round = round.with_gram(gram)
    phi = radius or ROOM * max(norms.largest, float(np.linalg.norm(gram.optimum)))
    exact = constants == "exact" or (constants == "auto" and round.devices * round.dimension**3 <= MOST_EXACT_WORK)
    measured = measure_constants(round.parts, phi, gram=gram, method="exact" if exact else "cheap")
    theory = TheoryOfRun(round, setting, measured, _step_sizes(result), np.asarray(norms.start, np.float64))
    progress.update("evaluating the theory")
    return TheoryReport(
        comparison=comparison,
        round=round,
        constants=measured,
        bounds={reading: theory.bound(round, reading) for reading in READINGS},
        at_start=theory.variance(round, theory.start),
        at_optimum=theory.variance(round, gram.optimum),
        limit=theory.limit(round),
        drawn_limit=theory.drawn_limit(result.prepared.held[0]),
        sensitivity=theory.sensitivity(),
        tradeoff=theory.tradeoff(),
    )


def round_of(scheme: Scheme, setting: Setting, arrivals: Arrivals) -> RoundLaw:
    """Return the law of a round of SCFL in its setting."""
    device_weight, inverse_batch = scheme.aggregation.device_weight, inverse_batch_of(arrivals)
    if setting.cohort is not None:
        raise InputError(
            f"training.cohort = {setting.cohort}: the theory is about rounds in which every device is asked, so set it to 0."
        )
    if device_weight is None or inverse_batch is None:
        raise InputError(f"the theory is about SCFL, not about {scheme.title}: choose scfl.")
    if scheme.upload is not None and not scheme.upload.has_rows:
        raise InputError(f"options.{scheme.name}.upload: the theory is about coded rows, so set it to 'rows'.")
    code = setting.code
    if code.clip_norm is not None:
        raise InputError(
            f"coding.clip_norm = {code.clip_norm:g}: clipped samples make the coded gradient biased, which the theory leaves "
            "out: set it to 0."
        )
    return RoundLaw(
        parts=tuple(setting.rows(i) for i in range(setting.federation.devices)),
        arrival_probability=arrivals.probability,
        inverse_batch=inverse_batch,
        coded_samples=code.coded_samples,
        server_batch=setting.server_batch_of(code.coded_samples),
        noise_variance=code.noise_variance,
        label_noise_variance=code.label_noise_variance,
        local_steps=setting.local_steps,
        device_weight=device_weight,
        uploading=code.uploading,
    )


def _for_theory(config: Config) -> Config:
    """Return the configuration with SCFL alone, step sizes that Theorem 1 covers, and weights 1 / p without a cap."""
    rate = config.learning_rate
    options = {**config.options, "scfl": {**config.options["scfl"], "weight_cap": NO_CAP}}
    if rate.scale == "grid":
        below = tuple(scale for scale in rate.grid if scale < 1)
        if not below:
            raise InputError(
                f"learning_rate.grid = {list(rate.grid)} has no value below 1, which Theorem 1 needs: add one."
            )
        rate = rate.model_copy(update={"grid": below})
    elif rate.scale >= 1:
        raise InputError(f"learning_rate.scale = {rate.scale:g}: Theorem 1 needs eta L < 1, so give a value below 1.")
    return config.model_copy(update={"schemes": ("scfl",), "learning_rate": rate, "options": options})


def _step_sizes(result: RunResult) -> FloatArray:
    return np.array([result.learning_rate.at(k) for k in range(result.final.round)])


class _LargestNorm(Callback):
    """Records the largest model norm of the run, and its initial model."""

    def __init__(self) -> None:
        self.largest = 0.0
        self.start: FloatArray = np.zeros((1, 1))

    def on_start(self, progress: RunProgress, rounds: int) -> None:  # noqa: ARG002
        self.start = progress.state.model
        self.largest = float(np.linalg.norm(self.start))

    def on_round(self, progress: RunProgress) -> None:
        self.largest = max(self.largest, float(np.linalg.norm(progress.state.model)))


def write_theory(report: TheoryReport, folder: Path | str) -> None:
    """Write ``theory.json``, ``theory.png``, the tables behind them as CSV, and the configuration to a folder."""
    from codedfl.plotting import draw_theory  # matplotlib is slow to import and needed only here

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "config.toml", to_toml(report.comparison.config))
    write_atomically(folder / "theory.json", json.dumps(report.as_dict(), indent=2))
    write_atomically(folder / "bound.csv", bound_to_csv(report))
    sweeps = [(knob, points) for knob, points in report.sensitivity.items()]
    write_atomically(folder / "sensitivity.csv", points_to_csv("parameter", sweeps))
    write_atomically(folder / "tradeoff.csv", points_to_csv("parameter", [("mi_dp_bits", report.tradeoff)]))
    write_atomically(folder / "theory.png", draw_theory(report))


def bound_to_csv(report: TheoryReport) -> str:
    """Return the measured gap and both bounds with their terms as CSV, one row per evaluation and reading, per sample."""
    names = list(report.bounds["corrected"].terms)
    rows = []
    for rounds, gap in report.measured:
        for reading in READINGS:
            terms = report.bounds[reading].after(rounds)
            shares = [terms.get(name, 0.0) / report.samples for name in names]
            rows.append([rounds, reading, gap, sum(shares), *shares])
    return csv_text(["rounds", "reading", "measured_gap", "bound", *names], rows)


def points_to_csv(first: str, sweeps: Iterable[tuple[str, Sequence[OperatingPoint]]]) -> str:
    """Return the theory against parameters as CSV, one row per value."""
    sweeps = list(sweeps)
    names = list(sweeps[0][1][0].corrected)
    rows = [
        [
            knob,
            point.value,
            point.printed,
            sum(point.corrected.values()),
            point.floor,
            point.variance,
            *point.corrected.values(),
        ]
        for knob, points in sweeps
        for point in points
    ]
    return csv_text(
        [first, "value", "printed_bound", "corrected_bound", "predicted_floor", "exact_variance_one_step", *names], rows
    )
