"""The plan: a forecast of every scheme, the one to use, and its file: a configuration with the prediction in a comment."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from codedfl.config import Config, to_toml
from codedfl.errors import InputError
from codedfl.experiment import Experiment, build_experiment
from codedfl.files import plain
from codedfl.parallel import one_blas_thread
from codedfl.planning._folds import make_folds
from codedfl.planning._forecast import Forecast, Target, forecast, reason_against
from codedfl.planning._paths import reference_values
from codedfl.plugins import blaming_plugins, find_plugin
from codedfl.progress import Progress
from codedfl.schemes import DEFAULT_SCHEMES, SCHEMES, make_scheme
from codedfl.training import Evaluator, RunResult
from codedfl.typing import ShortRepr

MARGIN = 1.5
"""How much longer than the latest likely time a planned run takes."""


@dataclass(frozen=True, repr=False)
class Plan(ShortRepr):
    """The forecasts of all schemes, and the choice.

    Args:
        config: what was planned for.
        target: what is to be achieved.
        forecasts: one per scheme, the chosen one first, then those that reach the target, by time.
        chosen: the name of the scheme to use; None if no scheme can.
        metric: ``accuracy`` or ``r2``.
        centralised: the centralised score that held-out rows of the training data predict.
        held_out: rows held out.
    """

    config: Config
    target: Target
    forecasts: tuple[Forecast, ...]
    chosen: str | None
    metric: str
    centralised: float
    held_out: int

    def __getitem__(self, scheme: str) -> Forecast:
        """Return the forecast of a scheme by its name."""
        return {each.scheme: each for each in self.forecasts}[scheme]

    @property
    def choice(self) -> Forecast | None:
        """The forecast of the chosen scheme."""
        return None if self.chosen is None else self[self.chosen]

    @property
    def training_s(self) -> float:
        """Seconds of training that reach the target with a margin, or that are left of the time given."""
        choice = self.choice
        if choice is None or choice.one_shot:
            return self.config.training.total_time_s
        if self.target.time_s is not None:
            left = self.target.time_s - choice.preparation_total_s
        else:
            latest = choice.high_s or 2.0 * (choice.time_s or 0.0)
            left = MARGIN * (latest - choice.preparation_total_s)
        return max(math.ceil(left), 10.0 * choice.round_s)

    def planned_config(self) -> Config:
        """Return a complete configuration that trains the chosen scheme for long enough.

        Raises:
            InputError: if there is nothing to run.
        """
        if self.chosen is None:
            raise InputError("no scheme can be planned for, so there is no configuration to write: change the setting.")
        training = self.config.training.model_copy(update={"total_time_s": float(self.training_s), "rounds": 0})
        return self.config.model_copy(update={"schemes": (self.chosen,), "training": training})

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers, strings, lists and dictionaries."""
        values: dict[str, Any] = plain(
            {
                "dataset": self.config.data.dataset,
                "seed": self.config.seed,
                "target": {"within": self.target.within, "time_s": self.target.time_s},
                "metric": self.metric,
                "centralised": self.centralised,
                "held_out_rows": self.held_out,
                "chosen": self.chosen,
                "total_time_s": self.training_s if self.choice else None,
                "schemes": [asdict(each) for each in self.forecasts],
            }
        )
        return values


@blaming_plugins()
def make_plan(
    config: Config,
    target: Target | None = None,
    *,
    experiment: Experiment | None = None,
    progress: Progress | None = None,
) -> Plan:
    """Predict every scheme in the setting of a configuration, and choose the best.

    The test data plays no part: scores are those of held-out rows of the training data.

    Args:
        config: data, fleet, channel and code. Its schemes are compared; all there are if they are the default.
        target: what is to be achieved.
        experiment: the configuration's data, fleet and code, if already built.
        progress: where to report progress.

    Raises:
        InputError: if the configuration or the data is unsuitable.

    Example:
        >>> from codedfl.config import load_config
        >>> plan = make_plan(load_config(overrides={"schemes": ["fedavg", "momentum"]}))
        >>> plan.chosen, plan["momentum"].best_below < plan["fedavg"].best_below
        ('momentum', True)
    """
    target, progress = target or Target(), progress or Progress()
    _require_supported(config)
    if experiment is None:
        progress.update(f"loading {config.data.dataset}")
        experiment = build_experiment(config)
    setting = experiment.setting
    with setting.workers, one_blas_thread():
        progress.update("second moments of the training data")
        folds = make_folds(setting)
        for index, fold in enumerate(folds):
            progress.update("eigenvectors", index, len(folds))
            reference_values(fold)
        progress.close("eigenvectors")
        names = config.schemes
        if names == DEFAULT_SCHEMES:
            names = tuple(name for name in SCHEMES if not make_scheme(name).private)
        forecasts = []
        for index, name in enumerate(names):
            progress.update("predicting", index, len(names), name)
            forecasts.append(_forecast(name, experiment, folds, target))
        progress.close("predicting")
    scores = [float(reference_values(fold).mean()) for fold in folds]
    chosen = _best(forecasts, target)
    explained = [
        each if each is chosen else replace(each, reason=reason_against(each, chosen, target)) for each in forecasts
    ]
    return Plan(
        config,
        target,
        tuple(sorted(explained, key=lambda each: _place(each, chosen, target))),
        chosen.scheme if chosen else None,
        "accuracy" if setting.federation.task == "classification" else "r2",
        float(np.mean(scores)),
        sum(len(fold.data.test_labels) for fold in folds),
    )


