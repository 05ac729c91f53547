"""The round loop on a simulated clock, for one run or for several in lock-step."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from codedfl._validation import require_at_least
from codedfl.data import Federation
from codedfl.errors import InputError
from codedfl.parallel import one_blas_thread
from codedfl.training._callbacks import Callback, StopOnDivergence, StopTraining
from codedfl.training._evaluation import Evaluator
from codedfl.training._learning_rate import LearningRate
from codedfl.training._ledger import Ledger
from codedfl.training._lockstep import Move, Standing, advance
from codedfl.training._result import Evaluation, Progress, RunResult
from codedfl.training._scheme import PreparedScheme, SchemeState
from codedfl.typing import FloatArray

DIVERGENCE_FACTOR = 1000.0
"""A run whose training loss exceeds this many times that of the zero model has diverged.

An update of a device that rarely arrives is weighted by one over its arrival probability: SCFL recovers from such a jump, so the
factor is far above what one makes.
"""

MOST_ROUNDS = 10**9


def rounds_within(prepared: PreparedScheme, total_time_s: float) -> int:
    """Return how many rounds fit in a training time.

    Raises:
        InputError: if not even one does, or more than anyone could mean.
    """
    duration = prepared.device.arrivals.duration_s
    rounds = int(min(total_time_s / duration + 1e-9, MOST_ROUNDS + 1))
    if rounds > MOST_ROUNDS:
        raise InputError(
            f"training.total_time_s = {total_time_s:g} has room for more than {MOST_ROUNDS} rounds of {duration:g} s: lower it "
            "or raise training.deadline_s."
        )
    if rounds < 1:
        raise InputError(
            f"training.total_time_s = {total_time_s} is shorter than one round of {prepared.scheme.name} ({duration:g} s): "
            "raise it or lower training.deadline_s."
        )
    return rounds


@dataclass(frozen=True)
class Entrant:
    """One of several runs that advance together.

    Args:
        prepared: the scheme in its setting, with the coded data uploaded.
        learning_rate: ``eta_k``.
        rounds: ``K``.
        evaluator: measures the model; made from the setting unless given.
        evaluate_every: rounds between evaluations; the start and the end are always evaluated.
        model_norm_bound: ``phi``; the model is projected to ``||W||_F <= phi`` after every round (Assumption 1), which keeps SCFL
            bounded when strong noise makes the coded Hessian indefinite. None for no projection.
        initial_model: ``W_0``, zeros unless given.
        callbacks: progress, checkpoints, recording.
        resume: continue from here instead of from ``W_0``; a run that has ended is returned as it is.
    """

    prepared: PreparedScheme
    learning_rate: LearningRate
    rounds: int
    evaluator: Evaluator | None = None
    evaluate_every: int = 1
    model_norm_bound: float | None = None
    initial_model: FloatArray | None = None
    callbacks: Sequence[Callback] = ()
    resume: Progress | None = None

    def __post_init__(self) -> None:
        require_at_least("rounds", self.rounds, 1)
        require_at_least("evaluate_every", self.evaluate_every, 1)
        if self.initial_model is not None and self.initial_model.shape != self.shape:
            raise InputError(f"initial_model has shape {self.initial_model.shape}, the data needs {self.shape}.")

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the model, ``(d, o)``."""
        federation = self.prepared.setting.federation
        return federation.dimension, federation.outputs

    def begun(self) -> Progress:
        """Return what to go on from."""
        if self.resume:
            return self.resume
        dtype = self.prepared.setting.federation.features.dtype
        start = np.zeros(self.shape, dtype) if self.initial_model is None else self.initial_model.astype(dtype)
        return Progress(SchemeState.initial(start), Ledger.opened(self.prepared))


