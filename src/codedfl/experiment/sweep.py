"""Run many configurations at once: what they have in common is loaded, encoded and computed once."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from codedfl.coding import CodedData
from codedfl.experiment.build import Experiment, build_experiment, share_experiment
from codedfl.experiment.comparison import Comparison, Outcome
from codedfl.experiment.config import Config
from codedfl.experiment.observer import Observer
from codedfl.experiment.run import check_rounds, entrant_of, search_of
from codedfl.schemes import make_scheme
from codedfl.training import (
    Callback,
    Evaluator,
    PreparedScheme,
    Scheme,
    Setting,
    StepSizeChoice,
    StopTogether,
    StopTraining,
    UploadCost,
    choose_step_sizes,
    train_together,
    validation_setting,
)


def sweep(
    configs: Sequence[Config], *, observer: Observer | None = None, callbacks: tuple[Callback, ...] = ()
) -> list[Comparison]:
    """Run several comparisons, as `run` would one by one, in a fraction of the time.

    Configurations that agree in data, features, fleet, local steps and deadline share them, and their runs advance in lock-step
    (see `codedfl.training.train_together`): noise levels, draws of the coded data, step sizes, server batches and schemes cost
    little more than one of them. A run whose outcome does not depend on what differs, such as FedAvg at several noise levels, is
    trained once. Every number equals that of `run` up to rounding. The coded data of all configurations is in memory at once.

    Nothing is written; ``RunFolder.create(path, config).write_results(comparison)`` does that.

    Args:
        configs: what to compare, and in which settings.
        observer: told about progress; runs that are shared are reported once.
        callbacks: added to every run; one that raises `StopTraining` ends the sweep, with the results so far kept.

    Returns:
        One comparison for each configuration, in their order. Each has the real time that all that shared its data took.

    Raises:
        InputError: if a configuration, the data or the fleet does not allow it; before any training on that data.

    Example:
        >>> from codedfl.experiment import load_config
        >>> base = [("schemes", ["fedavg", "scfl"]), ("training.rounds", 20), ("learning_rate.scale", 0.5)]
        >>> quiet, noisy = sweep([load_config(overrides=[*base, ("coding.noise_variance", v)]) for v in (0.1, 10.0)])
        >>> quiet["scfl"].final.loss < noisy["scfl"].final.loss, quiet["fedavg"].final == noisy["fedavg"].final
        (True, True)
    """
    families: dict[Hashable, list[int]] = {}
    for place, config in enumerate(configs):
        families.setdefault(_family_key(config), []).append(place)
    comparisons: dict[int, Comparison] = {}
    stop = StopTogether()
    for places in families.values():
        family = _Family([configs[place] for place in places], observer or Observer(), (*callbacks, stop), stop)
        comparisons.update(zip(places, family.compare(), strict=True))
    return [comparisons[place] for place in range(len(configs))]


def _family_key(config: Config) -> Hashable:
    """Return all that data, fleet, channel and clock of a round depend on."""
    training = config.training
    return (
        config.seed,
        config.data,
        config.features,
        config.fleet,
        training.local_steps,
        training.deadline_s,
        training.cohort,
        training.evaluation_samples,
        training.workers,
    )


def _code_key(scheme: Scheme, setting: Setting) -> Hashable:
    """Return all of the setting's code that a scheme depends on."""
    code = setting.code
    if scheme.upload is None:
        return code.uploading.tobytes()
    noise = (code.noise_variance.tobytes(), code.label_noise_variance.tobytes()) if scheme.upload.noise else None
    return code.coded_samples, code.encoder, code.clip_norm, code.uploading.tobytes(), code.draw, noise


def _prepared_key(scheme: Scheme, setting: Setting) -> Hashable:
    """Return all that a prepared scheme depends on, within a family."""
    return scheme, setting.federation, _code_key(scheme, setting), setting.server_batch if scheme.server else None


def _run_key(scheme: Scheme, experiment: Experiment) -> Hashable:
    """Return all that the outcome of a run depends on, within a family."""
    training, rate = experiment.config.training, experiment.config.learning_rate
    return (
        _prepared_key(scheme, experiment.setting),
        rate if rate.scale == "grid" else (rate.scale, rate.decay_rounds),
        *(training.rounds, training.total_time_s, training.evaluations),
        *(training.initial_std, training.model_norm_bound),
    )


@dataclass(frozen=True)
class _Run:
    scheme: Scheme
    experiment: Experiment

    @property
    def config(self) -> Config:
        return self.experiment.config


