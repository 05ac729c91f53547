"""Train all schemes of a configuration in the same setting."""

from __future__ import annotations

import time

import numpy as np

from codedfl.arrays import FloatArray
from codedfl.experiment.build import Experiment, build_experiment
from codedfl.experiment.comparison import Comparison, Outcome
from codedfl.experiment.config import Config
from codedfl.experiment.folder import RunFolder
from codedfl.experiment.observer import Observer
from codedfl.schemes import make_scheme
from codedfl.training import (
    Callback,
    Checkpoint,
    Evaluator,
    LearningRate,
    PreparedScheme,
    Recorder,
    Scheme,
    Setting,
    StepSizeChoice,
    StopTraining,
    choose_step_size,
    load_checkpoint,
    rounds_within,
    train,
    validation_setting,
)


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
        self.observer.on_stage("solving for the centralised optimum")
        evaluator = Evaluator(experiment.setting)
        _ = evaluator.reference
        self.observer.on_ready(experiment, evaluator)
        schemes = [make_scheme(name, self.config.options.get(name)) for name in self.config.schemes]
        for scheme in schemes:
            self._check(scheme, experiment.setting)
        outcomes: list[Outcome] = []
        try:
            choices = self._step_sizes(schemes, experiment.setting)
            for scheme, choice in zip(schemes, choices, strict=True):
                outcomes.append(self._outcome(scheme, choice, experiment, evaluator))
                self.observer.on_outcome(outcomes[-1].result)
                if outcomes[-1].result.status == "interrupted":
                    break
        except StopTraining:
            pass  # while choosing a step size: what is done is kept
        comparison = Comparison(experiment, evaluator, tuple(outcomes), time.perf_counter() - began)
        if self.folder:
            self.folder.write_results(comparison)
        return comparison

    def _check(self, scheme: Scheme, setting: Setting) -> None:
        """Plan a scheme's rounds: one that cannot run is refused here and not after others have trained for hours."""
        self._rounds(PreparedScheme(scheme, setting, scheme.device.plan(setting), None, (), None))

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
            prepared = scheme.prepare(held_out)
            known[scheme.name] = choose_step_size(
                prepared,
                options.grid,
                max(1, round(options.tuning_share * self._rounds(prepared))),
                decay_rounds=options.decay_rounds,
                model_norm_bound=self.config.training.model_norm_bound or None,
                callbacks=self.callbacks,
                on_trial=lambda _: self.observer.on_trial(),
            )
            self.observer.on_choice(scheme, known[scheme.name])
            if self.folder:
                self.folder.keep_step_sizes(known)
        return [known[scheme.name] for scheme in schemes]

    def _outcome(
        self, scheme: Scheme, choice: StepSizeChoice | None, experiment: Experiment, evaluator: Evaluator
    ) -> Outcome:
        """Train one scheme, from its checkpoint if there is one."""
        options = self.config.learning_rate
        scale = choice.scale if choice else float(options.scale)
        self.observer.on_stage(f"preparing {scheme.title}")
        prepared = scheme.prepare(experiment.setting)
        rounds = self._rounds(prepared)
        records: tuple[Callback, ...] = ()
        resume = None
        if self.folder:
            path, fingerprint = self.folder.checkpoint(scheme.name), self.folder.fingerprint
            records = (Checkpoint(path, fingerprint), Recorder(self.folder.curve(scheme.name), scheme.name))
            resume = load_checkpoint(path, prepared, fingerprint) if path.exists() else None
        result = train(
            prepared,
            LearningRate.relative(scale, experiment.setting.gram.smoothness, options.decay_rounds),
            rounds,
            evaluator=evaluator,
            evaluate_every=max(1, rounds // self.config.training.evaluations),
            model_norm_bound=self.config.training.model_norm_bound or None,
            initial_model=_initial_model(experiment),
            callbacks=(*self.callbacks, *self.observer.callbacks(scheme), *records),
            resume=resume,
        )
        return Outcome(result, scale, choice)

    def _rounds(self, prepared: PreparedScheme) -> int:
        training = self.config.training
        return training.rounds or rounds_within(prepared, training.total_time_s)


def _initial_model(experiment: Experiment) -> FloatArray:
    """Draw ``W_0``, the same for all schemes."""
    federation = experiment.setting.federation
    rng = experiment.setting.streams.at("initial-model")
    draws: FloatArray = rng.standard_normal((federation.dimension, federation.outputs))
    return np.asarray(experiment.config.training.initial_std * draws)