def train(
    prepared: PreparedScheme,
    learning_rate: LearningRate,
    rounds: int,
    *,
    evaluator: Evaluator | None = None,
    evaluate_every: int = 1,
    model_norm_bound: float | None = None,
    initial_model: FloatArray | None = None,
    callbacks: Sequence[Callback] = (),
    resume: Progress | None = None,
) -> RunResult:
    """Train one scheme for a number of rounds.

    Args:
        prepared: the scheme in its setting, with the coded data uploaded.
        learning_rate: ``eta_k``.
        rounds: ``K``.
        evaluator: measures the model; made from the setting unless given.
        evaluate_every: rounds between evaluations; the start and the end are always evaluated.
        model_norm_bound: as in `Entrant`.
        initial_model: ``W_0``, zeros unless given.
        callbacks: progress, checkpoints, recording.
        resume: continue from here instead of from ``W_0``; a run that has ended is returned as it is.

    Returns:
        Models, curve and charges. A run that diverges or is stopped returns what it has, with a status that says so.
    """
    entrant = Entrant(
        prepared,
        learning_rate,
        rounds,
        evaluator,
        evaluate_every,
        model_norm_bound,
        initial_model,
        callbacks,
        resume,
    )
    return train_together([entrant])[0]


def train_together(entrants: Sequence[Entrant]) -> list[RunResult]:
    """Train several runs in lock-step, so that what they have in common is computed once.

    Runs on the same data with the same batches share the work of the devices, and those on the same coded data that of the
    server; see `codedfl.training._lockstep`. Runs that share nothing take turns.

    Each result equals that of `train` up to rounding: a wider product may add up the same terms in another order, which changes a
    sum of ``n`` terms by at most ``n`` times the unit roundoff, relative to the sum of their sizes. To that extent a result
    depends on which other runs take part, but not on the number of workers.

    A run that diverges, is stopped by a callback or has had its rounds leaves the others, who go on. Runs that are resumed at
    different rounds wait for the one that is furthest behind.

    Args:
        entrants: the runs, each with callbacks of its own.

    Returns:
        The result of each, as from `train`. The real time of a round is divided among the runs that took part in it.

    Example:
        >>> import codedfl
        >>> from codedfl.experiment import build_experiment
        >>> setting = build_experiment(codedfl.load_config()).setting
        >>> prepared = codedfl.make_scheme("fedavg").prepare(setting)
        >>> scales = (0.1, 0.3)
        >>> rates = [LearningRate.relative(scale, setting.gram.smoothness) for scale in scales]
        >>> [result.final.round for result in train_together([Entrant(prepared, rate, rounds=3) for rate in rates])]
        [3, 3]
    """
    evaluators: dict[Federation, Evaluator] = {}  # one for all runs on the same data, so that they are measured at once
    runs = []
    for entrant in entrants:
        setting = entrant.prepared.setting
        shared = evaluators.setdefault(setting.federation, Evaluator(setting))
        runs.append(_Run(entrant, entrant.evaluator or shared))
    running = [run for run in runs if run.progress.status not in ("completed", "diverged")]
    clock = _Clock()
    with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
        _evaluate([run for run in running if not run.progress.curve])
        for run in running:
            run.start()
        while running := [run for run in running if run.progress.status == "running"]:
            k = min(run.round for run in running)
            ready = [run for run in running if run.round == k]
            for run, move in zip(ready, advance(k, [run.standing for run in ready]), strict=True):
                run.move(move)
            lap = clock.lap_s() / len(ready)
            for run in ready:
                run.progress.wall_time_s += lap
            _evaluate([run for run in ready if run.due])
            for run in ready:
                run.end_round()
    return [run.result for run in runs]


class StopTogether(Callback):
    """Given to several runs in lock-step, stops all of them after one has been stopped by another callback."""

    def __init__(self) -> None:
        self.stopped = False

    def on_round(self, progress: Progress) -> None:  # noqa: ARG002
        """Stop if another run was."""
        if self.stopped:
            raise StopTraining("stopped along with another run")

    def on_end(self, result: RunResult) -> None:
        """Note how a run ended."""
        self.stopped = self.stopped or result.status == "interrupted"


class _Clock:
    def __init__(self) -> None:
        self.last = time.perf_counter()

    def lap_s(self) -> float:
        before, self.last = self.last, time.perf_counter()
        return self.last - before


