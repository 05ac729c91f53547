"""The choice of a step size for each scheme from one common grid, for fair comparisons."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

from codedfl.data import Federation
from codedfl.setting import Setting
from codedfl.streams import Streams
from codedfl.training.protocol._scheme import PreparedScheme
from codedfl.training.run._callbacks import Callback, StopTraining
from codedfl.training.run._evaluation import Evaluator
from codedfl.training.run._learning_rate import LearningRate
from codedfl.training.run._loop import StopTogether, train_together
from codedfl.training.run._result import RunResult, StepSizeChoice, Trial
from codedfl.training.run._run import Run

_held_out: WeakKeyDictionary[Federation, dict[tuple[float, Streams], Federation]] = WeakKeyDictionary()


def validation_setting(setting: Setting, fraction: float) -> Setting:
    """Return a setting for choosing step sizes, with a fraction of every device's samples held out as its test set.

    Settings on the same data share the held-out rows.
    """
    known = _held_out.setdefault(setting.federation, {})
    key = fraction, setting.streams
    if key not in known:
        known[key] = setting.federation.split_validation(fraction, setting.streams.at("validation"))
    return replace(setting, federation=known[key])


@dataclass(frozen=True)
class Search:
    """A step-size search for one scheme.

    Args:
        prepared: the scheme, in the setting to tune it in.
        grid: step sizes in units of ``1 / L``.
        rounds: length of the short runs.
        decay_rounds: ``beta`` of the learning rate, 0 for constant.
        model_norm_bound: as in `Run`.
        unstable: step sizes of the grid that are known to diverge and are not tried.
    """

    prepared: PreparedScheme
    grid: Sequence[float]
    rounds: int
    decay_rounds: float = 0.0
    model_norm_bound: float | None = None
    unstable: frozenset[float] = frozenset()

    @property
    def tried(self) -> list[float]:
        """The step sizes of the grid to try."""
        return [scale for scale in self.grid if scale not in self.unstable]

    def run(self, scale: float, evaluator: Evaluator, callbacks: Sequence[Callback]) -> Run:
        """Return the short run of one step size, evaluated only at its end."""
        return Run(
            self.prepared,
            LearningRate.relative(scale, self.prepared.smoothness, self.decay_rounds),
            self.rounds,
            evaluator=evaluator,
            evaluate_every=self.rounds,
            model_norm_bound=self.model_norm_bound,
            callbacks=callbacks,
        )


def choose_step_sizes(searches: Sequence[Search], *, callbacks: Sequence[Callback] = ()) -> list[StepSizeChoice]:
    """Choose, for each scheme, the step size that scores best after a short run.

    All short runs of all searches advance in lock-step. The model that a scheme returns is scored on its setting's test set:
    prepare it in a `validation_setting`, so that the real test data plays no role. Ties go to the lower training loss.
    If every step size diverges, the smallest is returned, and the run that uses it reports the divergence.

    Args:
        searches: one search per scheme.
        callbacks: added to every short run; one that stops a run stops all searches.

    Returns:
        The choice of each, with all trials.

    Raises:
        StopTraining: if a callback stopped a run.
    """
    hooks = (*callbacks, StopTogether())
    evaluators: dict[Federation, Evaluator] = {}
    runs = []
    for search in searches:
        setting = search.prepared.setting
        evaluator = evaluators.setdefault(setting.federation, Evaluator(setting))
        runs += [search.run(scale, evaluator, hooks) for scale in search.tried]
    results = iter(train_together(runs))
    return [_best(search, {scale: next(results) for scale in search.tried}) for search in searches]


def _best(search: Search, results: Mapping[float, RunResult]) -> StepSizeChoice:
    trials = []
    for scale in search.grid:
        result = results.get(scale)
        if result is not None and result.status == "interrupted":
            raise StopTraining(result.message)
        if result is not None and result.status == "completed" and math.isfinite(result.final.score):
            trials.append(Trial(scale, result.final.score, result.final.loss))
        else:
            trials.append(Trial(scale, -math.inf, math.inf))
    best = max(trials, key=lambda trial: (trial.score, -trial.loss, -trial.scale))
    return StepSizeChoice(best.scale, tuple(trials))