class _Family:
    """Configurations that share data, fleet and channel."""

    def __init__(
        self, configs: Sequence[Config], observer: Observer, callbacks: tuple[Callback, ...], stop: StopTogether
    ) -> None:
        self.configs, self.observer, self.callbacks, self.stop = configs, observer, callbacks, stop

    def compare(self) -> list[Comparison]:
        began = time.perf_counter()
        self.observer.on_stage(f"loading {self.configs[0].data.dataset}")
        first = build_experiment(self.configs[0])
        if any(config.learning_rate.scale == "grid" for config in self.configs):
            first.setting.federation.require_in_memory()
        self.observer.on_stage("solving for the centralised optimum")
        evaluator = Evaluator(first.setting, first.config.training.evaluation_samples or None)
        _ = evaluator.reference
        self.observer.on_ready(first, evaluator)
        experiments = [first, *(share_experiment(first, config) for config in self.configs[1:])]
        keys: list[dict[str, Hashable]] = []
        runs: dict[Hashable, _Run] = {}
        for experiment in experiments:
            schemes = [make_scheme(name, experiment.config.options.get(name)) for name in experiment.config.schemes]
            keys.append({scheme.name: _run_key(scheme, experiment) for scheme in schemes})
            for scheme, key in zip(schemes, keys[-1].values(), strict=True):
                runs.setdefault(key, _Run(scheme, experiment))
        for run in runs.values():
            check_rounds(run.config, run.scheme, run.experiment.setting)
        outcomes = {} if self.stop.stopped else self._outcomes(runs, first.setting, evaluator)
        elapsed = time.perf_counter() - began
        return [
            Comparison(
                experiment,
                evaluator,
                tuple(_in_setting(outcomes[key], experiment.setting) for key in own.values() if key in outcomes),
                elapsed,
            )
            for experiment, own in zip(experiments, keys, strict=True)
        ]

    def _outcomes(self, runs: dict[Hashable, _Run], setting: Setting, evaluator: Evaluator) -> dict[Hashable, Outcome]:
        try:
            choices = self._step_sizes(runs, setting)
        except StopTraining:
            return {}
        given = {key: run.config.learning_rate.scale for key, run in runs.items()}
        scales = {key: choices[key].scale if key in choices else float(scale) for key, scale in given.items()}
        preparation, entrants = _Preparation(), []
        for key, run in runs.items():
            self.observer.on_stage(f"preparing {run.scheme.title}")
            prepared = preparation.of(run.scheme, run.experiment.setting)
            callbacks = (*self.callbacks, *self.observer.callbacks(run.scheme))
            entrants.append(entrant_of(run.config, prepared, scales[key], evaluator, callbacks))
        outcomes = {}
        for key, result in zip(runs, train_together(entrants), strict=True):
            self.observer.on_outcome(result)
            outcomes[key] = Outcome(result, scales[key], choices.get(key))
        return outcomes

    def _step_sizes(self, runs: dict[Hashable, _Run], setting: Setting) -> dict[Hashable, StepSizeChoice]:
        """Choose the step sizes of all runs that want one from a grid, on the same held-out rows."""
        wanted = {key: run for key, run in runs.items() if run.config.learning_rate.scale == "grid"}
        if not wanted:
            return {}
        fractions = {run.config.learning_rate.validation_fraction for run in wanted.values()}
        held_out = {fraction: validation_setting(setting, fraction) for fraction in fractions}
        preparation, searches = _Preparation(), []
        for run in wanted.values():
            self.observer.on_stage(f"preparing the search for the step size of {run.scheme.title}")
            base, own = held_out[run.config.learning_rate.validation_fraction], run.experiment.setting
            _ = base.gram  # so that it is shared
            searches.append(
                search_of(run.config, preparation.of(run.scheme, base.with_code(own.code, own.server_batch)))
            )
        self.observer.on_stage(f"choosing {len(searches)} step size(s)")
        choices = dict(zip(wanted, choose_step_sizes(searches, callbacks=self.callbacks), strict=True))
        for key, run in wanted.items():
            self.observer.on_choice(run.scheme, choices[key])
        return choices


def _in_setting(outcome: Outcome, setting: Setting) -> Outcome:
    """Return a shared outcome as that of the configuration that the setting belongs to."""
    result = outcome.result
    return replace(outcome, result=replace(result, prepared=replace(result.prepared, setting=setting)))


class _Preparation:
    """Prepares schemes so that equal ones are the same object, and with them the work that they share."""

    def __init__(self) -> None:
        self.prepared: dict[Hashable, PreparedScheme] = {}
        self.uploads: dict[Hashable, tuple[tuple[CodedData, ...], UploadCost | None]] = {}

    def of(self, scheme: Scheme, setting: Setting) -> PreparedScheme:
        key = _prepared_key(scheme, setting)
        if key not in self.prepared:
            self.prepared[key] = self._prepare(scheme, setting)
        return self.prepared[key]

    def _prepare(self, scheme: Scheme, setting: Setting) -> PreparedScheme:
        """Do as `Scheme.prepare`, but take coded data that stands for all rows of the same code from an earlier scheme."""
        device = scheme.device.plan(setting)
        if scheme.upload is None or not device.coded_for_all:
            return scheme.prepare(setting)
        key = (scheme.upload, setting.federation, device.coded_rows, _code_key(scheme, setting))
        if key not in self.uploads:
            self.uploads[key] = scheme.upload.prepare(setting, device)
        coded, cost = self.uploads[key]
        server = scheme.server.plan(setting, coded) if scheme.server else None
        return PreparedScheme(scheme, setting, device, server, coded, cost)
