"""Execution of all runs that figures ask for: step sizes first, then training, in worker processes and cached as they finish."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, cast

from joblib import Parallel, delayed
from joblib.externals.loky import reusable_executor
from joblib.externals.loky.backend import resource_tracker as loky_tracker

from codedfl.data import list_datasets
from codedfl.errors import InputError
from codedfl.experiment import Config
from codedfl.files import write_atomically
from codedfl.identity import identity
from codedfl.paper._jobs import TRAIN, TUNE, Computation, Job, Outcome, execute, plan_jobs
from codedfl.paper._runs import FigureRun, RunOutcome, with_scale, with_seed
from codedfl.paper._setups import Scope
from codedfl.paper._tables import Row
from codedfl.progress import Progress
from codedfl.training import StepSizeChoice

FORMAT = 2
"""Raised when outcomes or their files change meaning, so that older ones are computed again."""

POLL_S = 0.5

PROGRESS_TASK = "reproducing the paper"
"""The name under which an executor reports its progress; ``done`` and ``total`` are estimated costs in arbitrary units."""


def content_key(task: str, config: Config) -> str:
    """Return the key of what a task computes from a configuration.

    Example:
        >>> content_key("train", Config()) == content_key("train", Config(data={"data_dir": "/elsewhere"}))
        True
        >>> content_key("train", Config()) == content_key("train", Config(seed=1))
        False
    """
    return identity((FORMAT, task, config))[:32]


def _hash(values: Any) -> str:
    return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


class DamagedEntryError(Exception):
    """A file of the cache does not hold what was stored there. The message says which file and why."""


class Cache:
    """A folder of JSON files, one per outcome, each with its key and a checksum.

    Args:
        folder: created when something is stored.

    Example:
        >>> import tempfile
        >>> cache = Cache(tempfile.mkdtemp())
        >>> cache.get("ab12") is None
        True
        >>> cache.put("ab12", {"accuracy": 0.95})
        >>> cache.get("ab12")
        {'accuracy': 0.95}
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def path(self, key: str) -> Path:
        """Return the file of a key."""
        return self.folder / f"{key}.json"

    def get(self, key: str) -> Any:
        """Return what is stored under a key, None if nothing is.

        Raises:
            DamagedEntryError: if the file was truncated or edited, or belongs to another key.
            InputError: if the file cannot be read.
        """
        path = self.path(key)
        if path.exists() and not path.is_file():
            raise InputError(f"{path} is not a file: delete it, or choose another folder for the cache.")
        try:
            entry = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(
                f"{path} cannot be read ({error.strerror}): choose another folder for the cache."
            ) from error
        except (ValueError, RecursionError) as error:
            raise DamagedEntryError(f"{path} is not JSON") from error
        if not isinstance(entry, dict) or set(entry) != {"key", "checksum", "outcome"}:
            raise DamagedEntryError(f"{path} is not an entry of the cache")
        if entry["key"] != key:
            raise DamagedEntryError(f"{path} belongs to another key")
        if entry["checksum"] != _hash(entry["outcome"]):
            raise DamagedEntryError(f"{path} does not match its checksum")
        return entry["outcome"]

    def put(self, key: str, outcome: Any) -> None:
        """Store an outcome that JSON can represent."""
        self.make()
        try:
            entry = {"key": key, "checksum": _hash(outcome), "outcome": outcome}
            write_atomically(self.path(key), json.dumps(entry))
        except OSError as error:
            raise self._unwritable(error) from error

    def make(self) -> None:
        """Create the folder, before anything is computed that could not be stored."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> InputError:
        return InputError(f"{self.folder} cannot be written ({error.strerror}): choose another folder for the cache.")


def call_in_parallel(function: Callable[..., Any], calls: Iterable[tuple[Any, ...]], processes: int) -> Iterator[Any]:
    """Yield the results of calls as they finish, from the workers of the active joblib backend.

    Local workers end when all results are in, when an exception (such as a KeyboardInterrupt) stops the iteration, and when
    this process dies, however it dies.

    Args:
        function: a function of a module, so that other processes can import it.
        calls: the arguments of each call.
        processes: number of parallel processes; -1 for one per core, or for all workers of a cluster.
    """
    parallel = Parallel(
        n_jobs=processes,
        return_as="generator_unordered",
        batch_size=1,
        pre_dispatch="all",
        initializer=_end_with_parent,
        initargs=(os.getpid(),),
    )
    with _interrupts_held_back():
        results = parallel(delayed(function)(*arguments) for arguments in calls)
    try:
        yield from results
    except BaseException:
        _kill_local_workers()
        raise


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Block Ctrl-C while workers start: they inherit that, so it never reaches one, not even one that is still starting."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    for tracker in (resource_tracker, loky_tracker):
        tracker.ensure_running()  # its start would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent(parent: int) -> None:
    """Leave Ctrl-C to the parent, and end this worker soon after the parent has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_after, args=(parent,), daemon=True).start()


def _exit_after(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_S)
    os._exit(1)


def _kill_local_workers() -> None:
    executor = reusable_executor._executor
    if executor is not None:
        executor.shutdown(wait=True, kill_workers=True)


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
    records: Mapping[FigureRun, tuple[RunOutcome, ...]]
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

    def measure(self, task: Computation[list[Row]], configs: Sequence[Config], scope: Scope) -> list[Row]:
        """Measure something in every configuration for all seeds, and return the rows of all of them."""
        return [row for rows in self._outcomes(task, _for_all_seeds(configs, scope)) for row in rows]

    def expect(
        self,
        runs: Iterable[FigureRun],
        measured: Iterable[tuple[Computation[list[Row]], Sequence[Config]]],
        scope: Scope,
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

    def _train_until_stable(self, configs: Sequence[Config]) -> list[RunOutcome]:
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

    def _missing_cost(self, task: Computation[Any], configs: Sequence[Config]) -> float:
        keys = {content_key(task.name, config): config for config in configs}
        return Job(task, {key: config for key, config in keys.items() if self._cached(task, key) is None}).cost

    def _outcomes(self, task: Computation[Outcome], configs: Sequence[Config]) -> list[Outcome]:
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

    def _cached(self, task: Computation[Outcome], key: str) -> Outcome | None:
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
