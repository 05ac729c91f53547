"""Train all schemes of a configuration in the same setting."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from codedfl.config._schema import Config
from codedfl.experiment._build import Experiment, build_experiment
from codedfl.experiment._comparison import Comparison
from codedfl.experiment._progress import Observer
from codedfl.experiment._run_folder import RunFolder
from codedfl.schemes import make_scheme
from codedfl.training import (
    Callback,
    Checkpoint,
    Entrant,
    Evaluator,
    LearningRate,
    PreparedScheme,
    Progress,
    Recorder,
    RunResult,
    Scheme,
    Search,
    Setting,
    StepSizeChoice,
    StopTraining,
    choose_step_sizes,
    load_checkpoint,
    rounds_within,
    train_together,
    validation_setting,
)
from codedfl.typing import FloatArray


def run(
    config: Config,
    *,
    experiment: Experiment | None = None,
    folder: RunFolder | None = None,
    observer: Observer | None = None,
    callbacks: tuple[Callback, ...] = (),
) -> Comparison:
    """Run a comparison.

    Args:
        config: what to compare, and in which setting.
        experiment: the configuration's data, fleet and code, if they have been built already.
        folder: where checkpoints and results go; schemes that it has checkpoints of continue from them. None keeps
            everything in memory.
        observer: told about progress.
        callbacks: added to every run; one that raises `StopTraining` ends the comparison, with the results so far kept.

    Returns:
        The outcome of every scheme.

    Raises:
        InputError: if the configuration, the data or the fleet does not allow it; before any training.

    Example:
        >>> from codedfl.experiment import load_config
        >>> config = load_config(overrides=[("schemes", ["scfl"]), ("training.rounds", 20), ("learning_rate.scale", 0.5)])
        >>> run(config)["scfl"].final.round
        20
    """
    return _Runner(config, folder, observer or Observer(), callbacks).run(experiment)


class _Runner:
    def __init__(
        self, config: Config, folder: RunFolder | None, observer: Observer, callbacks: tuple[Callback, ...]
    ) -> None:
        self.config, self.folder, self.observer, self.callbacks = config, folder, observer, callbacks

    def run(self, experiment: Experiment | None) -> Comparison:
        began = time.perf_counter()
        if experiment is None:
            self.observer.on_stage(f"loading {self.config.data.dataset}")
            experiment = build_experiment(self.config)
        if self.config.learning_rate.scale == "grid":
            experiment.setting.federation.require_in_memory()
        self.observer.on_stage("solving for the centralised optimum")
        evaluator = Evaluator(experiment.setting, self.config.training.evaluation_samples or None)
        _ = evaluator.reference
        self.observer.on_ready(experiment, evaluator)
        schemes = [make_scheme(name, self.config.options.get(name)) for name in self.config.schemes]
        for scheme in schemes:
            check_rounds(self.config, scheme, experiment.setting)
        results: list[RunResult] = []
        try:
            choices = self._step_sizes(schemes, experiment.setting)
            for scheme, choice in zip(schemes, choices, strict=True):
                results.append(self._outcome(scheme, choice, experiment, evaluator))
                self.observer.on_outcome(results[-1])
                if results[-1].status == "interrupted":
                    break
        except StopTraining:
            pass  # while choosing a step size: what is done is kept
        comparison = Comparison(experiment, evaluator, tuple(results), time.perf_counter() - began)
        if self.folder:
            self.folder.write_results(comparison)
        return comparison

    def _step_sizes(self, schemes: list[Scheme], setting: Setting) -> list[StepSizeChoice | None]:
        """Choose a step size for every scheme, all on the same held-out rows."""
        options = self.config.learning_rate
        if options.scale != "grid":
            return [None] * len(schemes)
        held_out = validation_setting(setting, options.validation_fraction)
        known = self.folder.step_sizes() if self.folder else {}
        for scheme in schemes:
            if scheme.name in known:
                continue
            self.observer.on_tuning(scheme, len(options.grid))
            search = search_of(self.config, scheme.prepare(held_out))
            pace = _Pace(search, self.observer)
            (known[scheme.name],) = choose_step_sizes([search], callbacks=(*self.callbacks, pace))
            pace.complete()
            self.observer.on_choice(scheme, known[scheme.name])
            if self.folder:
                self.folder.keep_step_sizes(known)
        return [known[scheme.name] for scheme in schemes]

    def _outcome(
        self, scheme: Scheme, choice: StepSizeChoice | None, experiment: Experiment, evaluator: Evaluator
    ) -> RunResult:
        """Train one scheme, from its checkpoint if there is one."""
        scale = choice.scale if choice else float(self.config.learning_rate.scale)
        self.observer.on_stage(f"preparing {scheme.title}")
        prepared = scheme.prepare(experiment.setting)
        records: tuple[Callback, ...] = ()
        resume = None
        if self.folder:
            path, fingerprint = self.folder.checkpoint(scheme.name), self.folder.fingerprint
            records = (Checkpoint(path, fingerprint), Recorder(self.folder.curve(scheme.name), scheme.name))
            resume = load_checkpoint(path, prepared, fingerprint) if path.exists() else None
        callbacks = (*self.callbacks, *self.observer.callbacks(scheme), *records)
        (result,) = train_together([entrant_of(self.config, prepared, scale, evaluator, callbacks, resume)])
        return replace(result, scale=scale, choice=choice)


def rounds_of(config: Config, prepared: PreparedScheme) -> int:
    """Return how many rounds a configuration gives to a scheme."""
    return config.training.rounds or rounds_within(prepared, config.training.total_time_s)


def check_rounds(config: Config, scheme: Scheme, setting: Setting) -> None:
    """Plan a scheme's rounds: one that cannot run is refused here and not after others have trained for hours."""
    rounds_of(config, PreparedScheme(scheme, setting, scheme.device.plan(setting), None, (), None))


