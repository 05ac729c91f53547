"""Accuracy at equal privacy: every scheme under one (epsilon, delta) for what its devices send, everything charged."""

from __future__ import annotations

import csv
import io
import json
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from common import read_options

from codedfl.config import load_config
from codedfl.experiment import Experiment, build_experiment, run, summarise
from codedfl.files import write_atomically

DATASETS = ("digits", "mnist", "cifar10-vgg")
THREAT_MODELS = ("each-message", "sums-only")
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
SEEDS = (0, 1, 2)
DELTA = 1e-5

ENTRIES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "DP-GD": ("dp-gd", {}),
    "DP-GD, 10% of the rows": ("dp-gd", {"sampling_rate": 0.1}),
    "DP-GD, square loss": ("dp-gd", {"loss": "square"}),
    "IHM": ("ihm", {}),
    "Noisy statistics (SSP)": ("ssp", {}),
    "AdaSSP": ("ssp", {"method": "adassp"}),
    "One shot from factors": ("one-shot", {}),
    "DP-CFL": ("dp-cfl", {}),
    "SCFL, private updates": ("scfl-private", {}),
}
"""Lines of the table: a scheme and its options. Nothing is tuned, so there is nothing else to set."""

APART = ("One shot from factors",)
"""Lines whose devices send what cannot be added up in secret: sums only changes nothing for them, so one run stands for both."""


@dataclass(frozen=True)
class Point:
    """One run."""

    dataset: str
    seed: int
    threat_model: str
    epsilon: float
    entry: str
    accuracy: float
    centralised: float
    kept_epsilon: float
    covers: str
    rounds: int
    charged_s: float
    megabytes_up: float
    device_gigamacs: float
    wall_s: float

    @property
    def key(self) -> tuple[str, int, str, float, str]:
        """What tells runs apart."""
        return self.dataset, self.seed, self.threat_model, self.epsilon, self.entry


def main() -> None:
    options = read_options(
        __doc__ or "",
        ("--dataset", {"action": "append", "choices": DATASETS, "help": "only these"}),
        ("--seed", {"action": "append", "type": int, "help": "only these"}),
        ("--epsilon", {"action": "append", "type": float, "help": "only these"}),
        ("--entry", {"action": "append", "choices": list(ENTRIES), "help": "only these"}),
        ("--results", {"type": Path, "default": Path("docs/privacy"), "help": "folder of table and picture"}),
    )
    path = options.results / "frontier.csv"
    points = {point.key: point for point in read(path)}
    points |= {point.key: point for known in points.values() for point in both(known)}
    datasets = options.dataset or (("digits",) if options.quick else DATASETS)
    for dataset in datasets:
        for seed in options.seed or ((0,) if options.quick else SEEDS):
            epsilons = options.epsilon or ((2.0,) if options.quick else EPSILONS)
            for point in measure(dataset, seed, epsilons, options.entry or tuple(ENTRIES), set(points)):
                points |= {each.key: each for each in both(point)}
                write(path, points.values())
    kept = list(points.values())
    for dataset in {point.dataset for point in kept}:
        write_atomically(options.results / f"frontier-{dataset}.png", draw(dataset, kept))
    write_atomically(options.results / "frontier.md", markdown(kept))
    print(json.dumps([asdict(point) for point in kept]) if options.json else markdown(kept))


def measure(
    dataset: str, seed: int, epsilons: Sequence[float], entries: Sequence[str], known: set[tuple[Any, ...]]
) -> Iterator[Point]:
    """Yield the runs that are not known yet; the data is loaded once."""
    experiment: Experiment | None = None
    for threat_model in THREAT_MODELS:
        for epsilon in epsilons:
            for entry in entries:
                twice = entry in APART and threat_model != THREAT_MODELS[0]
                if twice or (dataset, seed, threat_model, epsilon, entry) in known:
                    continue
                scheme, given = ENTRIES[entry]
                config = load_config(
                    overrides=[
                        ("data.dataset", dataset),
                        ("seed", seed),
                        ("schemes", [scheme]),
                        ("privacy.epsilon", epsilon),
                        ("privacy.delta", DELTA),
                        ("privacy.threat_model", threat_model),
                        *((f"options.{scheme}.{name}", value) for name, value in given.items()),
                    ]
                )
                experiment = experiment.with_code_of(config) if experiment else build_experiment(config)
                began = time.perf_counter()
                summary = summarise(run(config, experiment=experiment))
                (found,) = summary["schemes"]
                yield Point(
                    dataset,
                    seed,
                    threat_model,
                    epsilon,
                    entry,
                    accuracy=found["accuracy"] or 0.0,
                    centralised=summary["centralised"]["accuracy"],
                    kept_epsilon=found["privacy"]["epsilon"],
                    covers=found["privacy"]["covers"],
                    rounds=found["rounds"],
                    charged_s=found["everything_charged_s"],
                    megabytes_up=found["bytes_up"] / 1e6,
                    device_gigamacs=(found["device_macs"] + found["encoding_macs"]) / 1e9,
                    wall_s=time.perf_counter() - began,
                )


