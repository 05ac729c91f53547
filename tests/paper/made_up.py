"""Runs that take a moment, and records that nobody has computed: worlds in which the paper is right, or wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd

from codedfl.experiment import Config
from codedfl.paper import Cache, Executor, Figure, Outcomes, Reproduction, Scope, reproduce
from codedfl.paper._attack import KNOWN_RATIOS, WITH_NOISE, WITHOUT_NOISE
from codedfl.paper._jobs import Computation
from codedfl.paper._runs import CurvePoint, FigureRun, RunOutcome, run_of
from codedfl.paper._setups import DIGITS
from codedfl.paper._tables import Row
from codedfl.training import StepSizeChoice, Trial

SMALL: dict[str, Any] = {
    "data__devices": 6,
    "features__dimension": 30,
    "coding__coded_samples": 60,
    "training__total_time_s": 5.0,
    "training__evaluations": 5,
    "learning_rate__grid": (0.25, 0.5),
}
"""A run of five rounds on the embedded digits."""

TWO_SEEDS = Scope(quick=True, seeds=(0, 1))

World = Callable[[FigureRun], float]
"""The accuracy of every run."""


def small_run(series: str = "SCFL", x: float = 0.0, **changes: Any) -> FigureRun:
    """Return a run that takes a tenth of a second."""
    return run_of(DIGITS, series, x, **{**SMALL, **changes})


def without_wall_time(outcomes: Outcomes) -> dict[FigureRun, tuple[RunOutcome, ...]]:
    """Return the records without what no two runs have in common."""
    return {run: tuple(replace(r, wall_time_s=0.0) for r in own) for run, own in outcomes.records.items()}


def record(accuracy: float = 0.9, **changes: Any) -> RunOutcome:
    """Return a made-up record whose accuracy rises to a value in four rounds of 10 s."""
    curve = tuple(
        CurvePoint(
            k, 10.0 * k, 10.0 * k + 3.0, accuracy * (1 - 0.5**k) if k < 4 else accuracy, accuracy - 0.01, 1 / (k + 1)
        )
        for k in range(5)
    )
    values: dict[str, Any] = {
        "config": {"learning_rate": {"scale": 0.5}},
        "status": "completed",
        "message": "",
        "stragglers": 0.3,
        "centralised": 0.97,
        "dimension": 2000,
        "outputs": 10,
        "coded_bytes": 1e6,
        "training_bytes": 2e6,
        "wall_time_s": 0.5,
        "curve": curve,
    }
    return RunOutcome(**{**values, **changes})


def points(accuracy: Mapping[tuple[str, float], Iterable[float]], panel: str = "digits") -> dict[str, pd.DataFrame]:
    """Return the table ``points`` with these accuracies of a line at a place, one a seed."""
    return {
        "points": pd.DataFrame(
            {"panel": panel, "series": series, "x": x, "seed": seed, "accuracy": value}
            for (series, x), values in accuracy.items()
            for seed, value in enumerate(values)
        )
    }


class MadeUp(Executor):
    """Asks a world instead of training.

    Args:
        world: the accuracy of every run; a little that differs between seeds is added.
        protection: how much larger the error of an attack is with noise; if it is not, there are no limits either.
    """

    def __init__(self, world: World, protection: float) -> None:
        super().__init__(Cache("never-used"))
        self.world, self.protection = world, protection

    def expect(self, *_: object) -> float:
        return 0.0

    def run(self, runs: Sequence[FigureRun], scope: Scope) -> Outcomes:
        choice = StepSizeChoice(0.5, (Trial(0.25, 0.8, 1.0), Trial(0.5, 0.9, 0.5), Trial(1.0, -math.inf, math.inf)))
        return Outcomes(
            scope.seeds,
            {run: tuple(record(self.world(run) + _luck(run, seed)) for seed in scope.seeds) for run in runs},
            dict.fromkeys(runs, choice),
        )

    def measure(self, task: Computation[list[Row]], configs: Sequence[Config], scope: Scope) -> list[Row]:
        return self._limits(configs, scope) if task.name == "limits" else self._errors(configs, scope)

    def _limits(self, configs: Sequence[Config], scope: Scope) -> list[Row]:
        """Return limits that are optimal and the better the less noise there is; points to run away from where noise helps."""
        return [
            {
                "panel": config.data.dataset,
                "seed": seed,
                "limit_accuracy": 0.9 / (1 + 0.01 * float(np.mean(config.coding.noise_variance)) + 1e-5 * seed),
                "guessing": 0.1,
                "excess_loss": 1e-5 * seed,
                "least_eigenvalue": math.copysign(2.0, self.protection),
                "smoothness": 1000.0,
                "steps": 5000,
            }
            for config in configs
            for seed in scope.seeds
        ]

    def _errors(self, configs: Sequence[Config], scope: Scope) -> list[Row]:
        rows: list[Row] = []
        for config in configs:
            noisy = config.coding.noise_variance != 0.0
            for seed in scope.seeds:
                for ratio in KNOWN_RATIOS:
                    error = 0.5 - 0.2 * ratio + 0.001 * seed + (self.protection if noisy else 0.0)
                    rows.append(
                        {
                            "panel": config.data.dataset,
                            "series": WITH_NOISE if noisy else WITHOUT_NOISE,
                            "x": ratio,
                            "seed": seed,
                            "feasible": error,
                            "oracle": error,
                            "baseline": 0.95,
                            "feasible_control": 1.0,
                            "oracle_control": 0.9,
                        }
                    )
        return rows


def _luck(run: FigureRun, seed: int) -> float:
    """Return what the seed adds: up to 0.0001, the same every time."""
    return 1e-4 * crc32(f"{run.panel} {run.series} {run.x} {seed}".encode()) / 2**32


@cache
def _runs(figure: Figure, scope: Scope) -> Sequence[FigureRun]:
    """Return the runs of a figure, stated once for all worlds."""
    return figure.runs(scope)


def made_up(figure: Figure, scope: Scope, world: World = lambda _: 0.9, *, protection: float = 0.3) -> Reproduction:
    """Reproduce a figure in a world."""
    stated = replace(figure, runs=lambda scope: _runs(figure, scope))
    (done,) = reproduce([stated], scope, MadeUp(world, protection))
    return done
