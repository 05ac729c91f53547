"""Execution of all runs that figures ask for: step sizes first, then training, in parallel and cached as they finish."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from codedfl.data import list_datasets
from codedfl.errors import InputError
from codedfl.experiment import Config
from codedfl.paper._cache import Cache, DamagedEntryError, content_key
from codedfl.paper._jobs import TRAIN, TUNE, Job, Outcome, Task, execute, plan_jobs
from codedfl.paper._runs import FigureRun, Record, with_scale, with_seed
from codedfl.paper._setups import Scope
from codedfl.paper._tables import Row
from codedfl.paper._workers import call_in_parallel
from codedfl.progress import Progress
from codedfl.training import StepSizeChoice

PROGRESS_TASK = "reproducing the paper"
"""The name under which an executor reports its progress; ``done`` and ``total`` are estimated costs in arbitrary units."""


@dataclass(frozen=True)
class Outcomes:
    """The records of runs.

    Args:
        seeds: seeds of the repetitions.
        records: one record per seed for each run.
        choices: how the step size of each run was chosen, on the first seed.
        measured: rows of other measurements.
    """

    seeds: tuple[int, ...]
    records: Mapping[FigureRun, tuple[Record, ...]]
    choices: Mapping[FigureRun, StepSizeChoice]
    measured: Sequence[Row] = ()

    def of(self, runs: Iterable[FigureRun]) -> Outcomes:
        """Return the records of some of the runs."""
        wanted = list(runs)
        return Outcomes(
            self.seeds, {run: self.records[run] for run in wanted}, {run: self.choices[run] for run in wanted}
        )


class Executor:
    """Executes runs and measurements in parallel, and caches their outcomes.

    Args:
        cache: stores outcomes.
        data_dir: folder of the datasets; empty for the default.
        processes: number of parallel processes; -1 for one per core, or for all workers of a cluster.
        progress: told of stages and finished jobs.
    """

    def __init__(
        self, cache: Cache, data_dir: str | Path = "", processes: int = -1, progress: Progress | None = None
    ) -> None:
        self.cache = cache
        self.data_dir = str(data_dir)
        self.processes = processes
        self.progress = progress or Progress()
        self.total_cost = self.done_cost = 0.0
        self._damaged: set[str] = set()

    def run(self, runs: Sequence[FigureRun], scope: Scope) -> Outcomes:
        """Train all runs for all seeds, except those in the cache.

        The step size of a run is chosen on the first seed and used for all seeds. Where training diverges with it, the next
        smaller one of the grid is used. Both choices see training data only.
        """
        runs = list(dict.fromkeys(runs))
        choices = self._outcomes(TUNE, [with_seed(run.config, scope.seeds[0]) for run in runs])
        chosen = [with_scale(run.config, choice.scale) for run, choice in zip(runs, choices, strict=True)]
        records = iter(self._train_until_stable(_for_all_seeds(chosen, scope)))
        return Outcomes(
            scope.seeds,
            {run: tuple(next(records) for _ in scope.seeds) for run in runs},
            dict(zip(runs, choices, strict=True)),
        )

    def measure(self, task: Task[list[Row]], configs: Sequence[Config], scope: Scope) -> list[Row]:
        """Measure something in every configuration for all seeds, and return the rows of all of them."""
        return [row for rows in self._outcomes(task, _for_all_seeds(configs, scope)) for row in rows]

    def expect(
        self, runs: Iterable[FigureRun], measured: Iterable[tuple[Task[list[Row]], Sequence[Config]]], scope: Scope
    ) -> float:
        """Estimate what runs and measurements will cost, add it to the total that progress counts towards, and return it.

        Outcomes in the cache cost nothing. Runs that will have to be repeated are unknown yet.
        """
        searches, chosen = [], []
        for run in runs:
            search = with_seed(run.config, scope.seeds[0])
            choice = self._cached(TUNE, content_key(TUNE.name, search))
            searches.append(search)
            chosen.append(with_scale(run.config, choice.scale) if choice else run.config)
        cost = self._missing_cost(TUNE, searches) + self._missing_cost(TRAIN, _for_all_seeds(chosen, scope))
        cost += sum(self._missing_cost(task, _for_all_seeds(configs, scope)) for task, configs in measured)
        self.total_cost += cost
        return cost

    def _train_until_stable(self, configs: Sequence[Config]) -> list[Record]:
        """Train; repeat what diverges with smaller and smaller step sizes of the grid."""
        while True:
            records = self._outcomes(TRAIN, configs)
            smaller = [
                _with_smaller_step(config) if record.status == "diverged" else None
                for config, record in zip(configs, records, strict=True)
            ]
            if not any(smaller):
                return records
            configs = [again or config for again, config in zip(smaller, configs, strict=True)]
            self.total_cost += self._missing_cost(TRAIN, configs)

    def _missing_cost(self, task: Task[Any], configs: Sequence[Config]) -> float:
        keys = {content_key(task.name, config): config for config in configs}
        return Job(task, {key: config for key, config in keys.items() if self._cached(task, key) is None}).cost

    def _outcomes(self, task: Task[Outcome], configs: Sequence[Config]) -> list[Outcome]:
        """Return the outcome of every configuration, from the cache or else computed and cached."""
        keys = [content_key(task.name, config) for config in configs]
        wanted = dict(zip(keys, configs, strict=True))
        known = {key: self._cached(task, key) for key in wanted}
        missing = {key: config for key, config in wanted.items() if known[key] is None}
        require_data({config.data.dataset for config in missing.values()}, self.data_dir)
        if wanted:
            self.progress.say(f"{task.title}: {len(missing)} of {len(wanted)} runs to do")
        for job, found in self._parallel(plan_jobs(task, missing)):
            for key, values in found.items():
                known[key] = task.read(values)
                self.cache.put(key, values)
            self.done_cost += job.cost
            self.progress.update(PROGRESS_TASK, self.done_cost, max(self.total_cost, self.done_cost), job.title)
        return [cast(Outcome, known[key]) for key in keys]

    def _cached(self, task: Task[Outcome], key: str) -> Outcome | None:
        """Return an outcome from the cache, None if it is not there or is damaged."""
        try:
            values = self.cache.get(key)
            return None if values is None else task.read(values)
        except DamagedEntryError as error:
            problem = str(error)
        except (KeyError, TypeError, ValueError) as error:
            problem = f"{self.cache.path(key)} holds no outcome of this version ({error})"
        if key not in self._damaged:
            self._damaged.add(key)
            self.progress.say(f"{problem}: computing it again.")
        return None

    def _parallel(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, dict[str, Any]]]:
        """Yield jobs with their outcomes as they finish."""
        if not jobs:
            return
        self.cache.make()
        by_key = {key: job for job in jobs for key in job.runs}
        calls = [(job.task, job.plain_runs(), self.data_dir) for job in jobs]
        for found in call_in_parallel(execute, calls, self.processes):
            yield by_key[next(iter(found))], found


def _for_all_seeds(configs: Iterable[Config], scope: Scope) -> list[Config]:
    """Return every configuration with every seed, grouped by configuration."""
    return [with_seed(config, seed) for config in configs for seed in scope.seeds]


def _with_smaller_step(config: Config) -> Config | None:
    """Return the run with the next smaller step size of the grid, None if there is none."""
    rate = config.learning_rate
    smaller = [scale for scale in rate.grid if scale < float(rate.scale)]
    return with_scale(config, max(smaller)) if smaller else None


def require_data(datasets: Iterable[str], data_dir: str) -> None:
    """Require that datasets are available.

    Raises:
        InputError: naming the missing dataset, where it was looked for, and how to get it.
    """
    for status in list_datasets(Path(data_dir) if data_dir else None):
        if status.name in datasets and not status.available:
            raise InputError(
                f"{status.name} is not in {status.location}: {status.hint.rstrip('.')}; the quick version needs no data."
            )