class _Run:
    """An entrant on its way."""

    def __init__(self, entrant: Entrant, evaluator: Evaluator) -> None:
        self.entrant, self.evaluator = entrant, evaluator
        self.progress = entrant.begun()
        self.result = RunResult(entrant.prepared, entrant.learning_rate, self.progress)
        self.zero_loss = evaluator.loss(np.zeros(entrant.shape))
        self.hooks = (StopOnDivergence(DIVERGENCE_FACTOR * self.zero_loss), *entrant.callbacks)

    @property
    def round(self) -> int:
        return self.progress.state.round

    @property
    def standing(self) -> Standing:
        return Standing(self.entrant.prepared, self.progress.state.model, self.entrant.learning_rate.at(self.round))

    @property
    def due(self) -> bool:
        """Whether an evaluation is due after the round that was just completed."""
        return self.round % self.entrant.evaluate_every == 0 or self.round == self.entrant.rounds

    def start(self) -> None:
        self.progress.status, self.progress.message = "running", ""
        for hook in self.hooks:
            hook.on_start(self.progress, self.entrant.rounds)
        if self.round >= self.entrant.rounds:
            self._finish()

    def move(self, move: Move) -> None:
        progress, entrant, k = self.progress, self.entrant, self.round
        progress.state = progress.state.moved(move.update, entrant.learning_rate.at(k), entrant.model_norm_bound)
        progress.ledger.charge(entrant.prepared, k, move.attendance)

    def end_round(self) -> None:
        """Tell the callbacks, and see whether this was the last round."""
        try:
            if self.due:
                for hook in self.hooks:
                    hook.on_evaluation(self.progress.curve[-1])
            for hook in self.hooks:
                hook.on_round(self.progress)
        except StopTraining as stop:
            self._finish(stop)
        else:
            if self.round >= self.entrant.rounds:
                self._finish()

    def _finish(self, stop: StopTraining | None = None) -> None:
        progress = self.progress
        if stop is None and progress.curve[-1].loss > max(self.zero_loss, progress.curve[0].loss):
            stop = StopTraining("diverged (the model is worse than none)", "diverged")
        progress.status = stop.status if stop else "completed"
        if stop:
            progress.message = f"{stop} after round {self.round} of {self.entrant.rounds}"
            if stop.status == "diverged":
                progress.message += f": {_remedy(self.entrant.prepared)}"
        for hook in self.hooks:
            hook.on_end(self.result)


def _evaluate(runs: Sequence[_Run]) -> None:
    """Add a point to the curve of each run; those that share an evaluator are measured at once."""
    by_evaluator: dict[int, list[_Run]] = {}
    for run in runs:
        by_evaluator.setdefault(id(run.evaluator), []).append(run)
    for group in by_evaluator.values():
        evaluator = group[0].evaluator
        last = [run.progress.state.model for run in group]
        models = [run.entrant.prepared.scheme.final_model(run.progress.state) for run in group]
        scores = evaluator.scores(*(model for pair in zip(models, last, strict=True) for model in pair))
        measured = zip(
            group,
            evaluator.losses(*models),
            evaluator.losses(*last),
            scores[::2],
            scores[1::2],
            evaluator.gaps(*models),
            (evaluator.distance(model) for model in models),
            strict=True,
        )
        for run, *values in measured:
            run.progress.curve.append(_evaluation(run, *values))


def _evaluation(
    run: _Run, loss: float, last_loss: float, score: float, last_score: float, gap: float, distance: float
) -> Evaluation:
    ledger = run.progress.ledger
    simulated = ledger.rounds * run.entrant.prepared.device.arrivals.duration_s
    return Evaluation(
        round=run.round,
        simulated_time_s=simulated,
        everything_charged_s=simulated + ledger.preparation_s,
        loss=loss,
        last_loss=last_loss,
        score=score,
        last_score=last_score,
        gap=gap,
        distance=distance,
        mean_arrivals=ledger.arrivals / max(ledger.rounds, 1),
        bytes_up=ledger.bytes_up,
    )


def _remedy(prepared: PreparedScheme) -> str:
    if prepared.coded and prepared.coded[0].noise_variance > 0:
        return (
            "lower the learning rate; or, since strong noise makes the Hessian of the coded data indefinite, lower"
            " coding.noise_variance, raise coding.coded_samples, or bound the model with training.model_norm_bound"
        )
    return "lower the learning rate"