def _forecast(name: str, experiment: Experiment, folds: Any, target: Target) -> Forecast:
    scheme = make_scheme(name, experiment.config.options.get(name))
    try:
        plan = scheme.plan(experiment.setting, experiment.traces.get(name))
        scheme.require_possible(experiment.setting, plan)
    except InputError as error:
        return Forecast(name, scheme.title, "impossible", reason=str(error))
    if scheme.forecast is None:
        plugin = find_plugin("scheme", name)
        package = f" of {plugin.package or plugin.target}" if plugin else ""
        return Forecast(
            name, scheme.title, "impossible", reason=f"a scheme{package} that does not say how to predict it"
        )
    return forecast(scheme, experiment, plan, folds, target)


def _best(forecasts: list[Forecast], target: Target) -> Forecast | None:
    """Return the scheme that reaches the target first; otherwise the one that gets closest to the optimum."""
    if target.time_s is not None:
        ready = [each for each in forecasts if each.below_in_time is not None]
        return min(ready, key=lambda each: (each.below_in_time, each.time_s or math.inf), default=None)
    reach = [each for each in forecasts if each.time_s is not None]
    if reach:
        return min(reach, key=lambda each: each.time_s or 0.0)
    able = [each for each in forecasts if math.isfinite(each.best_below)]
    return min(able, key=lambda each: each.best_below, default=None)


def _place(each: Forecast, chosen: Forecast | None, target: Target) -> tuple[bool, float, float]:
    is_chosen = chosen is not None and each.scheme == chosen.scheme
    if target.time_s is not None:
        below = math.inf if each.below_in_time is None else each.below_in_time
        return not is_chosen, below, each.preparation_total_s
    return not is_chosen, math.inf if each.time_s is None else each.time_s, each.best_below


def _require_supported(config: Config) -> None:
    """Refuse what the prediction leaves out."""
    unsupported: Mapping[str, float] = {
        "learning_rate.decay_rounds": config.learning_rate.decay_rounds,
        "training.model_norm_bound": config.training.model_norm_bound,
        "training.initial_std": config.training.initial_std,
        "privacy.epsilon": config.privacy.epsilon,
    }
    for name, value in unsupported.items():
        if value:
            raise InputError(f"{name} = {value:g} cannot be planned for: set it to 0.")


MARK = "# plan: "
"""What the line with the prediction begins with; to a TOML reader it is a comment."""


@dataclass(frozen=True)
class Promise:
    """What a plan predicted for the scheme that it chose.

    Args:
        scheme: its name.
        within: points below the centralised score to get within.
        time_s: predicted time to there, everything charged; None if it was not predicted to get there.
        low_s: earliest likely time.
        high_s: latest likely time; None without an upper end.
    """

    scheme: str
    within: float
    time_s: float | None
    low_s: float | None
    high_s: float | None


@dataclass(frozen=True)
class Outcome:
    """A promise and what became of it.

    Args:
        promise: the prediction.
        measured_s: time of the first evaluation within the points promised, everything charged; None if there was none.
    """

    promise: Promise
    measured_s: float | None

    @property
    def in_interval(self) -> bool:
        """Whether the measured time lies between the earliest and the latest likely one."""
        low, high = self.promise.low_s or 0.0, self.promise.high_s
        if self.measured_s is None:
            return self.promise.time_s is None or high is None
        return low <= self.measured_s and (high is None or self.measured_s <= high)


def plan_to_toml(plan: Plan) -> str:
    """Write the planned configuration as TOML, with the prediction as a comment in its first line."""
    choice = plan.choice
    config = plan.planned_config()
    assert choice is not None
    promise = Promise(choice.scheme, plan.target.within, choice.time_s, choice.low_s, choice.high_s)
    return f"{MARK}{json.dumps(asdict(promise))}\n\n{to_toml(config)}"


def read_promise(path: Path) -> Promise:
    """Read the prediction from a plan.

    Raises:
        InputError: if the file cannot be read or holds no prediction.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        line = next(line for line in lines if line.startswith(MARK))
        return Promise(**json.loads(line.removeprefix(MARK)))
    except OSError as error:
        raise InputError(
            f"--plan = {path} cannot be read ({error.strerror}): give a file of `codedfl plan --out`."
        ) from error
    except (StopIteration, ValueError, TypeError) as error:
        raise InputError(f"--plan = {path} holds no prediction: give a file of `codedfl plan --out`.") from error


def outcome_of(promise: Promise, result: RunResult, evaluator: Evaluator) -> Outcome:
    """Hold a run against what was promised."""
    reference = evaluator.reference
    if reference is None:
        return Outcome(promise, None)
    enough = reference.score - promise.within / 100 - 1e-12
    measured = next((point.everything_charged_s for point in result.curve if point.score >= enough), None)
    return Outcome(promise, measured)
