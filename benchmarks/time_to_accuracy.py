"""Time and bytes until each scheme is within 0.5 and 0.2 points of the centralised accuracy, everything charged."""

from __future__ import annotations

import argparse
import csv
import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from codedfl.config import Config, load_config
from codedfl.experiment import Comparison, Experiment, build_experiment, sweep
from codedfl.files import write_atomically
from codedfl.schemes import make_scheme
from codedfl.training import RunResult

DATASETS: Mapping[str, Mapping[str, Any]] = {
    "digits": {
        "fleet.transmit_power_dbm": (15.0, 25.0),
        "training.total_time_s": 1000.0,
        "learning_rate.tuning_share": 0.2,
    },
    "mnist": {},
    "cifar10-vgg": {},
}
"""The paper's fleet and clock: presets, and for the digits the same powers."""

STRAGGLERS = (0.0, 0.3, 0.5)
"""Shares of devices that miss the deadline; 0 stands for the paper's own bandwidth, at which 4% do."""

NOISE = (0.25, 5.0, 50.0)
"""Values of sigma_i^2 for the schemes that upload noisy data."""

SEEDS = (0, 1, 2)
TARGETS = (0.5, 0.2)
"""Points of accuracy below the centralised one."""

EVALUATIONS = 200
LASTING = 3
"""Successive evaluations within a target that count as having reached it."""


@dataclass(frozen=True)
class Entry:
    """A line of the table: a scheme with options, and over what share of the others' time it is trained."""

    scheme: str
    noisy: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    share_of_time: float = 1.0


ENTRIES: Mapping[str, Entry] = {
    "FedAvg": Entry("fedavg"),
    "CodedFedL": Entry("codedfedl"),
    "DP-CFL": Entry("dp-cfl", noisy=True),
    "SCFL": Entry("scfl", noisy=True),
    "momentum": Entry("momentum"),
    "Fed3R": Entry("fed3r"),
    "one-shot": Entry("one-shot", noisy=True),
    "CCFL": Entry("ccfl", share_of_time=0.15),
    "CCFL, noisy sketch": Entry("ccfl", noisy=True, options={"noise": True, "sketch_rows": 1000}, share_of_time=0.15),
    "CCFL, factor": Entry("ccfl", noisy=True, options={"upload": "factor"}, share_of_time=0.15),
}
RIVALS = ("FedAvg", "CodedFedL", "DP-CFL", "SCFL", "Fed3R")
ABLATIONS: Mapping[str, Entry] = {
    "deadline as set": Entry("ccfl", options={"deadline": "fixed"}, share_of_time=0.15),
    "batches drawn anew": Entry("ccfl", options={"sampling": "bernoulli"}, share_of_time=0.15),
    "memory not carried": Entry("ccfl", options={"memory": "stale"}, share_of_time=0.15),
    "weights 1/p, momentum": Entry("ccfl", options={"memory": "none"}, share_of_time=0.15),
    "weights 1/p, estimated": Entry("ccfl", options={"memory": "none", "estimate_arrivals": True}, share_of_time=0.15),
    "rank 30": Entry("ccfl", options={"rank": 30}, share_of_time=0.15),
    "rank 120": Entry("ccfl", options={"rank": 120}, share_of_time=0.15),
    "30 rows": Entry("ccfl", options={"sketch_rows": 30}, share_of_time=0.15),
    "300 rows": Entry("ccfl", options={"sketch_rows": 300}, share_of_time=0.15),
    "damping / 2": Entry("ccfl", options={"damping_factor": 0.5}, share_of_time=0.15),
    "damping x 2": Entry("ccfl", options={"damping_factor": 2.0}, share_of_time=0.15),
    "FedAvg, deadline chosen": Entry("fedavg", options={"deadline": "auto"}),
}
"""CCFL with one choice changed, and FedAvg with the one that matters most with stragglers."""


