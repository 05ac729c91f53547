"""Train all schemes of one or several configurations."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from codedfl._progress_display import showing
from codedfl.config import Config
from codedfl.errors import InputError
from codedfl.experiment._build import Experiment, build_experiment, family_key
from codedfl.experiment._comparison import Comparison
from codedfl.experiment._given import Callbacks, Settings, as_callbacks, as_config
from codedfl.experiment._per_run import PerRunCallback
from codedfl.experiment._run_details import start_details
from codedfl.experiment._run_folder import RunFolder
from codedfl.identity import identity
from codedfl.native import backend
from codedfl.private import batch_curvature, coded_spectrum
from codedfl.progress import Progress
from codedfl.schemes import make_scheme
from codedfl.training import (
    Callback,
    Checkpoint,
    DevicePlan,
    Evaluator,
    Idle,
    LearningRate,
    PreparedScheme,
    Recorder,
    ReportProgress,
    Run,
    RunResult,
    Scheme,
    Search,
    Setting,
    StepSizeChoice,
    StopTogether,
    StopTraining,
    UploadCost,
    Uploaded,
    choose_step_sizes,
    load_checkpoint,
    rounds_within,
    train_together,
    unstable_steps,
    validation_setting,
)
from codedfl.typing import FloatArray

Result = TypeVar("Result")

OWN_STEP_MULTIPLES = tuple(2.0**-halvings for halvings in range(7))
"""Multiples of the step of a scheme that tunes itself: 1, and those to back off to if the run diverges."""


def run(
    config: Settings,
    *,
    experiment: Experiment | None = None,
    folder: RunFolder | None = None,
    progress: Progress | bool = False,
    callbacks: Callbacks = (),
) -> Comparison:
    """Run a comparison: train every scheme of a configuration in the same setting, one after the other.

    Args:
        config: what to compare, and in which setting: a configuration, what differs from the defaults (see `load_config`), or the
            path of a TOML file.
        experiment: the configuration's data, fleet and code, if already built.
        folder: where checkpoints and results go; schemes with a checkpoint continue from it. None keeps everything in memory.
        progress: where to report progress; True for a display of its own, on the terminal or in the notebook.
        callbacks: one or several, added to every run; one that raises `StopTraining` ends the comparison, with the results so far
            kept.

    Returns:
        The result of every scheme.

    Raises:
        InputError: if the configuration, the data or the fleet is unsuitable; raised before any training.

    Example:
        >>> run({"schemes": ["scfl"], "training.rounds": 20, "learning_rate.scale": 0.5})["scfl"].final.round
        20
    """
    config, hooks = as_config(config), as_callbacks(callbacks)
    with showing(progress) as shown:
        runner = _Runner([config], shown, hooks, experiment=experiment, folder=folder)
        (comparison,) = runner.compare()
    if folder:
        folder.write_results(comparison)
    return comparison


def sweep(
    configs: Sequence[Settings],
    *,
    like: Experiment | None = None,
    progress: Progress | bool = False,
    callbacks: Callbacks = (),
) -> list[Comparison]:
    """Run several comparisons with the same results as `run`, in a fraction of the time.

    Configurations that agree in data, features, fleet, local steps and deadline share them, and their runs advance in lock-step
    (see `codedfl.training.train_together`): noise levels, draws of the coded data, step sizes, server batches and schemes cost
    little more than one of them. A run whose result does not depend on what differs, such as FedAvg at several noise levels, is
    trained once. Every number equals that of `run` up to rounding. The coded data of all configurations is held in
    memory at once.

    Nothing is written; ``RunFolder.create(path, config).write_results(comparison)`` does that.

    Args:
        configs: what to compare, and in which settings; each as for `run`.
        like: an experiment with the same data and seed as all configurations, so that the data is not loaded again.
        progress: as for `run`; a shared run is reported once.
        callbacks: as for `run`; one that raises `StopTraining` ends the sweep, with the results so far kept.

    Returns:
        One comparison per configuration, in order. Each reports the real time of all comparisons that shared its data.

    Raises:
        InputError: if a configuration, the data or the fleet is unsuitable; raised before any training on that data.

    Example:
        >>> base = {"schemes": ["fedavg", "scfl"], "training.rounds": 20, "learning_rate.scale": 0.5}
        >>> quiet, noisy = sweep([base | {"coding.noise_variance": variance} for variance in (0.1, 10.0)])
        >>> quiet["scfl"].final.loss < noisy["scfl"].final.loss, quiet["fedavg"].final == noisy["fedavg"].final
        (True, True)
    """
    stop = StopTogether()
    hooks = (*as_callbacks(callbacks), stop)

    with showing(progress) as shown:

        def compare(family: list[Config]) -> list[Comparison]:
            return _Runner(family, shown, hooks, like=like, stop=stop).compare()

        return _by_family(configs, compare)


def check(configs: Sequence[Settings], *, like: Experiment | None = None, progress: Progress | bool = False) -> None:
    """Refuse whatever `sweep` would refuse, without training.

    Args:
        configs: what would be compared, and in which settings; each as for `run`.
        like: as for `sweep`.
        progress: as for `run`.

    Raises:
        InputError: if a configuration, the data or the fleet is unsuitable.

    Example:
        >>> check([{"coding.noise_variance": [0.1, 0.2]}])
        Traceback (most recent call last):
        codedfl.errors.InputError: coding.noise_variance has 2 value(s) for 20 device(s): give one, or one for each device.
    """
    with showing(progress) as shown:

        def build(family: list[Config]) -> list[None]:
            _Runner(family, shown, (), like=like)
            return [None] * len(family)

        _by_family(configs, build)


def tune(
    configs: Sequence[Settings],
    *,
    like: Experiment | None = None,
    progress: Progress | bool = False,
    callbacks: Callbacks = (),
) -> list[dict[str, StepSizeChoice]]:
    """Choose step sizes as `sweep` does, without training with them.

    Args:
        configs: the configurations; those whose ``learning_rate.scale`` is a number have nothing to choose.
        like: as for `sweep`.
        progress: where to report progress; True for a display of its own, on the terminal or in the notebook.
        callbacks: one or several, added to every short run.

    Returns:
        For each configuration the choice of each scheme, by name.

    Raises:
        InputError: as from `sweep`.
        StopTraining: if a callback stopped a run.
    """
    stop = StopTogether()
    hooks = (*as_callbacks(callbacks), stop)

    with showing(progress) as shown:

        def choose(family: list[Config]) -> list[dict[str, StepSizeChoice]]:
            return _Runner(family, shown, hooks, like=like, stop=stop).choose()

        return _by_family(configs, choose)


def _by_family(given: Sequence[Settings], work: Callable[[list[Config]], list[Result]]) -> list[Result]:
    """Do the work for each group of configurations that differ only in code, schemes and rounds."""
    configs = [as_config(each) for each in given]
    families: dict[str, list[int]] = {}
    for place, config in enumerate(configs):
        families.setdefault(family_key(config), []).append(place)
    results: dict[int, Result] = {}
    for places in families.values():
        results.update(zip(places, work([configs[place] for place in places]), strict=True))
    return [results[place] for place in range(len(configs))]


@dataclass(frozen=True, eq=False)
class _Job:
    """A scheme to train in an experiment.

    Args:
        scheme: the scheme.
        experiment: that of the first configuration that asked for it.
        plan: the work of the devices, planned once.
        rounds: ``K``.
    """

    scheme: Scheme
    experiment: Experiment
    plan: DevicePlan
    rounds: int

    @property
    def config(self) -> Config:
        return self.experiment.config

    @property
    def tuned(self) -> bool:
        """Whether the step size comes from a grid."""
        return self.config.learning_rate.scale == "grid" and not self.scheme.tunes_itself and not self.covered_by_upload

    @property
    def covered_by_upload(self) -> bool:
        """Whether devices send nothing but an upload with an epsilon, so that the step may depend on that alone."""
        return self.experiment.setting.privacy is not None and isinstance(self.scheme.device, Idle)

    def scale(self, choice: StepSizeChoice | None) -> float | None:
        """Return the step size in units of ``1 / L``: chosen, or given; None for a scheme that tunes itself."""
        if self.scheme.tunes_itself:
            return None
        if choice:
            return choice.scale
        return 1.0 if self.config.learning_rate.scale == "grid" else float(self.config.learning_rate.scale)

    def rates(self, choice: StepSizeChoice | None, prepared: PreparedScheme) -> tuple[LearningRate, ...]:
        """Return the learning rate, followed by smaller ones to back off to if the run diverges.

        A step that may depend on the upload alone is relative to the curvature of the coded data instead of ``L``.
        """
        scale = self.scale(choice)
        if scale is None:
            # To back off would be to look at the loss, which is not part of what a private scheme releases.
            multiples = (1.0,) if self.scheme.private else OWN_STEP_MULTIPLES
            return tuple(LearningRate(multiple) for multiple in multiples)
        smaller = sorted((t.scale for t in choice.trials if t.scale < scale), reverse=True) if choice else []
        decay_rounds = self.config.learning_rate.decay_rounds
        smoothness = _coded_curvature(prepared) if self.covered_by_upload else prepared.setting.gram.smoothness
        return tuple(LearningRate.relative(each, smoothness, decay_rounds) for each in (scale, *smaller))


class _Runner:
    """Configurations of one family: alone with a run folder (`run`), or several in lock-step (`sweep`)."""

    def __init__(
        self,
        configs: Sequence[Config],
        progress: Progress,
        callbacks: tuple[Callback, ...],
        *,
        like: Experiment | None = None,
        experiment: Experiment | None = None,
        folder: RunFolder | None = None,
        stop: StopTogether | None = None,
    ) -> None:
        self.progress, self.callbacks, self.folder, self.stop = progress, callbacks, folder, stop
        self.began = time.perf_counter()
        self.remarks: list[str] = []
        if experiment is None:
            progress.update(f"loading {configs[0].data.dataset}")
            experiment = build_experiment(configs[0], like=like)
        self.first = experiment
        self.remarks += experiment.remarks
        self.experiments = [experiment, *(experiment.with_code_of(config) for config in configs[1:])]
        self.keys: list[dict[str, str]] = []
        self.jobs: dict[str, _Job] = {}
        for each in self.experiments:
            schemes = [make_scheme(name, each.config.options.get(name)) for name in each.config.schemes]
            self.keys.append({scheme.name: _run_identity(scheme, each) for scheme in schemes})
            for scheme, key in zip(schemes, self.keys[-1].values(), strict=True):
                if key not in self.jobs:
                    self.jobs[key] = self._job(scheme, each)
        if any(job.tuned for job in self.jobs.values()):
            experiment.setting.federation.require_in_memory()

    def _job(self, scheme: Scheme, experiment: Experiment) -> _Job:
        """Plan a scheme's rounds. A scheme that cannot run is refused here, not after others have trained for hours."""
        trace = experiment.traces.get(scheme.name)
        plan = scheme.device.plan(experiment.setting, trace)
        scheme.require_possible(experiment.setting, plan)
        rounds = rounds_of(experiment.config, scheme, experiment.setting, plan)
        if trace is not None and plan.broadcasts and rounds > trace.rounds:
            raise InputError(
                f"fleet.trace has {trace.rounds} round(s) but {scheme.title} is to train for {rounds}: record more, or lower "
                "training.total_time_s or training.rounds."
            )
        return _Job(scheme, experiment, plan, rounds)

    def compare(self) -> list[Comparison]:
        """Choose step sizes, train, and return one comparison per configuration."""
        with self.first.setting.workers:  # its threads end with the work
            self.progress.update("solving for the centralised optimum")
            evaluator = Evaluator(self.first.setting, self.first.config.training.evaluation_samples or None)
            self._say_sizes(evaluator)
            if self.folder and not self.folder.has_details:
                plans = [(job.scheme, job.plan, job.rounds) for job in self.jobs.values()]
                self.folder.keep_details(start_details(self.first, evaluator, plans))
            results = {} if self.stop and self.stop.stopped else self._results(evaluator)
        elapsed = time.perf_counter() - self.began
        return [
            Comparison(
                experiment,
                evaluator,
                tuple(_in_setting(results[key], experiment.setting) for key in own.values() if key in results),
                elapsed,
                tuple(self.remarks),
            )
            for experiment, own in zip(self.experiments, self.keys, strict=True)
        ]

    def choose(self) -> list[dict[str, StepSizeChoice]]:
        """Return the step sizes of each configuration, by scheme."""
        with self.first.setting.workers:  # its threads end with the work
            choices = self._choices()
        return [{name: choices[key] for name, key in own.items() if key in choices} for own in self.keys]

    def _say_sizes(self, evaluator: Evaluator) -> None:
        federation, reference = self.first.setting.federation, evaluator.reference
        text = f"{federation.total_samples} samples on {federation.devices} devices, {federation.dimension} features"
        if reference:
            text += f"; centralised {evaluator.metric} {reference.score:.4f}"
        self.progress.say(text)

    def _results(self, evaluator: Evaluator) -> dict[str, RunResult]:
        """Train all jobs: in lock-step, or one by one so that finished results are kept when the run stops."""
        try:
            choices = self._choices()
        except StopTraining:
            return {}
        uploads = _Uploads()
        groups = [list(self.jobs)] if self.stop else [[key] for key in self.jobs]
        results: dict[str, RunResult] = {}
        for group in groups:
            runs = [self._run(self.jobs[key], choices.get(key), evaluator, uploads) for key in group]
            for key, result in zip(group, train_together(runs), strict=True):
                choice = choices.get(key)
                results[key] = replace(result, scale=self.jobs[key].scale(choice), choice=choice)
                self.progress.say(
                    f"{result.scheme.title}: {result.status}, {result.final.score:.4f} after "
                    f"{result.progress.ledger.rounds} rounds"
                )
            if results[group[-1]].status == "interrupted":
                break
        return results

    def _run(self, job: _Job, choice: StepSizeChoice | None, evaluator: Evaluator, uploads: _Uploads) -> Run:
        """Return the run of a job, resumed from its checkpoint if it has one."""
        config, training = job.config, job.config.training
        self.progress.update(f"preparing {job.scheme.title}")
        prepared = uploads.prepare(job.scheme, job.experiment.setting, job.plan)
        setting = prepared.setting
        rate, *smaller = job.rates(choice, prepared)
        own = (
            each.for_run(job.experiment, job.scheme) if isinstance(each, PerRunCallback) else each
            for each in self.callbacks
        )
        callbacks: tuple[Callback, ...] = (*own, ReportProgress(self.progress, job.scheme.title))
        if self.folder:
            callbacks += (
                Checkpoint(self.folder.checkpoint(job.scheme.name), identity(config)),
                Recorder(self.folder.curve(job.scheme.name), job.scheme.name),
            )
        run = Run(
            prepared,
            rate,
            job.rounds,
            evaluator,
            evaluate_every=max(1, job.rounds // training.evaluations),
            model_norm_bound=training.model_norm_bound or None,
            initial_model=_initial_model(setting, training.initial_std),
            callbacks=callbacks,
            fallbacks=tuple(smaller),
        )
        if self.folder and self.folder.checkpoint(job.scheme.name).exists():
            run.progress, computed_by = load_checkpoint(self.folder.checkpoint(job.scheme.name), run, identity(config))
            if computed_by != backend():
                self.remarks.append(
                    f"{job.scheme.title} was begun on the {computed_by} backend and resumed on {backend()}: its result differs "
                    "in rounding from a run on either alone."
                )
        return run

    def _choices(self) -> dict[str, StepSizeChoice]:
        """Choose the step sizes of all jobs that use a grid, on the same held-out rows."""
        wanted = {key: job for key, job in self.jobs.items() if job.tuned}
        known = self.folder.step_sizes() if self.folder else {}
        choices = {key: known[job.scheme.name] for key, job in wanted.items() if job.scheme.name in known}
        uploads = _Uploads()
        missing = [key for key in wanted if key not in choices]
        for group in [missing] if self.stop else [[key] for key in missing]:
            if not group:
                continue
            searches = [self._search(wanted[key], uploads) for key in group]
            title = f"step size of {wanted[group[0]].scheme.title}" if len(group) == 1 else f"{len(group)} step sizes"
            pace = _Pace(self.progress, title, sum(search.rounds * len(search.tried) for search in searches))
            found = choose_step_sizes(searches, callbacks=(*self.callbacks, pace))
            self.progress.close(title)
            for key, choice in zip(group, found, strict=True):
                choices[key] = known[wanted[key].scheme.name] = choice
                self.progress.say(f"{wanted[key].scheme.title}: step size {choice.scale:g} / L")
            if self.folder:
                self.folder.keep_step_sizes(known)
        return choices

    def _search(self, job: _Job, uploads: _Uploads) -> Search:
        """Return the step-size search of a job, in a setting with held-out rows."""
        options, training = job.config.learning_rate, job.config.training
        self.progress.update(f"preparing the search for the step size of {job.scheme.title}")
        setting = validation_setting(job.experiment.setting, options.validation_fraction)
        plan = job.scheme.device.plan(setting, job.experiment.traces.get(job.scheme.name))
        prepared = uploads.prepare(job.scheme, setting, plan)
        rounds = rounds_of(job.config, job.scheme, setting, plan)
        return Search(
            prepared,
            options.grid,
            max(1, round(options.tuning_share * rounds)),
            options.decay_rounds,
            training.model_norm_bound or None,
            self._unstable(job, prepared, rounds),
        )

    def _unstable(self, job: _Job, prepared: PreparedScheme, rounds: int) -> frozenset[float]:
        """Return the step sizes of the grid that cannot converge; the empty set if none would be left to try."""
        options, smoothness = job.config.learning_rate, prepared.setting.gram.smoothness
        # A bounded model cannot diverge, and a decaying step size may start above the stable range.
        if not options.only_stable or job.config.training.model_norm_bound or options.decay_rounds:
            return frozenset()
        self.progress.update(f"stability of {job.scheme.title}")
        steps = {scale / smoothness: scale for scale in options.grid}
        unstable = frozenset(steps[step] for step in unstable_steps(prepared, list(steps), rounds))
        if len(unstable) < len(options.grid):
            return unstable
        self.remarks.append(
            f"no step size of learning_rate.grid is stable for {job.scheme.title}: noise this strong makes the Hessian of the"
            " coded data indefinite, so lower coding.noise_variance, raise coding.coded_samples, bound the model with"
            " training.model_norm_bound, or add smaller steps."
            if prepared.coded and prepared.coded[0].noise_variance > 0
            else f"no step size of learning_rate.grid is stable for {job.scheme.title}: add smaller steps."
        )
        self.progress.say(self.remarks[-1])
        return frozenset()


def rounds_of(config: Config, scheme: Scheme, setting: Setting, plan: DevicePlan) -> int:
    """Return the number of rounds of a scheme in a configuration; a one-shot scheme has none."""
    if scheme.one_shot:
        return 0
    own = scheme.rounds(setting)
    if own is not None:
        return own
    return config.training.rounds or rounds_within(scheme.name, plan, config.training.total_time_s)


def _coded_curvature(prepared: PreparedScheme) -> float:
    """Return the curvature of the coded data that the server takes its steps on."""
    (coded,) = prepared.coded
    batch = int(getattr(prepared.server, "batch", coded.coded_samples))
    return batch_curvature(coded_spectrum(coded), coded.coded_samples, batch)


def _run_identity(scheme: Scheme, experiment: Experiment) -> str:
    """Return an identity of everything that the result of a run depends on."""
    config = experiment.config
    rate = config.learning_rate
    own_step = scheme.tunes_itself
    return identity(
        (
            scheme,
            scheme.depends_on(experiment.setting),
            experiment.traces.get(scheme.name),
            config.training.model_copy(update={"server_batch": 0}),  # part of the setting, where it matters
            None if own_step else rate if rate.scale == "grid" else (rate.scale, rate.decay_rounds),
        )
    )


def _in_setting(result: RunResult, setting: Setting) -> RunResult:
    """Return a shared result with the setting of one of its configurations."""
    return replace(result, prepared=replace(result.prepared, setting=setting))


def _initial_model(setting: Setting, std: float) -> FloatArray:
    """Draw ``W_0``, the same for all schemes."""
    shape = setting.federation.dimension, setting.federation.outputs
    draws: FloatArray = setting.streams.at("initial-model").standard_normal(shape)
    return np.asarray(std * draws)


class _Uploads:
    """A cache of coded data, so that schemes with the same upload share it."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Uploaded, UploadCost | None]] = {}

    def prepare(self, scheme: Scheme, setting: Setting, plan: DevicePlan) -> PreparedScheme:
        """Prepare a scheme; reuse coded data that stands for all rows under the same code."""
        if scheme.upload is None or not plan.coded_for_all:
            return scheme.prepare(setting, plan=plan)
        code = scheme.depends_on(setting).code
        key = identity((scheme.upload, setting.federation, setting.streams, code, setting.privacy))
        if key not in self._known:
            self._known[key] = scheme.upload.prepare(setting, plan)
        return scheme.prepared(setting, plan, *self._known[key])


class _Pace(Callback):
    """Reports the rounds of short runs that advance and end together."""

    def __init__(self, progress: Progress, title: str, total: int) -> None:
        self.progress, self.title, self.total, self.done = progress, title, total, 0

    def on_round(self, progress: object) -> None:  # noqa: ARG002
        self.done += 1
        self.progress.update(self.title, self.done, self.total)
