"""Jobs: runs that share their data and advance in lock-step in one process, here or on a cluster.

A job is a function of plain values to plain values, so that any of joblib's backends can carry it out.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Literal

from codedfl.config._schema import DataConfig, FeaturesConfig
from codedfl.experiment import Config, Experiment, build_experiment, family_key, parse_config, sweep, tune
from codedfl.paper._measures import measure_attack, measure_limit
from codedfl.paper._runs import Record, with_data_dir
from codedfl.paper._tables import Row
from codedfl.parallel import one_blas_thread
from codedfl.training import StepSizeChoice, Trial

Kind = Literal["tune", "train", "attack", "limits"]

MEASURES: Mapping[Kind, Callable[[Experiment], list[Row]]] = {"attack": measure_attack, "limits": measure_limit}
"""What can be measured besides training: rows of a table, in the experiment of a configuration."""

COLUMNS = {"cifar10-vgg": 4096}
"""Features of datasets that are used as they are, for estimates of time."""

COST_OF_A_PRODUCT: Mapping[Kind, float] = {"limits": 1.5e-4, "attack": 1.2e-3}
"""How long measurements take, for each of the ``c d^2`` products that the second moments of coded data need."""

RUNS_A_JOB = 6
"""More share more work, fewer are spread more evenly and lose less when interrupted."""


@dataclass(frozen=True)
class Job:
    """Runs to carry out together.

    Args:
        kind: ``tune`` to choose their step sizes, ``train`` to train with them, or something else to measure.
        runs: configurations with one scheme each, by the key that their outcome is kept under.
    """

    kind: Kind
    runs: Mapping[str, Config]

    @property
    def cost(self) -> float:
        """How long it takes, roughly and in no particular unit."""
        return sum(_cost(self.kind, config) for config in self.runs.values())

    @property
    def title(self) -> str:
        """What it is, in a few words."""
        config = next(iter(self.runs.values()))
        return f"{self.kind} {len(self.runs)} on {config.data.dataset}, seed {config.seed}"

    def plain_runs(self) -> dict[str, dict[str, Any]]:
        """Return the configurations as plain values, to be sent to another process."""
        return {key: config.model_dump(mode="json") for key, config in self.runs.items()}


def _cost(kind: Kind, config: Config) -> float:
    training = config.training
    dimension = COLUMNS.get(config.data.dataset, config.features.dimension)
    if kind in COST_OF_A_PRODUCT:
        return COST_OF_A_PRODUCT[kind] * config.coding.coded_samples * dimension**2
    steps = training.local_steps * (training.rounds or training.total_time_s / training.deadline_s)
    rate = config.learning_rate
    return dimension * steps * (rate.tuning_share * len(rate.grid) if kind == "tune" else 1.0)


def plan_jobs(kind: Kind, runs: Mapping[str, Config]) -> list[Job]:
    """Put runs together that can share work; jobs on the same data come one after the other, so that a process loads it once."""
    families: dict[Hashable, list[str]] = {}
    by_code = sorted(runs, key=lambda key: runs[key].coding.model_dump_json())  # so that equal codes fall into one job
    for key in by_code:
        families.setdefault(family_key(runs[key]), []).append(key)
    jobs = []
    for keys in families.values():
        parts = -(-len(keys) // RUNS_A_JOB)
        size = -(-len(keys) // parts)
        chunks = [keys[start : start + size] for start in range(0, len(keys), size)]
        jobs += [Job(kind, {key: runs[key] for key in chunk}) for chunk in chunks]
    data: dict[Hashable, list[Job]] = {}
    for job in sorted(jobs, key=lambda job: -job.cost):
        first = next(iter(job.runs.values()))
        data.setdefault((first.seed, first.data, first.features), []).append(job)
    together = sorted(data.values(), key=lambda group: -sum(job.cost for job in group))
    return [job for group in together for job in group]


def carry_out(kind: Kind, runs: Mapping[str, Mapping[str, Any]], data_dir: str) -> dict[str, Any]:
    """Carry a job out: plain configurations in, plain outcomes out, both by key.

    On one BLAS thread, whatever the backend allows, so that outcomes do not depend on it.
    """
    configs = {key: with_data_dir(parse_config(values), data_dir) for key, values in runs.items()}
    first = next(iter(configs.values()))
    with one_blas_thread():
        like = _data(first.seed, first.data, first.features)
        if kind in MEASURES:
            return {key: MEASURES[kind](build_experiment(config, like=like)) for key, config in configs.items()}
        if kind == "tune":
            choices = tune(list(configs.values()), like=like)
            return {key: asdict(*own.values()) for key, own in zip(configs, choices, strict=True)}
        comparisons = sweep(list(configs.values()), like=like)
        return {key: Record.of(found).as_dict() for key, found in zip(configs, comparisons, strict=True)}


def read_choice(values: Mapping[str, Any]) -> StepSizeChoice:
    """Read the outcome of tuning."""
    return StepSizeChoice(values["scale"], tuple(Trial(**trial) for trial in values["trials"]))


def read_rows(values: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Read the outcome of a measurement."""
    return [{**row, "panel": row["panel"]} for row in values]


@lru_cache(maxsize=1)
def _data(seed: int, data: DataConfig, features: FeaturesConfig) -> Experiment:
    """Load data, or take it from the job before."""
    any_fleet = {"straggler_ratio": 0.0}
    config = parse_config(
        {"seed": seed, "data": data, "features": features, "fleet": any_fleet, "training": {"workers": 1}}
    )
    experiment = build_experiment(config)
    _ = experiment.setting.gram  # so that all jobs have it
    return experiment
