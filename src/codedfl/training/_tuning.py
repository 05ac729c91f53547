"""A step size for each scheme from one common grid, for fair comparisons."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from codedfl.data import Federation
from codedfl.training._callbacks import Callback, StopTraining
from codedfl.training._evaluation import Evaluator
from codedfl.training._learning_rate import LearningRate
from codedfl.training._loop import Entrant, StopTogether, train_together
from codedfl.training._result import RunResult, StepSizeChoice, Trial
from codedfl.training._scheme import PreparedScheme
from codedfl.training._setting import Setting


def validation_setting(setting: Setting, fraction: float = 0.1) -> Setting:
    """Hold a part of every device's samples out, as the test set of a setting in which step sizes can be chosen."""
    return setting.with_federation(setting.federation.split_validation(fraction, setting.streams.at("validation")))


@dataclass(frozen=True)
class Search:
    """What to tune, and how.

    Args:
        prepared: the scheme, in the setting to tune it in.
        grid: step sizes in units of ``1 / L``.
        rounds: length of the short runs.
        decay_rounds: ``beta`` of the learning rate, 0 for constant.
        model_norm_bound: as in `train`.
    """

    prepared: PreparedScheme
    grid: Sequence[float]
    rounds: int
    decay_rounds: float = 0.0
    model_norm_bound: float | None = None

    def entrant(self, scale: float, evaluator: Evaluator, callbacks: Sequence[Callback]) -> Entrant:
        """Return the short run of one step size, which is evaluated at its end alone."""
        return Entrant(
            self.prepared,
            LearningRate.relative(scale, self.prepared.setting.gram.smoothness, self.decay_rounds),
            self.rounds,
            evaluator=evaluator,
            evaluate_every=self.rounds,
            model_norm_bound=self.model_norm_bound,
            callbacks=callbacks,
        )


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

    The scheme trains for all step sizes in lock-step, and the model that it returns is scored on its setting's test set: prepare
    it in a `validation_setting`, so that the real test data plays no role. Ties go to the lower training loss.
    If every step size diverges, the smallest is returned, and the run that uses it will say so.

    Args:
        prepared: what to tune, in the setting to tune it in.
        grid: step sizes in units of ``1 / L``.
        rounds: length of the short runs.
        decay_rounds: ``beta`` of the learning rate, 0 for constant.
        model_norm_bound: as in `train`.
        callbacks: of each short run; one that stops a run stops the search.
        on_trial: called with each short run at the end of the search, in the order of the grid.

    Returns:
        The choice, with all trials.

    Raises:
        StopTraining: if a callback stopped a run.
    """
    search = Search(prepared, grid, rounds, decay_rounds, model_norm_bound)
    (choice,) = choose_step_sizes([search], callbacks=callbacks)
    if on_trial:
        for trial in choice.trials:
            on_trial(trial)
    return choice


def choose_step_sizes(searches: Sequence[Search], *, callbacks: Sequence[Callback] = ()) -> list[StepSizeChoice]:
    """Do several searches at once, all of their short runs in lock-step.

    Args:
        searches: what to tune.
        callbacks: of every short run; one that stops a run stops all searches.

    Returns:
        The choice of each, as from `choose_step_size`.

    Raises:
        StopTraining: if a callback stopped a run.
    """
    hooks = (*callbacks, StopTogether())
    evaluators: dict[Federation, Evaluator] = {}
    entrants = []
    for search in searches:
        setting = search.prepared.setting
        evaluator = evaluators.setdefault(setting.federation, Evaluator(setting))
        entrants += [search.entrant(scale, evaluator, hooks) for scale in search.grid]
    results = iter(train_together(entrants))
    return [_best(search.grid, [next(results) for _ in search.grid]) for search in searches]


def _best(grid: Sequence[float], results: Sequence[RunResult]) -> StepSizeChoice:
    trials = []
    for scale, result in zip(grid, results, strict=True):
        if result.status == "interrupted":
            raise StopTraining(result.message)
        good = result.status == "completed" and math.isfinite(result.final.score)
        trials.append(Trial(scale, result.final.score if good else -math.inf, result.final.loss if good else math.inf))
    best = max(trials, key=lambda trial: (trial.score, -trial.loss, -trial.scale))
    return StepSizeChoice(best.scale, tuple(trials))