@dataclass(frozen=True)
class Case:
    """One run."""

    dataset: str
    stragglers: float
    label: str
    noise: float | None
    seed: int

    @property
    def entry(self) -> Entry:
        return (ENTRIES | ABLATIONS)[self.label]

    @property
    def file(self) -> str:
        name = self.entry.scheme + "".join(f"-{key}={value}" for key, value in self.entry.options.items())
        noise = "" if self.noise is None else f"-noise{self.noise:g}"
        return f"{self.dataset}-stragglers{self.stragglers:g}-{name}{noise}-seed{self.seed}"

    def config(self, scale: float | None) -> Config:
        entry = self.entry
        given: dict[str, Any] = {
            **DATASETS[self.dataset],
            "data.dataset": self.dataset,
            "seed": self.seed,
            "schemes": [entry.scheme],
            "fleet.straggler_ratio": self.stragglers,
            "training.evaluations": EVALUATIONS * (1 if entry.share_of_time == 1.0 else 3),
        }
        given |= {f"options.{entry.scheme}.{key}": value for key, value in entry.options.items()}
        if self.noise is not None:
            given["coding.noise_variance"] = self.noise
        if scale is not None:
            given["learning_rate.scale"] = scale
        time_s = load_config(overrides=given).training.total_time_s
        return load_config(overrides=given | {"training.total_time_s": entry.share_of_time * time_s})


@dataclass(frozen=True)
class Outcome:
    """The record and the learning curve of a run."""

    record: Mapping[str, Any]
    curve: Sequence[Mapping[str, float]]

    def reached(self, points: float) -> Mapping[str, float] | None:
        """The first of `LASTING` evaluations within so many points of the centralised accuracy; None if there are none."""
        least = self.record["centralised"] - points / 100 - 1e-9
        inside = [point["score"] >= least for point in self.curve]
        for k, point in enumerate(self.curve):
            if all(inside[k : k + LASTING]):
                return point
        return None

    @property
    def distance(self) -> float:
        """Points of accuracy below the centralised one at the end."""
        return 100 * (self.record["centralised"] - self.curve[-1]["score"])


