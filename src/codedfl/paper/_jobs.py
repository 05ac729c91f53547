"""Jobs: runs that share their data and advance in lock-step in one process, here or on a cluster.

A job turns plain values into plain values, so that any joblib backend can execute it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from typing import Any, Generic, TypeVar

from codedfl.experiment import Config, Experiment, build_experiment, family_key, parse_config, sweep, tune
from codedfl.identity import identity
from codedfl.paper._runs import RunOutcome
from codedfl.paper._setups import changed
from codedfl.paper._tables import Row
from codedfl.parallel import one_blas_thread
from codedfl.training import StepSizeChoice, Trial

Outcome = TypeVar("Outcome")

COLUMNS = {"cifar10-vgg": 4096}
"""Dimension of datasets whose features are used unchanged, for cost estimates."""

RUNS_PER_JOB = 6
"""Larger jobs share more work; smaller ones spread more evenly and lose less when interrupted."""


@dataclass(frozen=True)
class Computation(Generic[Outcome]):
    """What to compute from configurations.

    Args:
        name: enters the key of every outcome.
        title: shown while it runs.
        compute: returns one plain outcome per configuration; all configurations use the data of the given experiment.
        read: parses a plain outcome; raises KeyError, TypeError or ValueError if it is not one.
        cost: estimated time of one configuration, in arbitrary units.
    """

    name: str
    title: str
    compute: Callable[[Sequence[Config], Experiment], list[Any]]
    read: Callable[[Any], Outcome]
    cost: Callable[[Config], float]


def _tune(configs: Sequence[Config], like: Experiment) -> list[Any]:
    return [asdict(*choices.values()) for choices in tune(list(configs), like=like)]


def _train(configs: Sequence[Config], like: Experiment) -> list[Any]:
    return [RunOutcome.of(comparison).as_dict() for comparison in sweep(list(configs), like=like)]


def _measure(measure: Callable[[Experiment], list[Row]], configs: Sequence[Config], like: Experiment) -> list[Any]:
    return [measure(build_experiment(config, like=like)) for config in configs]


def read_choice(values: Mapping[str, Any]) -> StepSizeChoice:
    """Parse and validate the outcome of tuning."""
    choice = StepSizeChoice(values["scale"], tuple(Trial(**trial) for trial in values["trials"]))
    if choice.scale not in {trial.scale for trial in choice.trials}:
        raise ValueError(f"scale = {choice.scale} is not among the candidates")
    if not all(trial.score <= 1 for trial in choice.trials):
        raise ValueError("a score is not a number of at most 1")
    return choice


def read_rows(values: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Parse and validate the outcome of a measurement."""
    for row in values:
        for name in ("panel", "seed"):
            row[name]  # must be there
        for name, value in row.items():
            if isinstance(value, float) and (math.isnan(value) or (name.endswith("accuracy") and not 0 <= value <= 1)):
                raise ValueError(f"{name} = {value}")
    return list(values)


def _dimension(config: Config) -> int:
    return COLUMNS.get(config.data.dataset, config.features.dimension)


def _training_cost(config: Config) -> float:
    training = config.training
    steps = training.local_steps * (training.rounds or training.total_time_s / training.deadline_s)
    return _dimension(config) * steps


def _tuning_cost(config: Config) -> float:
    rate = config.learning_rate
    return _training_cost(config) * rate.tuning_share * len(rate.grid)


def _measuring_cost(unit: float, config: Config) -> float:
    return unit * config.coding.coded_samples * _dimension(config) ** 2


TUNE = Computation("tune", "choosing step sizes", _tune, read_choice, _tuning_cost)
TRAIN = Computation("train", "training", _train, RunOutcome.from_dict, _training_cost)


def measurement(
    name: str, title: str, measure: Callable[[Experiment], list[Row]], unit: float
) -> Computation[list[Row]]:
    """Return a task that measures something besides training.

    Args:
        name: enters the key of every outcome.
        title: shown while it runs.
        measure: a function of a module, so that other processes can import it; returns rows of a table.
        unit: cost of each of the ``c d^2`` products that the second moments of coded data need.
    """
    return Computation(name, title, partial(_measure, measure), read_rows, partial(_measuring_cost, unit))


@dataclass(frozen=True)
class Job:
    """Runs to execute together.

    Args:
        task: what to compute.
        runs: configurations with one scheme each, by the key of their outcome.
    """

    task: Computation[Any]
    runs: Mapping[str, Config]

    @property
    def cost(self) -> float:
        """Estimated time, in arbitrary units."""
        return sum(self.task.cost(config) for config in self.runs.values())

    @property
    def title(self) -> str:
        """The job in a few words."""
        config = next(iter(self.runs.values()))
        return f"{self.task.name} {len(self.runs)} on {config.data.dataset}, seed {config.seed}"

    def plain_runs(self) -> dict[str, dict[str, Any]]:
        """Return the configurations as plain values, to send to another process."""
        return {key: config.model_dump(mode="json") for key, config in self.runs.items()}


def plan_jobs(task: Computation[Any], runs: Mapping[str, Config]) -> list[Job]:
    """Group runs that can share work; jobs on the same data are neighbours, so that a process loads the data once."""
    families: dict[Hashable, list[str]] = {}
    by_code = sorted(runs, key=lambda key: runs[key].coding.model_dump_json())  # puts equal codes into one job
    for key in by_code:
        families.setdefault(family_key(runs[key]), []).append(key)
    jobs = []
    for keys in families.values():
        parts = -(-len(keys) // RUNS_PER_JOB)
        size = -(-len(keys) // parts)
        chunks = [keys[start : start + size] for start in range(0, len(keys), size)]
        jobs += [Job(task, {key: runs[key] for key in chunk}) for chunk in chunks]
    data: dict[str, list[Job]] = {}
    for job in sorted(jobs, key=lambda job: -job.cost):
        first = next(iter(job.runs.values()))
        data.setdefault(identity((first.seed, first.data, first.features)), []).append(job)
    together = sorted(data.values(), key=lambda group: -sum(job.cost for job in group))
    return [job for group in together for job in group]


def execute(task: Computation[Any], runs: Mapping[str, Mapping[str, Any]], data_dir: str) -> dict[str, Any]:
    """Execute a job: plain configurations in, plain outcomes out, both by key.

    It runs on one BLAS thread, whatever the backend allows, so that outcomes do not depend on the backend.
    """
    configs = [changed(parse_config(values), {"data.data_dir": data_dir}) for values in runs.values()]
    with one_blas_thread():
        first = configs[0]
        like = _data(first.seed, first.data.model_dump_json(), first.features.model_dump_json())
        return dict(zip(runs, task.compute(configs, like), strict=True))


@lru_cache(maxsize=1)
def _data(seed: int, data: str, features: str) -> Experiment:
    """Load the data, or take it from the previous job; the sections of the configuration are given as JSON."""
    sections = {"data": json.loads(data), "features": json.loads(features), "fleet": {"straggler_ratio": 0.0}}
    config = parse_config({"seed": seed, **sections, "training": {"workers": 1}})
    experiment = build_experiment(config)
    _ = experiment.setting.gram  # computed here once for all jobs
    return experiment