def both(point: Point) -> tuple[Point, ...]:
    """Return a run for every threat model that it stands for."""
    return tuple(replace(point, threat_model=each) for each in THREAT_MODELS) if point.entry in APART else (point,)


def read(path: Path) -> list[Point]:
    """Return the runs of earlier calls."""
    if not path.exists():
        return []
    kinds = {field.name: {"str": str, "int": int, "float": float}[str(field.type)] for field in fields(Point)}
    with path.open(encoding="utf-8") as file:
        return [Point(**{name: kinds[name](value) for name, value in row.items()}) for row in csv.DictReader(file)]


def write(path: Path, points: Any) -> None:
    """Write all runs, atomically."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(Point)], lineterminator="\n")
    writer.writeheader()
    for point in points:
        writer.writerow(
            {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in asdict(point).items()}
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.getvalue())


def markdown(points: Sequence[Point]) -> str:
    """Return a table per dataset and threat model: median accuracy over seeds, and the cost at the middle epsilon."""
    lines = [
        "# Accuracy at equal privacy",
        "",
        f"Everything that devices send is covered at delta = {DELTA:g}. Medians over seeds of the test accuracy in percent, and"
        " of the costs over all epsilons; fewer seeds than the title says are in brackets, empty cells were not run."
        " `benchmarks/privacy_frontier.py` made this from `frontier.csv`, which has every run.",
        "",
    ]
    for dataset in DATASETS:
        for threat_model in THREAT_MODELS:
            here = [p for p in points if (p.dataset, p.threat_model) == (dataset, threat_model)]
            if not here:
                continue
            epsilons = sorted({p.epsilon for p in here})
            seeds = len({p.seed for p in here})
            centralised = 100 * statistics.median(p.centralised for p in here)
            lines += [
                f"### {dataset}, {threat_model.replace('-', ' ')} ({seeds} seed(s); centralised {centralised:.1f}%)",
                "",
            ]
            names = [f"{e:g}" for e in epsilons]
            lines.append(f"| epsilon | {' | '.join(names)} | seconds charged | MB up | device GMAC |")
            lines.append("|---" * (len(epsilons) + 4) + "|")
            for entry in ENTRIES:
                own = [p for p in here if p.entry == entry]
                if not own:
                    continue
                scores = [[100 * p.accuracy for p in own if p.epsilon == e] for e in epsilons]
                cells = [
                    f"{statistics.median(s):.1f}" + (f" ({len(s)})" if len(s) < seeds else "") if s else ""
                    for s in scores
                ]
                costs = [
                    f"{statistics.median(getattr(p, name) for p in own):.3g}"
                    for name in ("charged_s", "megabytes_up", "device_gigamacs")
                ]
                lines.append(f"| {entry} | {' | '.join(cells + costs)} |")
            lines.append("")
    return "\n".join(lines)


def draw(dataset: str, points: Sequence[Point]) -> bytes:
    """Return a picture: accuracy against epsilon, one panel per threat model."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True, layout="constrained")
    for axis, threat_model in zip(axes, THREAT_MODELS, strict=True):
        here = [p for p in points if (p.dataset, p.threat_model) == (dataset, threat_model)]
        for number, entry in enumerate(ENTRIES):
            own = [p for p in here if p.entry == entry]
            if not own:
                continue
            epsilons = sorted({p.epsilon for p in own})
            scores = [sorted(100 * p.accuracy for p in own if p.epsilon == e) for e in epsilons]
            axis.plot(
                epsilons,
                [statistics.median(s) for s in scores],
                marker="o",
                markersize=4,
                linewidth=2.2 if number == 0 else 1.2,
                label=entry,
                color=f"C{number}",
            )
            axis.fill_between(epsilons, [s[0] for s in scores], [s[-1] for s in scores], color=f"C{number}", alpha=0.15)
        if here:
            axis.axhline(100 * statistics.median(p.centralised for p in here), color="0.4", linestyle=":")
            ticks = sorted({p.epsilon for p in here})
            axis.set_xscale("log")
            axis.set_xticks(ticks, [f"{t:g}" for t in ticks])
            axis.minorticks_off()
        axis.set_title(f"server sees {'each message' if threat_model == 'each-message' else 'sums only'}")
        axis.set_xlabel(f"epsilon, at delta = {DELTA:g}")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("test accuracy, %")
    for axis in [axis for axis in axes if axis.lines][-1:]:
        axis.legend(fontsize=8, loc="lower right")
    figure.suptitle(f"{dataset}: accuracy at equal privacy, everything that devices send covered (dotted: centralised)")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    plt.close(figure)
    return buffer.getvalue()


if __name__ == "__main__":
    main()
