"""A run: one scheme trained over its rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from codedfl._validation import require_at_least
from codedfl.errors import InputError
from codedfl.identity import identity
from codedfl.training.protocol._aggregation import Round
from codedfl.training.protocol._interface import initial_memory, initial_state, next_state, returned_model
from codedfl.training.protocol._scheme import PreparedScheme, Scheme, State
from codedfl.training.run._callbacks import Callback, StopOnDivergence, StopTraining
from codedfl.training.run._evaluation import Evaluator
from codedfl.training.run._learning_rate import LearningRate
from codedfl.training.run._ledger import Ledger
from codedfl.training.run._result import Evaluation, RunProgress, RunResult
from codedfl.typing import FloatArray

DIVERGENCE_FACTOR = 1000.0
"""A run whose training loss exceeds this many times that of the zero model has diverged.

Updates of devices that rarely arrive have large weights, one over the arrival probability. SCFL recovers from the jumps
that they cause, so the factor is far above those.
"""

GOOD_FACTOR = 2.0
"""A state whose loss is within this factor of the lowest so far is good enough to return to."""


@dataclass(eq=False)
class Run:
    """One scheme to train, and its progress.

    Args:
        prepared: the scheme in its setting, with the coded data uploaded.
        learning_rate: ``eta_k``.
        rounds: ``K``; 0 only for a one-shot scheme.
        evaluator: evaluates the model, by the loss of the scheme whatever its own; by default one for the setting.
        evaluate_every: rounds between evaluations; the start and the end are always evaluated.
        model_norm_bound: ``phi``; the model is projected to ``||W||_F <= phi`` after every round (Assumption 1), which keeps SCFL
            bounded when strong noise makes the coded Hessian indefinite. None for no projection.
        initial_model: ``W_0``, zeros by default.
        callbacks: progress, checkpoints, recording.
        resume: continue from here instead of from ``W_0``; a run that has ended is returned unchanged.
        fallbacks: learning rates to back off to, one after another, if the run diverges. It then continues from its
            last good state; the lost rounds stay charged.
    """

    prepared: PreparedScheme
    learning_rate: LearningRate
    rounds: int
    evaluator: Evaluator | None = None
    evaluate_every: int = 1
    model_norm_bound: float | None = None
    initial_model: FloatArray | None = None
    callbacks: Sequence[Callback] = ()
    resume: RunProgress | None = None
    fallbacks: tuple[LearningRate, ...] = ()
    progress: RunProgress = field(init=False)
    diagnostics: Mapping[str, float] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        require_at_least("rounds", self.rounds, 0 if self.prepared.scheme.one_shot else 1)
        require_at_least("evaluate_every", self.evaluate_every, 1)
        require_no_bound(self.prepared.scheme, self.model_norm_bound)
        shape = self.prepared.model_shape
        if self.initial_model is not None and self.initial_model.shape != shape:
            raise InputError(f"initial_model has shape {self.initial_model.shape}, the data needs {shape}.")
        self.progress = self.resume or RunProgress(
            self.initial_state, Ledger.opened(self.prepared), devices=self.initial_devices
        )

    @cached_property
    def initial_state(self) -> State:
        """The state before the first round."""
        dtype = self.prepared.setting.federation.features.dtype
        start = (
            np.zeros(self.prepared.model_shape, dtype)
            if self.initial_model is None
            else self.initial_model.astype(dtype)
        )
        return initial_state(self.prepared, start)

    @cached_property
    def initial_devices(self) -> tuple[Any, ...]:
        """What each device remembers before the first round; empty if devices remember nothing."""
        scheme, federation = self.prepared.scheme, self.prepared.setting.federation
        memory = initial_memory(scheme, self.prepared.model_shape, federation.features.dtype)
        return () if memory is None else (memory,) * federation.devices

    @property
    def result(self) -> RunResult:
        """The result of the run so far."""
        return RunResult(self.prepared, self.rate, self.progress)

    @property
    def rate(self) -> LearningRate:
        """The learning rate in force: the first, or the one that the run backed off to."""
        return (self.learning_rate, *self.fallbacks)[self.progress.back_offs]

    @property
    def round(self) -> int:
        """``k``, rounds completed."""
        return self.progress.state.round

    @property
    def model(self) -> FloatArray:
        """``W_k``."""
        return self.progress.state.model

    @property
    def step_size(self) -> float:
        """``eta_k``."""
        return self.rate.at(self.round)

    @property
    def due(self) -> bool:
        """Whether an evaluation is due after the round just completed."""
        return self.round % self.evaluate_every == 0 or self.round == self.rounds

    @cached_property
    def device_identity(self) -> str:
        """An identity shared by runs whose devices arrive in the same rounds and sample the same rows."""
        return identity(self.prepared.device)

    @cached_property
    def server_identity(self) -> str:
        """An identity shared by runs whose server samples the same rows of the same coded data."""
        return identity(self.prepared.server)

    @cached_property
    def zero_loss(self) -> float:
        """The training loss of the zero model, which a run should beat, by the loss of its scheme."""
        assert self.evaluator is not None
        return self.evaluator.training_loss(np.zeros(self.prepared.model_shape))

    @cached_property
    def hooks(self) -> tuple[Callback, ...]:
        """All callbacks, detection of divergence first."""
        # A private scheme must not act upon a loss that it has not released.
        if self.prepared.scheme.private:
            return tuple(self.callbacks)
        return (StopOnDivergence(DIVERGENCE_FACTOR * self.zero_loss), *self.callbacks)

    def start(self) -> None:
        """Notify the callbacks that the rounds begin."""
        self.progress.status, self.progress.message = "running", self.progress.back_off_message
        for hook in self.hooks:
            hook.on_start(self.progress, self.rounds)
        if self.round >= self.rounds:
            self._finish()

    def apply(self, round: Round) -> None:
        """Apply the round to the scheme, project its model if there is a bound, and charge the round."""
        state: Any
        state, self.diagnostics = next_state(self.prepared.scheme, self.progress.state, round)
        if self.model_norm_bound is not None:
            norm = max(float(np.linalg.norm(state.model)), 1e-300)
            state = replace(state, model=state.model * state.model.dtype.type(min(1.0, self.model_norm_bound / norm)))
        self.progress.state = state
        self.progress.ledger.charge(self.prepared, round.number, round.attendance)

    def end_round(self) -> None:
        """Notify the callbacks, and finish after the last round."""
        try:
            if self.due:
                self._keep_if_good(self.progress.curve[-1])
                for hook in self.hooks:
                    hook.on_evaluation(self.progress.curve[-1])
            for hook in self.hooks:
                hook.on_round(self.progress)
        except StopTraining as stop:
            if not (stop.status == "diverged" and self._back_off()):
                self._finish(stop)
                return
        if self.round >= self.rounds:
            self._finish()

    def _keep_if_good(self, evaluation: Evaluation) -> None:
        """Keep a good state, if the run may have to return to it."""
        if self.fallbacks and evaluation.last_loss <= GOOD_FACTOR * min(p.last_loss for p in self.progress.curve):
            self.progress.good_state, self.progress.good_devices = self.progress.state, self.progress.devices

    def _back_off(self) -> bool:
        """Return to the last good state with the next smaller step size; False if none is left."""
        progress = self.progress
        if progress.back_offs >= len(self.fallbacks):
            return False
        if self.round >= self.rounds:
            self._return_good_state()
            return True
        before = self._step_in_words
        progress.back_offs += 1
        self._return()
        progress.message = progress.back_off_message = (
            f"diverged with {before} at round {self.round} and backed off to {self._step_in_words.removeprefix('the step size ')}"
        )
        return True

    @property
    def _step_in_words(self) -> str:
        step = f"{self.rate.initial:.4g}"
        return f"{step} times its own step size" if self.prepared.scheme.tunes_itself else f"the step size {step}"

    def _return(self) -> None:
        """Return to the last good state at the current round: the rounds in between stay charged."""
        progress = self.progress
        state, devices = self.initial_state, self.initial_devices
        if progress.good_state is not None:
            state, devices = progress.good_state, progress.good_devices
        progress.state = replace(state, round=self.round)  # type: ignore[type-var]
        progress.devices = devices

    def _return_good_state(self) -> None:
        """End with the last good state, as no rounds are left to continue from it."""
        progress = self.progress
        self._return()
        progress.curve.pop()
        evaluate([self])
        progress.message = progress.back_off_message = (
            f"diverged with {self._step_in_words} in its last rounds; its last good model is kept"
        )

    @property
    def _failure(self) -> str:
        """What is wrong with the model that the rounds ended in; empty if nothing is."""
        scheme, curve = self.prepared.scheme, self.progress.curve
        if not np.isfinite(scheme.final_model(self.progress.state)).all():
            return "the solution is not finite" if scheme.one_shot else "the model is not finite"
        if not scheme.private and curve[-1].loss > max(self.zero_loss, curve[0].loss):
            return "the model is worse than none"
        return ""

    def _finish(self, stop: StopTraining | None = None) -> None:
        progress = self.progress
        if stop is None and (failure := self._failure):
            if progress.good_state is not None:
                self._return_good_state()
            else:
                stop = StopTraining(f"diverged ({failure})", "diverged")
        progress.status = stop.status if stop else "completed"
        if stop:
            progress.message = f"{stop} after round {self.round} of {self.rounds}" if self.rounds else str(stop)
            if stop.status == "diverged":
                progress.message += f": {_remedy(self.prepared)}"
        for hook in self.hooks:
            hook.on_end(self.result)


def require_no_bound(scheme: Scheme, model_norm_bound: float | None) -> None:
    """Refuse a bound on the model of a private scheme."""
    if model_norm_bound is not None and scheme.private:
        raise InputError(
            f"training.model_norm_bound = {model_norm_bound:g} does not apply to {scheme.name}, whose ridge keeps the model"
            " small: set it to 0."
        )


def evaluate(runs: Sequence[Run]) -> None:
    """Add a point to the curve of each run; runs that share an evaluator are evaluated together."""
    by_evaluator: dict[int, list[Run]] = {}
    for run in runs:
        by_evaluator.setdefault(id(run.evaluator), []).append(run)
    for group in by_evaluator.values():
        evaluator = group[0].evaluator
        assert evaluator is not None
        last = [run.model for run in group]
        models = [returned_model(run.prepared.scheme, run.progress.state) for run in group]
        losses = evaluator.losses(*models)
        returned_last = all(model is iterate for model, iterate in zip(models, last, strict=True))
        scores = evaluator.scores(*(model for pair in zip(models, last, strict=True) for model in pair))
        measured = zip(
            group,
            losses,
            losses if returned_last else evaluator.losses(*last),
            scores[::2],
            scores[1::2],
            evaluator.gaps(*models),
            (evaluator.distance(model) for model in models),
            strict=True,
        )
        for run, *values in measured:
            run.progress.curve.append(_evaluation(run, *values))


def _evaluation(
    run: Run, loss: float, last_loss: float, score: float, last_score: float, gap: float, distance: float
) -> Evaluation:
    ledger = run.progress.ledger
    simulated = ledger.rounds * run.prepared.device.arrivals.duration_s
    return Evaluation(
        round=run.round,
        simulated_time_s=simulated,
        everything_charged_s=simulated + ledger.preparation_s + ledger.aggregation_s,
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
    tunes_itself = prepared.scheme.tunes_itself
    first = "check the scale of the data and coding.clip_norm" if tunes_itself else "lower the learning rate"
    if prepared.coded_noise > 0:
        return (
            f"{first}; or, since strong noise makes the Hessian of the coded data indefinite, lower"
            " coding.noise_variance, raise coding.coded_samples, or bound the model with training.model_norm_bound"
        )
    return first
