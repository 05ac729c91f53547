"""The round loop on a simulated clock, for one run or for several in lock-step."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from codedfl.data import Federation
from codedfl.errors import InputError
from codedfl.parallel import one_blas_thread
from codedfl.training.protocol._devices import DevicePlan
from codedfl.training.protocol._scheme import PreparedScheme
from codedfl.training.run._callbacks import Callback, StopTraining
from codedfl.training.run._evaluation import Evaluator
from codedfl.training.run._learning_rate import LearningRate
from codedfl.training.run._lockstep import advance
from codedfl.training.run._result import RunProgress, RunResult
from codedfl.training.run._run import Run, evaluate

MOST_ROUNDS = 10**9


def rounds_within(scheme: str, plan: DevicePlan, total_time_s: float) -> int:
    """Return the number of rounds of a scheme that fit into a training time.

    Raises:
        InputError: if not even one round fits, or implausibly many do.
    """
    duration = plan.arrivals.duration_s
    rounds = int(min(total_time_s / duration + 1e-9, MOST_ROUNDS + 1))
    if rounds > MOST_ROUNDS:
        raise InputError(
            f"training.total_time_s = {total_time_s:g} has room for more than {MOST_ROUNDS} rounds of {duration:g} s: lower it "
            "or raise training.deadline_s."
        )
    if rounds < 1:
        raise InputError(
            f"training.total_time_s = {total_time_s} is shorter than one round of {scheme} ({duration:g} s): "
            "raise it or lower training.deadline_s."
        )
    return rounds


def train(prepared: PreparedScheme, learning_rate: LearningRate, rounds: int, **options: Any) -> RunResult:
    """Train one scheme for a number of rounds.

    Args:
        prepared: the scheme in its setting, with the coded data uploaded.
        learning_rate: ``eta_k``.
        rounds: ``K``.
        options: the other arguments of `Run`.

    Returns:
        Models, curve and charges. A run that diverges or is stopped returns its results so far, with a status that says
        so.
    """
    return train_together([Run(prepared, learning_rate, rounds, **options)])[0]


def train_together(runs: Sequence[Run]) -> list[RunResult]:
    """Train several runs in lock-step, so that shared work is done once.

    Runs on the same data with the same batches share the work of the devices, and those on the same coded data that of the
    server; see `codedfl.training.run._lockstep`. Runs that share nothing take turns.

    Each result equals that of `train` up to rounding: a wider product may add the same terms in another order, which
    changes a sum of ``n`` terms by at most ``n`` times the unit roundoff, relative to the sum of their sizes. To that
    extent a result depends on which other runs take part, but not on the number of workers.

    A run that diverges, is stopped by a callback or has completed its rounds drops out, and the others continue. Runs
    resumed at different rounds wait for the one furthest behind.

    Args:
        runs: the runs, each with its own callbacks.

    Returns:
        The result of each, as from `train`. The real time of a round is divided among the runs that took part in it.

    Example:
        >>> import codedfl
        >>> from codedfl.experiment import build_experiment
        >>> setting = build_experiment(codedfl.load_config()).setting
        >>> prepared = codedfl.make_scheme("fedavg").prepare(setting)
        >>> rates = [LearningRate.relative(scale, setting.gram.smoothness) for scale in (0.1, 0.3)]
        >>> [result.final.round for result in train_together([Run(prepared, rate, rounds=3) for rate in rates])]
        [3, 3]
    """
    # One for all runs on the same data that minimise the same loss, so that they are evaluated together.
    evaluators: dict[Federation, Evaluator] = {}
    for run in runs:
        setting = run.prepared.setting
        evaluator = run.evaluator or evaluators.setdefault(setting.federation, Evaluator(setting))
        run.evaluator = evaluator.minimising(run.prepared.loss)
    running = [run for run in runs if run.progress.status not in ("completed", "diverged")]
    clock = _Clock()
    with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
        evaluate([run for run in running if not run.progress.curve])
        for run in running:
            run.start()
        while running := [run for run in running if run.progress.status == "running"]:
            k = min(run.round for run in running)
            ready = [run for run in running if run.round == k]
            advance(k, ready, Run.apply)
            lap = clock.lap_s() / len(ready)
            for run in ready:
                run.progress.wall_time_s += lap
            evaluate([run for run in ready if run.due])
            for run in ready:
                run.end_round()
    return [run.result for run in runs]


class StopTogether(Callback):
    """Shared by several runs in lock-step, stops all of them once another callback has stopped one."""

    def __init__(self) -> None:
        self.stopped = False

    def on_round(self, progress: RunProgress) -> None:  # noqa: ARG002
        """Stop if another run was stopped."""
        if self.stopped:
            raise StopTraining("stopped along with another run")

    def on_end(self, result: RunResult) -> None:
        """Record how a run ended."""
        self.stopped = self.stopped or result.status == "interrupted"


class _Clock:
    def __init__(self) -> None:
        self.last = time.perf_counter()

    def lap_s(self) -> float:
        before, self.last = self.last, time.perf_counter()
        return self.last - before