def search_of(config: Config, prepared: PreparedScheme) -> Search:
    """Return the search for the step size of a scheme, prepared where rows are held out."""
    options = config.learning_rate
    return Search(
        prepared,
        options.grid,
        max(1, round(options.tuning_share * rounds_of(config, prepared))),
        options.decay_rounds,
        config.training.model_norm_bound or None,
    )


def entrant_of(
    config: Config,
    prepared: PreparedScheme,
    scale: float,
    evaluator: Evaluator,
    callbacks: tuple[Callback, ...],
    resume: Progress | None = None,
) -> Entrant:
    """Return the run of a scheme with a step size in units of ``1 / L``."""
    rounds = rounds_of(config, prepared)
    return Entrant(
        prepared,
        LearningRate.relative(scale, prepared.setting.gram.smoothness, config.learning_rate.decay_rounds),
        rounds,
        evaluator,
        evaluate_every=max(1, rounds // config.training.evaluations),
        model_norm_bound=config.training.model_norm_bound or None,
        initial_model=_initial_model(prepared.setting, config.training.initial_std),
        callbacks=callbacks,
        resume=resume,
    )


def _initial_model(setting: Setting, std: float) -> FloatArray:
    """Draw ``W_0``, the same for all schemes."""
    shape = setting.federation.dimension, setting.federation.outputs
    draws: FloatArray = setting.streams.at("initial-model").standard_normal(shape)
    return np.asarray(std * draws)


class _Pace(Callback):
    """Tells an observer of a trial whenever as many rounds as one has are done: trials advance, and end, together."""

    def __init__(self, search: Search, observer: Observer) -> None:
        self.rounds_of_a_trial, self.left, self.observer = search.rounds, len(search.grid), observer
        self.rounds = 0

    def on_round(self, progress: Progress) -> None:  # noqa: ARG002
        self.rounds += 1
        if self.rounds % self.rounds_of_a_trial == 0:
            self._tell()

    def complete(self) -> None:
        """Tell of those that diverged before their last round."""
        while self.left:
            self._tell()

    def _tell(self) -> None:
        self.left -= 1
        self.observer.on_trial()
