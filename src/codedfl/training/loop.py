"""The round loop on a simulated clock."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from codedfl._checks import require_at_least
from codedfl.arrays import FloatArray
from codedfl.errors import InputError
from codedfl.parallel import one_blas_thread
from codedfl.training.callbacks import Callback, StopOnDivergence, StopTraining
from codedfl.training.evaluation import Evaluator
from codedfl.training.learning_rate import LearningRate
from codedfl.training.ledger import Ledger
from codedfl.training.result import Evaluation, Progress, RunResult
from codedfl.training.scheme import PreparedScheme, SchemeState

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
        model_norm_bound: ``phi``; the model is projected to ``||W||_F <= phi`` after every round (Assumption 1), which keeps SCFL
            bounded when strong noise makes the coded Hessian indefinite. None for no projection.
        initial_model: ``W_0``, zeros unless given.
        callbacks: progress, checkpoints, recording.
        resume: continue from here instead of from ``W_0``; a run that has ended is returned as it is.

    Returns:
        Models, curve and charges. A run that diverges or is stopped returns what it has, with a status that says so.
    """
    require_at_least("rounds", rounds, 1)
    require_at_least("evaluate_every", evaluate_every, 1)
    evaluator = evaluator or Evaluator(prepared.setting)
    federation = prepared.setting.federation
    shape, dtype = (federation.dimension, federation.outputs), federation.features.dtype
    start = np.zeros(shape, dtype) if initial_model is None else initial_model.astype(dtype)
    if start.shape != shape:
        raise InputError(f"initial_model has shape {start.shape}, the data needs {shape}.")
    progress = resume or Progress(SchemeState.initial(start), Ledger.opened(prepared))
    zero_loss = evaluator.loss(np.zeros(shape))
    hooks = (StopOnDivergence(DIVERGENCE_FACTOR * zero_loss), *callbacks)
    result = RunResult(prepared, learning_rate, progress)
    if progress.status in ("completed", "diverged"):
        return result
    progress.status, progress.message = "running", ""
    earlier, began = progress.wall_time_s, time.perf_counter()
    with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
        if not progress.curve:
            progress.curve.append(_evaluate(prepared, progress, evaluator))
        for hook in hooks:
            hook.on_start(progress, rounds)
        try:
            for k in range(progress.state.round, rounds):
                attendance = prepared.device.arrivals.attend(k)
                step_size = learning_rate.at(k)
                update = prepared.aggregate(k, attendance, progress.state.model, step_size)
                progress.state = progress.state.moved(update, step_size, model_norm_bound)
                progress.ledger.charge(prepared, k, attendance)
                progress.wall_time_s = earlier + time.perf_counter() - began
                if (k + 1) % evaluate_every == 0 or k + 1 == rounds:
                    progress.curve.append(_evaluate(prepared, progress, evaluator))
                    for hook in hooks:
                        hook.on_evaluation(progress.curve[-1])
                for hook in hooks:
                    hook.on_round(progress)
            if progress.curve[-1].loss > max(zero_loss, progress.curve[0].loss):
                raise StopTraining("diverged (the model is worse than none)", "diverged")
            progress.status = "completed"
        except StopTraining as stop:
            progress.status, progress.message = stop.status, f"{stop} after round {progress.state.round} of {rounds}"
            if progress.status == "diverged":
                progress.message += f": {_remedy(prepared)}"
    for hook in hooks:
        hook.on_end(result)
    return result


def _evaluate(prepared: PreparedScheme, progress: Progress, evaluator: Evaluator) -> Evaluation:
    model = prepared.scheme.final_model(progress.state)
    score, last_score = evaluator.scores(model, progress.state.model)
    ledger = progress.ledger
    simulated = ledger.rounds * prepared.device.arrivals.duration_s
    return Evaluation(
        round=progress.state.round,
        simulated_time_s=simulated,
        everything_charged_s=simulated + ledger.preparation_s,
        loss=evaluator.loss(model),
        last_loss=evaluator.loss(progress.state.model),
        score=score,
        last_score=last_score,
        gap=evaluator.gap(model),
        distance=evaluator.distance(model),
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
