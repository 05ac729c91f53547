"""Training of configurations that share data and fleet: step sizes, runs, results."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from codedfl.config import Config
from codedfl.errors import InputError
from codedfl.experiment._build import Experiment, build_experiment
from codedfl.experiment._jobs import Job, SharedUploads, rounds_of, run_identity
from codedfl.experiment._run_details import start_details
from codedfl.experiment._run_folder import RunFolder
from codedfl.identity import identity
from codedfl.native import backend
from codedfl.progress import Progress
from codedfl.results import Comparison
from codedfl.schemes import make_scheme
from codedfl.setting import Setting
from codedfl.training import (
    Callback,
    Checkpoint,
    Evaluator,
    PreparedScheme,
    Recorder,
    ReportProgress,
    Run,
    RunResult,
    Scheme,
    Search,
    StepSizeChoice,
    StopTogether,
    StopTraining,
    choose_step_sizes,
    load_checkpoint,
    require_no_bound,
    train_together,
    unstable_steps,
    validation_setting,
)
from codedfl.typing import FloatArray


class PerRunCallback(Callback):
    """Makes a callback of its own for every run of a comparison or a sweep.

    Runs may advance in lock-step, and a callback is not told whose round it was. Short runs that choose a step size get none.

    Example:
        >>> from codedfl.experiment import run
        >>> class Names(PerRunCallback):
        ...     def for_run(self, experiment, scheme):
        ...         print(experiment.config.data.dataset, scheme.title)
        ...         return Callback()
        >>> comparison = run({"schemes": ["fedavg"], "training.rounds": 2}, callbacks=(Names(),))
        digits FedAvg
    """

    def for_run(self, experiment: Experiment, scheme: Scheme) -> Callback:
        """Return the callback of one run.

        Args:
            experiment: configuration, data, fleet and code.
            scheme: the scheme that is about to be trained.
        """
        raise NotImplementedError


class Pace(Callback):
    """Reports the rounds of runs that advance and end together, and not how good their models are.

    Such runs choose step sizes, or hold canaries, which are made to be fitted badly. Whoever trains them closes the display.
    """

    def __init__(self, progress: Progress, title: str, total: int) -> None:
        self.progress, self.title, self.total, self.done = progress, title, total, 0

    def on_round(self, progress: object) -> None:  # noqa: ARG002
        self.done += 1
        self.progress.update(self.title, self.done, self.total)


class Family:
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
        self.jobs: dict[str, Job] = {}
        for each in self.experiments:
            schemes = [make_scheme(name, each.config.options.get(name)) for name in each.config.schemes]
            self.keys.append({scheme.name: run_identity(scheme, each) for scheme in schemes})
            for scheme, key in zip(schemes, self.keys[-1].values(), strict=True):
                if key not in self.jobs:
                    self.jobs[key] = self._job(scheme, each)
        if any(job.tuned for job in self.jobs.values()):
            experiment.setting.federation.require_in_memory()

    def _job(self, scheme: Scheme, experiment: Experiment) -> Job:
        """Plan a scheme's rounds. A scheme that cannot run is refused here, not after others have trained for hours."""
        trace = experiment.traces.get(scheme.name)
        plan = scheme.plan(experiment.setting, trace)
        scheme.require_possible(experiment.setting, plan)
        require_no_bound(scheme, experiment.config.training.model_norm_bound or None)
        rounds = rounds_of(experiment.config, scheme, experiment.setting, plan)
        if trace is not None and plan.broadcasts and rounds > trace.rounds:
            raise InputError(
                f"fleet.trace has {trace.rounds} round(s) but {scheme.title} is to train for {rounds}: record more, or lower "
                "training.total_time_s or training.rounds."
            )
        return Job(scheme, experiment, plan, rounds)

    def compare(self) -> list[Comparison]:
        """Choose step sizes, train, and return one comparison per configuration."""
        with self.first.setting.workers:  # its threads end with the work
            self.progress.update("solving for the centralised optimum")
            evaluator = Evaluator(self.first.setting, self.first.config.training.evaluation_samples or None)
            self._say_sizes(evaluator)
            if self.folder and not self.folder.has_details:
                plans = [(job.scheme, job.plan, job.rounds) for job in self.jobs.values()]
                self.folder.keep_versions()
                self.folder.keep_details(start_details(self.first, evaluator, plans))
            results = {} if self.stop and self.stop.stopped else self._results(evaluator)
        elapsed = time.perf_counter() - self.began
        return [
            Comparison(
                experiment,
                evaluator,
                tuple(_in_setting(results[key], experiment.setting) for key in keys.values() if key in results),
                elapsed,
                tuple(self.remarks),
            )
            for experiment, keys in zip(self.experiments, self.keys, strict=True)
        ]

    def choose(self) -> list[dict[str, StepSizeChoice]]:
        """Return the step sizes of each configuration, by scheme."""
        with self.first.setting.workers:  # its threads end with the work
            choices = self._choices()
        return [{name: choices[key] for name, key in keys.items() if key in choices} for keys in self.keys]

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
        uploads = SharedUploads()
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

    def _run(self, job: Job, choice: StepSizeChoice | None, evaluator: Evaluator, uploads: SharedUploads) -> Run:
        """Return the run of a job, resumed from its checkpoint if it has one."""
        config, training = job.config, job.config.training
        self.progress.update(f"preparing {job.scheme.title}")
        prepared = uploads.prepare(job.scheme, job.experiment.setting, job.plan)
        setting = prepared.setting
        rate, *smaller = job.rates(choice, prepared)
        added = (
            each.for_run(job.experiment, job.scheme) if isinstance(each, PerRunCallback) else each
            for each in self.callbacks
        )
        callbacks: tuple[Callback, ...] = (*added, ReportProgress(self.progress, job.scheme.title))
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
        uploads = SharedUploads()
        missing = [key for key in wanted if key not in choices]
        for group in [missing] if self.stop else [[key] for key in missing]:
            if not group:
                continue
            searches = [self._search(wanted[key], uploads) for key in group]
            title = f"step size of {wanted[group[0]].scheme.title}" if len(group) == 1 else f"{len(group)} step sizes"
            pace = Pace(self.progress, title, sum(search.rounds * len(search.tried) for search in searches))
            chosen = choose_step_sizes(searches, callbacks=(*self.callbacks, pace))
            self.progress.close(title)
            for key, choice in zip(group, chosen, strict=True):
                choices[key] = known[wanted[key].scheme.name] = choice
                self.progress.say(f"{wanted[key].scheme.title}: step size {choice.scale:g} / L")
            if self.folder:
                self.folder.keep_step_sizes(known)
        return choices

    def _search(self, job: Job, uploads: SharedUploads) -> Search:
        """Return the step-size search of a job, in a setting with held-out rows."""
        options, training = job.config.learning_rate, job.config.training
        self.progress.update(f"preparing the search for the step size of {job.scheme.title}")
        setting = validation_setting(job.experiment.setting, options.validation_fraction)
        plan = job.scheme.plan(setting, job.experiment.traces.get(job.scheme.name))
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

    def _unstable(self, job: Job, prepared: PreparedScheme, rounds: int) -> frozenset[float]:
        """Return the step sizes of the grid that cannot converge; the empty set if none would be left to try."""
        options, smoothness = job.config.learning_rate, prepared.smoothness
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
            if prepared.coded_noise > 0
            else f"no step size of learning_rate.grid is stable for {job.scheme.title}: add smaller steps."
        )
        self.progress.say(self.remarks[-1])
        return frozenset()


def _in_setting(result: RunResult, setting: Setting) -> RunResult:
    """Return a shared result with the setting of one of its configurations."""
    return replace(result, prepared=replace(result.prepared, setting=setting))


def _initial_model(setting: Setting, std: float) -> FloatArray:
    """Draw ``W_0``, the same for all schemes."""
    shape = setting.federation.dimension, setting.federation.outputs
    draws: FloatArray = setting.streams.at("initial-model").standard_normal(shape)
    return np.asarray(std * draws)