class Results:
    """Finished runs in a folder, a learning curve and a record each; delete their files to have them computed again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def has(self, case: Case) -> bool:
        return (self.folder / f"{case.file}.json").exists()

    def of(self, case: Case) -> Outcome | None:
        if not self.has(case):
            return None
        with (self.folder / f"{case.file}.csv").open() as file:
            curve = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
        return Outcome(json.loads((self.folder / f"{case.file}.json").read_text()), curve)

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


def cases(dataset: str, stragglers: float, labels: Sequence[str], seed: int) -> Iterator[Case]:
    """All runs of some lines of the table in one setting."""
    for label in labels:
        for noise in NOISE if (ENTRIES | ABLATIONS)[label].noisy else (None,):
            yield Case(dataset, stragglers, label, noise, seed)


def measure(results: Results, dataset: str, labels: Sequence[str], stragglers: Sequence[float], seed: int) -> None:
    """Run what is missing of one seed; step sizes are chosen on the first seed, on held-out training rows."""
    like: Experiment | None = None
    for share in stragglers:
        todo = [case for case in cases(dataset, share, labels, seed) if not results.has(case)]
        if not todo:
            continue
        configs = [case.config(_scale(results, case)) for case in todo]
        like = like or build_experiment(configs[0])
        for case, comparison in zip(todo, sweep(configs, like=like), strict=True):
            result = comparison[case.entry.scheme]
            results.keep(case, comparison, result)
            print(f"{case.file}: {result.status} {result.final.score:.4f}, scale {result.scale}", flush=True)


def _scale(results: Results, case: Case) -> float | None:
    """The step size chosen on the first seed; None to choose it now, or for a scheme that needs none."""
    if case.seed == SEEDS[0] or make_scheme(case.entry.scheme, case.entry.options).tunes_itself:
        return None
    first = results.of(Case(case.dataset, case.stragglers, case.label, case.noise, SEEDS[0]))
    return first.record["scale"] if first else None


@dataclass(frozen=True)
class Line:
    """A scheme in one setting, over all seeds."""

    label: str
    noise: float | None
    outcomes: Sequence[Outcome]

    def time_s(self, points: float) -> float:
        """The median over seeds of the time to a target, infinite if most seeds never reach it."""
        return self._median("everything_charged_s", points)

    def megabytes(self, points: float) -> float:
        return self._median("bytes_up", points) / 1e6

    def _median(self, column: str, points: float) -> float:
        reached = (outcome.reached(points) for outcome in self.outcomes)
        return statistics.median(point[column] if point else math.inf for point in reached)

    @property
    def diverged(self) -> int:
        return sum(outcome.record["status"] == "diverged" for outcome in self.outcomes)

    @property
    def distance(self) -> float:
        return statistics.mean(outcome.distance for outcome in self.outcomes)


def lines(
    results: Results, dataset: str, stragglers: float, labels: Sequence[str], seeds: Sequence[int]
) -> Iterator[Line]:
    """The lines of the table of one setting, as far as there are runs."""
    for case in cases(dataset, stragglers, labels, seeds[0]):
        of_seeds = (Case(dataset, stragglers, case.label, case.noise, seed) for seed in seeds)
        outcomes = [outcome for one in of_seeds if (outcome := results.of(one))]
        if outcomes:
            yield Line(case.label, case.noise, outcomes)


def markdown(results: Results, datasets: Sequence[str], labels: Sequence[str], seeds: Sequence[int]) -> str:
    """One table per dataset and share of stragglers."""
    parts = []
    for dataset in datasets:
        for stragglers in STRAGGLERS:
            table = list(lines(results, dataset, stragglers, labels, seeds))
            if not table:
                continue
            centralised = 100 * statistics.mean(o.record["centralised"] for o in table[0].outcomes)
            share = f"{stragglers:.0%} stragglers" if stragglers else "the paper's fleet"
            head = [
                f"**{dataset}, {share}** (centralised {centralised:.2f}%)",
                "",
                "| scheme | "
                + " | ".join(f"within {t:g}: seconds | MB" for t in TARGETS)
                + " | at the end, points below |",
                "| --- |" + " ---: |" * (2 * len(TARGETS) + 1),
            ]
            parts.append("\n".join(head + [_row(line) for line in table]))
    return "\n\n".join(parts) + "\n"


def _row(line: Line) -> str:
    name = line.label if line.noise is None else f"{line.label}, noise {line.noise:g}"
    cells = [cell for t in TARGETS for cell in (_number(line.time_s(t)), _number(line.megabytes(t)))]
    end = f"{line.distance:.2f}" if not line.diverged else f"diverged ({line.diverged} of {len(line.outcomes)})"
    return f"| {name} | {' | '.join(cells)} | {end} |"


def _number(value: float) -> str:
    return f"{value:,.0f}" if math.isfinite(value) else "never"


def as_csv(results: Results, datasets: Sequence[str], labels: Sequence[str], seeds: Sequence[int]) -> str:
    """Every run on a line: time and megabytes to each target, and where it ended."""
    targets = [f"{what}_within_{t:g}" for t in TARGETS for what in ("seconds", "megabytes")]
    rows = [",".join(("dataset", "stragglers", "scheme", "noise", "seed", "status", *targets, "end", "centralised"))]
    for dataset in datasets:
        for stragglers in STRAGGLERS:
            for seed in seeds:
                for case in cases(dataset, stragglers, labels, seed):
                    outcome = results.of(case)
                    if outcome is None:
                        continue
                    reached = [outcome.reached(t) for t in TARGETS]
                    numbers = [
                        f"{value:.6g}" if point else ""
                        for point in reached
                        for value in ((point["everything_charged_s"], point["bytes_up"] / 1e6) if point else (0.0, 0.0))
                    ]
                    end = f"{outcome.curve[-1]['score']:.6g}", f"{outcome.record['centralised']:.6g}"
                    noise = "" if case.noise is None else f"{case.noise:g}"
                    label = f'"{case.label}"'
                    named = (dataset, f"{stragglers:g}", label, noise, str(seed), outcome.record["status"])
                    rows.append(",".join((*named, *numbers, *end)))
    return "\n".join(rows) + "\n"


def factors(results: Results, datasets: Sequence[str], seeds: Sequence[int]) -> list[dict[str, Any]]:
    """How many times faster CCFL is than the fastest of its rivals, in every setting; infinite if none gets there."""
    rows = []
    for dataset in datasets:
        for stragglers in STRAGGLERS:
            table = list(lines(results, dataset, stragglers, (*RIVALS, "CCFL"), seeds))
            own = [line for line in table if line.label == "CCFL"]
            rivals = [line for line in table if line.label != "CCFL"]
            if not own or not rivals:
                continue
            for points in TARGETS:
                best = min(rivals, key=lambda line: line.time_s(points))
                time_s = own[0].time_s(points)
                factor = best.time_s(points) / time_s if math.isfinite(time_s) else 0.0
                rows.append(
                    {
                        "dataset": dataset,
                        "stragglers": stragglers,
                        "within": points,
                        "ccfl_s": time_s,
                        "best_rival": best.label,
                        "best_rival_s": best.time_s(points),
                        "factor": factor,
                    }
                )
    return rows


def draw(results: Results, datasets: Sequence[str], path: Path, seed: int = 0) -> None:
    """Accuracy against time, everything charged, in the paper's fleet."""
    shown = [("FedAvg", None), ("CodedFedL", None), ("SCFL", 0.25), ("DP-CFL", 0.25), ("Fed3R", None), ("CCFL", None)]
    colours = dict(
        zip(
            (label for label, _ in shown),
            ("#1f77b4", "#8c564b", "#2ca02c", "#9467bd", "#7f7f7f", "#d62728"),
            strict=True,
        )
    )
    titles = {"mnist": "MNIST", "cifar10-vgg": "CIFAR-10 features", "digits": "digits"}
    figure, axes = plt.subplots(1, len(datasets), figsize=(5.6 * len(datasets), 3.9), squeeze=False)
    for axis, dataset in zip(axes[0], datasets, strict=True):
        centralised = 0.0
        for label, noise in shown:
            outcome = results.of(Case(dataset, 0.0, label, noise, seed))
            if outcome is None:
                continue
            centralised = 100 * outcome.record["centralised"]
            times = [point["everything_charged_s"] for point in outcome.curve]
            scores = [100 * point["score"] for point in outcome.curve]
            style = {"color": colours[label], "label": label, "linewidth": 2.6 if label == "CCFL" else 1.6}
            if len(times) == 1:
                axis.plot(times, scores, "o", **style)
            else:
                axis.plot(times, scores, **style)
        axis.axhline(centralised, color="black", linewidth=0.8, linestyle=":")
        axis.text(0.01, centralised, " centralised", transform=axis.get_yaxis_transform(), va="bottom", fontsize=8)
        axis.set(
            xscale="log",
            ylim=(centralised - 6, centralised + 0.6),
            xlabel="simulated seconds, everything charged",
            title=titles[dataset],
        )
        axis.grid(alpha=0.25, which="both")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("test accuracy, %")
    axes[0][-1].legend(
        frameon=False, fontsize=9, loc="lower left", bbox_to_anchor=(0.15, 0.0)
    )  # right of the first curve
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("runs/time-to-accuracy"), help="folder of finished runs")
    parser.add_argument("--dataset", action="append", choices=list(DATASETS), help="all by default")
    parser.add_argument(
        "--entry",
        action="append",
        choices=[*ENTRIES, *ABLATIONS],
        help="lines of the table; all but ablations by default",
    )
    parser.add_argument("--ablations", action="store_true", help="the ablations instead")
    parser.add_argument("--stragglers", action="append", type=float, choices=STRAGGLERS)
    parser.add_argument("--seed", action="append", type=int, choices=SEEDS)
    parser.add_argument("--report", action="store_true", help="only report what is there")
    parser.add_argument("--quick", action="store_true", help="digits, paper's fleet, one seed: does it still work?")
    parser.add_argument("--csv", type=Path, help="write every run of the table as a line")
    parser.add_argument("--picture", type=Path, help="draw the curves of the paper's fleet")
    parser.add_argument("--json", action="store_true", help="print the factors as JSON instead of the tables")
    return parser.parse_args()


def main() -> None:
    options = read_options()
    results = Results(options.results)
    datasets = ["digits"] if options.quick else options.dataset or list(DATASETS)
    labels = options.entry or list(ABLATIONS if options.ablations else ENTRIES)
    stragglers = [0.0] if options.quick else options.stragglers or STRAGGLERS
    seeds = [0] if options.quick else options.seed or list(SEEDS)
    if not options.report:
        for seed in seeds:
            for dataset in datasets:
                measure(results, dataset, labels, stragglers, seed)
    if options.csv:
        write_atomically(options.csv, as_csv(results, datasets, labels, seeds))
    if options.picture:
        draw(results, datasets, options.picture)
    compared = factors(results, datasets, seeds)
    if options.json:
        print(json.dumps(compared))
        return
    print(markdown(results, datasets, labels, seeds))
    for row in compared:
        rival = f"{row['best_rival']} {_number(row['best_rival_s'])} s"
        print(
            f"{row['dataset']}, stragglers {row['stragglers']:g}, within {row['within']:g}: CCFL {_number(row['ccfl_s'])} s, "
            f"{rival}, factor {row['factor']:.1f}"
        )


if __name__ == "__main__":
    main()
