"""Run many configurations at once: what they have in common is loaded, encoded and computed once."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

from codedfl.coding import CodedData
from codedfl.config._schema import Config
from codedfl.experiment._build import Experiment, build_experiment, share_experiment
from codedfl.experiment._comparison import Comparison
from codedfl.experiment._progress import Observer
from codedfl.experiment._run import check_rounds, entrant_of, search_of
from codedfl.schemes import make_scheme
from codedfl.training import (
    Callback,
    Evaluator,
    PreparedScheme,
    RunResult,
    Scheme,
    Setting,
    StepSizeChoice,
    StopTogether,
    StopTraining,
    UploadCost,
    choose_step_sizes,
    train_together,
)


def sweep(
    configs: Sequence[Config],
    *,
    like: Experiment | None = None,
    observer: Observer | None = None,
    callbacks: tuple[Callback, ...] = (),
) -> list[Comparison]:
    """Run several comparisons, as `run` would one by one, in a fraction of the time.

    Configurations that agree in data, features, fleet, local steps and deadline share them, and their runs advance in lock-step
    (see `codedfl.training.train_together`): noise levels, draws of the coded data, step sizes, server batches and schemes cost
    little more than one of them. A run whose outcome does not depend on what differs, such as FedAvg at several noise levels, is
    trained once. Every number equals that of `run` up to rounding. The coded data of all configurations is in memory at once.

    Nothing is written; ``RunFolder.create(path, config).write_results(comparison)`` does that.

    Args:
        configs: what to compare, and in which settings.
        like: an experiment on the same data as all configurations, with the same seed, so that it is not loaded again.
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
    comparisons: dict[int, Comparison] = {}
    stop = StopTogether()
    for places, family in _families(configs, like, observer or Observer(), (*callbacks, stop)):
        comparisons.update(zip(places, family.compare(stop), strict=True))
    return [comparisons[place] for place in range(len(configs))]


def tune(
    configs: Sequence[Config], *, like: Experiment | None = None, callbacks: tuple[Callback, ...] = ()
) -> list[dict[str, StepSizeChoice]]:
    """Choose step sizes as `sweep` does, without training with them.

    Args:
        configs: the configurations; those whose ``learning_rate.scale`` is a number have nothing to choose.
        like: as for `sweep`.
        callbacks: added to every short run.

    Returns:
        For each configuration the choice of each scheme, by name.

    Raises:
        InputError: as from `sweep`.
        StopTraining: if a callback stopped a run.
    """
    choices: dict[int, dict[str, StepSizeChoice]] = {}
    for places, family in _families(configs, like, Observer(), (*callbacks, StopTogether())):
        choices.update(zip(places, family.choose(), strict=True))
    return [choices[place] for place in range(len(configs))]


def _families(
    configs: Sequence[Config], like: Experiment | None, observer: Observer, callbacks: tuple[Callback, ...]
) -> Iterator[tuple[list[int], _Family]]:
    """Put configurations that share everything but code, schemes and rounds together; with each family, which they are."""
    families: dict[Hashable, list[int]] = {}
    for place, config in enumerate(configs):
        families.setdefault(family_key(config), []).append(place)
    for places in families.values():
        yield places, _Family([configs[place] for place in places], like, observer, callbacks)


def family_key(config: Config) -> Hashable:
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
        self,
        configs: Sequence[Config],
        like: Experiment | None,
        observer: Observer,
        callbacks: tuple[Callback, ...],
    ) -> None:
        self.observer, self.callbacks = observer, callbacks
        observer.on_stage(f"loading {configs[0].data.dataset}")
        self.first = build_experiment(configs[0], like=like)
        if any(config.learning_rate.scale == "grid" for config in configs):
            self.first.setting.federation.require_in_memory()
        self.experiments = [self.first, *(share_experiment(self.first, config) for config in configs[1:])]
        self.keys: list[dict[str, Hashable]] = []
        self.runs: dict[Hashable, _Run] = {}
        for experiment in self.experiments:
            schemes = [make_scheme(name, experiment.config.options.get(name)) for name in experiment.config.schemes]
            self.keys.append({scheme.name: _run_key(scheme, experiment) for scheme in schemes})
            for scheme, key in zip(schemes, self.keys[-1].values(), strict=True):
                self.runs.setdefault(key, _Run(scheme, experiment))
        for run in self.runs.values():
            check_rounds(run.config, run.scheme, run.experiment.setting)

    def compare(self, stop: StopTogether) -> list[Comparison]:
        began = time.perf_counter()
        self.observer.on_stage("solving for the centralised optimum")
        evaluator = Evaluator(self.first.setting, self.first.config.training.evaluation_samples or None)
        _ = evaluator.reference
        for experiment in self.experiments:
            experiment.setting.sharing_gram(self.first.setting)
        self.observer.on_ready(self.first, evaluator)
        outcomes = {} if stop.stopped else self._outcomes(evaluator)
        elapsed = time.perf_counter() - began
        return [
            Comparison(
                experiment,
                evaluator,
                tuple(_in_setting(outcomes[key], experiment.setting) for key in own.values() if key in outcomes),
                elapsed,
            )
            for experiment, own in zip(self.experiments, self.keys, strict=True)
        ]

    def choose(self) -> list[dict[str, StepSizeChoice]]:
        choices = self._step_sizes()
        return [{name: choices[key] for name, key in own.items() if key in choices} for own in self.keys]

    def _outcomes(self, evaluator: Evaluator) -> dict[Hashable, RunResult]:
        runs = self.runs
        try:
            choices = self._step_sizes()
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
            outcomes[key] = replace(result, scale=scales[key], choice=choices.get(key))
        return outcomes

    def _step_sizes(self) -> dict[Hashable, StepSizeChoice]:
        """Choose the step sizes of all runs that want one from a grid, on the same held-out rows."""
        wanted = {key: run for key, run in self.runs.items() if run.config.learning_rate.scale == "grid"}
        preparation, searches = _Preparation(), []
        held_out: dict[float, Setting] = {}
        for run in wanted.values():
            self.observer.on_stage(f"preparing the search for the step size of {run.scheme.title}")
            fraction, own = run.config.learning_rate.validation_fraction, run.experiment.setting
            base = held_out.setdefault(fraction, self.first.held_out(fraction))
            searches.append(
                search_of(run.config, preparation.of(run.scheme, base.with_code(own.code, own.server_batch)))
            )
        if not searches:
            return {}
        self.observer.on_stage(f"choosing {len(searches)} step size(s)")
        choices = dict(zip(wanted, choose_step_sizes(searches, callbacks=self.callbacks), strict=True))
        for key, run in wanted.items():
            self.observer.on_choice(run.scheme, choices[key])
        return choices


def _in_setting(result: RunResult, setting: Setting) -> RunResult:
    """Return a shared outcome as that of the configuration that the setting belongs to."""
    return replace(result, prepared=replace(result.prepared, setting=setting))


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
