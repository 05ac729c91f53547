"""Carrying out all runs that figures ask for: first their step sizes, then the training, in parallel and kept as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from joblib import Parallel, delayed

from codedfl.data import list_datasets
from codedfl.errors import InputError
from codedfl.experiment import Config
from codedfl.paper._cache import Cache
from codedfl.paper._jobs import Job, Kind, carry_out, plan_jobs, read_choice, read_rows
from codedfl.paper._runs import Record, Run, content_key, with_scale, with_seed
from codedfl.paper._setups import Scope
from codedfl.paper._tables import Row
from codedfl.training import StepSizeChoice

Outcome = TypeVar("Outcome")


class Watcher:
    """Someone who is told how far it is; this one does nothing about it."""

    def on_outlook(self, cost: float) -> None:
        """Run before everything with what all of it will cost, and again whenever there turns out to be so much more to do."""

    def on_plan(self, stage: str, cost: float, cached: int, runs: int) -> None:
        """Run before a stage, with what its jobs will cost and how many of its runs are there already."""

    def on_job(self, title: str, cost: float) -> None:
        """Run after each job."""


@dataclass(frozen=True)
class Outcomes:
    """The records of runs.

    Args:
        seeds: of the repetitions.
        records: those of each run, one a seed.
        choices: how the step size of each run was chosen, on the first seed.
        measured: rows of what else was measured.
    """

    seeds: tuple[int, ...]
    records: Mapping[Run, tuple[Record, ...]]
    choices: Mapping[Run, StepSizeChoice]
    measured: Sequence[Row] = ()

    def of(self, runs: Iterable[Run]) -> Outcomes:
        """Return the records of some of the runs."""
        wanted = list(runs)
        return Outcomes(
            self.seeds, {run: self.records[run] for run in wanted}, {run: self.choices[run] for run in wanted}
        )


@dataclass(frozen=True)
class Means:
    """With what runs are carried out.

    Args:
        cache: where outcomes are kept.
        data_dir: where the datasets are; empty for the usual place.
        processes: how many at a time; -1 for one a core, or for all that a cluster has.
        watcher: told of progress.
    """

    cache: Cache
    data_dir: str = ""
    processes: int = -1
    watcher: Watcher = field(default_factory=Watcher)

    def carry_out(self, runs: Sequence[Run], scope: Scope) -> Outcomes:
        """Carry out all runs for all seeds, but for those whose outcome is known.

        The step size of a run is chosen on the first seed and used for all of them; where training diverges with it, the next
        smaller one of the grid is taken. Both look at training data alone.
        """
        runs = list(dict.fromkeys(runs))
        searches = [with_seed(run.config, scope.seeds[0]) for run in runs]
        choices = self._outcomes("tune", searches, read_choice)
        chosen = [with_scale(run.config, choice.scale) for run, choice in zip(runs, choices, strict=True)]
        records = iter(self._converging(_for_all_seeds(chosen, scope)))
        return Outcomes(
            scope.seeds,
            {run: tuple(next(records) for _ in scope.seeds) for run in runs},
            dict(zip(runs, choices, strict=True)),
        )

    def _converging(self, trainings: Sequence[Config]) -> list[Record]:
        """Train, and train again with smaller and smaller step sizes what diverges."""
        configs = list(trainings)
        while True:
            records = self._outcomes("train", configs, Record.from_dict)
            smaller = [
                _slower(config) if record.status == "diverged" else None
                for config, record in zip(configs, records, strict=True)
            ]
            if not any(smaller):
                return records
            configs = [slower or config for slower, config in zip(smaller, configs, strict=True)]
            self.watcher.on_outlook(self._cost("train", configs))

    def outlook(self, runs: Iterable[Run], measured: Mapping[Kind, Sequence[Config]], scope: Scope) -> float:
        """Return what runs and measurements will cost, but for what is known and for runs that will have to be repeated."""
        searches, chosen = [], []
        for run in runs:
            search = with_seed(run.config, scope.seeds[0])
            choice = self._known(content_key("tune", search), read_choice)
            searches.append(search)
            chosen.append(with_scale(run.config, choice.scale) if choice else run.config)
        for_all_seeds: Mapping[Kind, Sequence[Config]] = {"train": chosen, **measured}
        return self._cost("tune", searches) + sum(
            self._cost(kind, _for_all_seeds(configs, scope)) for kind, configs in for_all_seeds.items()
        )

    def _cost(self, kind: Kind, configs: Sequence[Config]) -> float:
        """Return what is to be done for outcomes that are not known."""
        missing = {key: config for config in configs if self.cache.get(key := content_key(kind, config)) is None}
        return Job(kind, missing).cost

    def measure(self, kind: Kind, configs: Sequence[Config], scope: Scope) -> list[Row]:
        """Measure something in every configuration for all seeds, and return the rows of all of them."""
        return [row for rows in self._outcomes(kind, _for_all_seeds(configs, scope), read_rows) for row in rows]

    def _outcomes(self, kind: Kind, configs: Sequence[Config], read: Callable[[Any], Outcome]) -> list[Outcome]:
        """Return the outcome of every configuration, from the cache or else computed and put there."""
        keys = [content_key(kind, config) for config in configs]
        wanted = dict(zip(keys, configs, strict=True))
        known = {key: self._known(key, read) for key in wanted}
        missing = {key: config for key, config in wanted.items() if known[key] is None}
        require_data({config.data.dataset for config in missing.values()}, self.data_dir)
        jobs = plan_jobs(kind, missing)
        self.watcher.on_plan(kind, sum(job.cost for job in jobs), len(wanted) - len(missing), len(wanted))
        for job, found in self._parallel(jobs):
            for key, values in found.items():
                self.cache.put(key, values)
                known[key] = read(values)
            self.watcher.on_job(job.title, job.cost)
        return [cast(Outcome, known[key]) for key in keys]

    def _known(self, key: str, read: Callable[[Any], Outcome]) -> Outcome | None:
        """Return an outcome from the cache, None if it is not there."""
        values = self.cache.get(key)
        try:
            return None if values is None else read(values)
        except (KeyError, TypeError, AttributeError) as error:
            raise self.cache.refusal(key, f"{type(error).__name__}: {error}") from error

    def _parallel(self, jobs: Sequence[Job]) -> Iterable[tuple[Job, dict[str, Any]]]:
        """Yield jobs with their outcomes as they come."""
        if not jobs:
            return
        self.cache.make()
        parallel = Parallel(n_jobs=self.processes, return_as="generator_unordered", batch_size=1, pre_dispatch="all")
        by_key = {key: job for job in jobs for key in job.runs}
        for found in parallel(delayed(carry_out)(job.kind, job.plain_runs(), self.data_dir) for job in jobs):
            yield by_key[next(iter(found))], found


def _for_all_seeds(configs: Iterable[Config], scope: Scope) -> list[Config]:
    """Return every configuration with every seed, those of one configuration one after the other."""
    return [with_seed(config, seed) for config in configs for seed in scope.seeds]


def _slower(config: Config) -> Config | None:
    """Return the same run with the next smaller step size of the grid, None if there is none."""
    rate = config.learning_rate
    smaller = [scale for scale in rate.grid if scale < float(rate.scale)]
    return with_scale(config, max(smaller)) if smaller else None


def require_data(datasets: Iterable[str], data_dir: str) -> None:
    """Refuse to begin if a dataset is missing.

    Raises:
        InputError: naming it, where it was looked for, and how to get it.
    """
    for status in list_datasets(Path(data_dir) if data_dir else None):
        if status.name in datasets and not status.available:
            raise InputError(
                f"{status.name} is not in {status.location}: {status.hint.rstrip('.')}; or use --quick, which needs no data."
            )
