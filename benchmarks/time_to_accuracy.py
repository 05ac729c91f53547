"""Time and bytes until each scheme is within 0.5 and 0.2 points of the centralised accuracy, everything charged."""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codedfl.config import Config, load_config
from codedfl.experiment import Comparison, Experiment, build_experiment, sweep
from codedfl.files import write_atomically
from codedfl.schemes import make_scheme
from codedfl.training import RunResult

PAPERS_FLEET: Mapping[str, Any] = {"fleet.transmit_power_dbm": (15.0, 25.0)}
DATASETS: Mapping[str, Mapping[str, Any]] = {
    "digits": {**PAPERS_FLEET, "training.total_time_s": 1000.0, "learning_rate.tuning_share": 0.2},
    "mnist": {},
    "cifar10-vgg": {},
}
STRAGGLERS = (0.0, 0.3, 0.5)
"""Shares of devices that miss the deadline; 0 stands for the paper's own bandwidth, with 4%."""
NOISE = (0.25, 5.0, 50.0)
"""Values of sigma_i^2 for the schemes that upload noisy coded data."""
SCHEMES = ("fedavg", "codedfedl", "dp-cfl", "scfl")
NOISY = ("dp-cfl", "scfl", "one-shot")
SEEDS = (0, 1, 2)
EVALUATIONS = 200


@dataclass(frozen=True)
class Case:
    """One run: a scheme on a dataset with a share of stragglers, a noise level and a seed."""

    dataset: str
    stragglers: float
    scheme: str
    noise: float | None
    seed: int

    @property
    def file(self) -> str:
        noise = "" if self.noise is None else f"-noise{self.noise:g}"
        return f"{self.dataset}-stragglers{self.stragglers:g}-{self.scheme}{noise}-seed{self.seed}"

    def config(self, scale: float | None) -> Config:
        given = {
            **DATASETS[self.dataset],
            "data.dataset": self.dataset,
            "seed": self.seed,
            "schemes": [self.scheme],
            "fleet.straggler_ratio": self.stragglers,
            "training.evaluations": EVALUATIONS,
        }
        if self.noise is not None:
            given["coding.noise_variance"] = self.noise
        if scale is not None:
            given["learning_rate.scale"] = scale
        return load_config(overrides=given)


class Results:
    """Finished runs in a folder, one learning curve and one record each; delete a file to have it computed again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def record(self, case: Case) -> dict[str, Any] | None:
        path = self.folder / f"{case.file}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def curve(self, case: Case) -> list[dict[str, float]]:
        with (self.folder / f"{case.file}.csv").open() as file:
            return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]

    def keep(self, case: Case, comparison: Comparison, result: RunResult) -> None:
        lines = ["everything_charged_s,bytes_up,score,loss"]
        lines += [f"{p.everything_charged_s:.6g},{p.bytes_up:.6g},{p.score:.6g},{p.loss:.6g}" for p in result.curve]
        write_atomically(self.folder / f"{case.file}.csv", "\n".join(lines) + "\n")
        assert comparison.evaluator.reference
        record = {
            "centralised": comparison.evaluator.reference.score,
            "status": result.status,
            "message": result.message,
            "scale": result.scale,
            "wall_time_s": result.progress.wall_time_s,
        }
        write_atomically(self.folder / f"{case.file}.json", json.dumps(record))


def measure(results: Results, dataset: str, schemes: Sequence[str], stragglers: Sequence[float], seed: int) -> None:
    """Run what is missing of one seed; step sizes are chosen on the first seed and backed off where they diverge."""
    like: Experiment | None = None
    for share in stragglers:
        todo = [case for case in cases(dataset, share, schemes, seed) if results.record(case) is None]
        if not todo:
            continue
        configs = [case.config(_scale(results, case)) for case in todo]
        like = like or build_experiment(configs[0])
        for case, comparison in zip(todo, sweep(configs, like=like), strict=True):
            result = comparison[case.scheme]
            results.keep(case, comparison, result)
            print(f"{case.file}: {result.status} {result.final.score:.4f}, scale {result.scale}", flush=True)


def cases(dataset: str, stragglers: float, schemes: Sequence[str], seed: int) -> Iterator[Case]:
    for scheme in schemes:
        for noise in NOISE if scheme in NOISY else (None,):
            yield Case(dataset, stragglers, scheme, noise, seed)


def _scale(results: Results, case: Case) -> float | None:
    """The step size chosen on the first seed; None to choose it now, or for a scheme that needs none."""
    if case.seed == SEEDS[0] or getattr(make_scheme(case.scheme), "tunes_itself", False):
        return None
    first = results.record(Case(case.dataset, case.stragglers, case.scheme, case.noise, SEEDS[0]))
    return first["scale"] if first else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("runs/time-to-accuracy"), help="folder of finished runs")
    parser.add_argument("--dataset", action="append", choices=list(DATASETS))
    parser.add_argument("--scheme", action="append")
    parser.add_argument("--stragglers", action="append", type=float)
    parser.add_argument("--seed", action="append", type=int)
    options = parser.parse_args()
    results = Results(options.results)
    for seed in options.seed or SEEDS:
        for dataset in options.dataset or DATASETS:
            measure(results, dataset, options.scheme or SCHEMES, options.stragglers or STRAGGLERS, seed)


if __name__ == "__main__":
    main()
