"""A step size for each scheme from one common grid, for fair comparisons."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from codedfl.training.callbacks import Callback, StopTraining
from codedfl.training.evaluation import Evaluator
from codedfl.training.learning_rate import LearningRate
from codedfl.training.loop import train
from codedfl.training.scheme import PreparedScheme
from codedfl.training.setting import Setting


@dataclass(frozen=True)
class Trial:
    """One short run.

    Args:
        scale: the step size in units of ``1 / L``.
        score: accuracy or R2 on the validation data; minus infinity if the run diverged.
        loss: training loss of the last model, infinity if the run diverged.
    """

    scale: float
    score: float
    loss: float


@dataclass(frozen=True)
class StepSizeChoice:
    """The outcome of a search.

    Args:
        scale: the best step size, in units of ``1 / L``.
        trials: every point of the grid, in its order.
    """

    scale: float
    trials: tuple[Trial, ...]

    @property
    def at_edge(self) -> bool:
        """Whether the best is the smallest or largest of the grid, so that a wider grid might do better."""
        return self.scale in (min(t.scale for t in self.trials), max(t.scale for t in self.trials))


def validation_setting(setting: Setting, fraction: float = 0.1) -> Setting:
    """Hold a part of every device's samples out, as the test set of a setting in which step sizes can be chosen."""
    return setting.with_federation(setting.federation.split_validation(fraction, setting.streams.at("validation")))


def choose_step_size(
    prepared: PreparedScheme,
    grid: Sequence[float],
    rounds: int,
    *,
    decay_rounds: float = 0.0,
    model_norm_bound: float | None = None,
    callbacks: Sequence[Callback] = (),
    on_trial: Callable[[Trial], None] | None = None,
) -> StepSizeChoice:
    """Pick the step size that does best after a short run.

    The scheme trains once for each step size, and the model that it returns is scored on its setting's test set: prepare it in a
    `validation_setting`, so that the real test data plays no role. Ties go to the lower training loss.
    If every step size diverges, the smallest is returned, and the run that uses it will say so.

    Args:
        prepared: what to tune, in the setting to tune it in.
        grid: step sizes in units of ``1 / L``.
        rounds: length of the short runs.
        decay_rounds: ``beta`` of the learning rate, 0 for constant.
        model_norm_bound: as in `train`.
        callbacks: of each short run; one that stops a run stops the search.
        on_trial: called after each short run.

    Returns:
        The choice, with all trials.

    Raises:
        StopTraining: if a callback stopped a run.
    """
    evaluator = Evaluator(prepared.setting)
    trials = []
    for scale in grid:
        learning_rate = LearningRate.relative(scale, prepared.setting.gram.smoothness, decay_rounds)
        result = train(
            prepared,
            learning_rate,
            rounds,
            evaluator=evaluator,
            evaluate_every=rounds,
            model_norm_bound=model_norm_bound,
            callbacks=callbacks,
        )
        if result.status == "interrupted":
            raise StopTraining(result.message)
        good = result.status == "completed" and math.isfinite(result.final.score)
        trial = Trial(scale, result.final.score if good else -math.inf, result.final.loss if good else math.inf)
        trials.append(trial)
        if on_trial:
            on_trial(trial)
    best = max(trials, key=lambda trial: (trial.score, -trial.loss, -trial.scale))
    return StepSizeChoice(best.scale, tuple(trials))
