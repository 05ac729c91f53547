"""The same comparison under several seeds: one run folder for each, and what they have in common."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from codedfl._progress_display import showing
from codedfl._version import __version__
from codedfl.config import Config
from codedfl.errors import InputError
from codedfl.experiment._evidence import Evidence, evidence_of
from codedfl.experiment._noise import half_width
from codedfl.experiment._run_folder import RunFolder
from codedfl.experiment._runner import run
from codedfl.experiment._summary import SHARES, summarise
from codedfl.experiment._verdict import Verdict, verdict
from codedfl.files import write_atomically
from codedfl.progress import Progress
from codedfl.streams import MAX_SEED
from codedfl.training import Callback

if TYPE_CHECKING:
    from codedfl.plotting import Clock

MOST_SEEDS = 1000


@dataclass(frozen=True, eq=False)
class SeedRuns:
    """A comparison under several seeds.

    Args:
        config: the configuration, with the first of the seeds.
        evidence: what a verdict needs of each run.
        summaries: the summary of each run.
        planned: number of seeds that were asked for.
    """

    config: Config
    evidence: tuple[Evidence, ...]
    summaries: tuple[dict[str, Any], ...]
    planned: int

    @property
    def interrupted(self) -> bool:
        """Whether the user stopped the runs early."""
        return len(self.evidence) < self.planned or any(each.interrupted for each in self.evidence)

    @property
    def verdict(self) -> Verdict:
        """The verdict over all seeds."""
        return verdict(self.evidence)

    def summary(self) -> dict[str, Any]:
        """Return means with intervals, the verdict, and the summary of every run, as JSON can hold them."""
        first = self.summaries[0]
        metric = first["metric"]
        columns = (
            metric,
            *(f"time_to_{share}_s" for share in SHARES),
            "simulated_time_s",
            "everything_charged_s",
            "bytes_up",
        )
        return {
            "version": __version__,
            "seeds": [summary["seed"] for summary in self.summaries],
            **{name: first[name] for name in ("dataset", "task", "metric", "epsilon", "delta")},
            "centralised": {metric: over_seeds([(each["centralised"] or {}).get(metric) for each in self.summaries])},
            "schemes": [
                {
                    "scheme": scheme["scheme"],
                    "title": scheme["title"],
                    "status": [each["status"] for each in self._of(scheme["scheme"])],
                    "covers": scheme["privacy"]["covers"],
                    **{name: over_seeds([each[name] for each in self._of(scheme["scheme"])]) for name in columns},
                }
                for scheme in first["schemes"]
            ],
            "verdict": list(self.verdict.sentences),
            "runs": list(self.summaries),
        }

    def _of(self, name: str) -> list[dict[str, Any]]:
        return [scheme for summary in self.summaries for scheme in summary["schemes"] if scheme["scheme"] == name]

    def write(self, path: Path | str) -> None:
        """Write ``summary.json`` and the pictures of all seeds to the folder that holds the runs."""
        path = Path(path)
        write_atomically(path / "summary.json", json.dumps(self.summary(), indent=2))
        if self.evidence[0].schemes:
            write_atomically(path / "curves.png", self._picture("training"))
            write_atomically(path / "curves-charged.png", self._picture("everything"))

    def _picture(self, clock: Clock) -> bytes:
        from codedfl.plotting import SeedCurves, draw_seed_curves  # matplotlib is slow to import and needed only here

        seeds = [each.seed for each in self.evidence]
        curves = [
            SeedCurves(
                scheme.name,
                scheme.title,
                [s.curve for each in self.evidence for s in each.schemes if s.name == scheme.name],
            )
            for scheme in self.evidence[0].schemes
        ]
        known = [each.centralised for each in self.evidence if each.centralised is not None]
        return draw_seed_curves(
            curves,
            title=f"{self.config.data.dataset}: mean and range over {len(seeds)} seeds ({seeds[0]} to {seeds[-1]})",
            metric="accuracy" if self.evidence[0].task == "classification" else "r2",
            centralised=float(np.mean(known)) if known else None,
            clock=clock,
        )


def over_seeds(values: Sequence[float | None]) -> dict[str, Any]:
    """Return the mean of one number per seed with its 95% t-interval; no mean if a seed lacks the number.

    Example:
        >>> over_seeds([1.0, 2.0, 3.0])["mean"], over_seeds([1.0, None])["mean"]
        (2.0, None)
    """
    known = np.array([value for value in values if value is not None and math.isfinite(value)])
    complete = len(known) == len(values) > 0
    mean, half = (float(known.mean()), half_width(known)) if complete else (None, math.inf)
    sure = mean is not None and math.isfinite(half)
    return {
        "mean": mean,
        "low": mean - half if sure and mean is not None else None,
        "high": mean + half if sure and mean is not None else None,
        "values": list(values),
    }


def seed_configs(config: Config, seeds: int) -> list[Config]:
    """Return the configuration under its own seed and those that follow.

    Raises:
        InputError: if there are too few or too many seeds.

    Example:
        >>> [each.seed for each in seed_configs(Config(seed=7), 3)]
        [7, 8, 9]
    """
    if not 1 <= seeds <= MOST_SEEDS:
        raise InputError(f"--seeds = {seeds} must be between 1 and {MOST_SEEDS}.")
    if config.seed + seeds - 1 > MAX_SEED:
        raise InputError(
            f"seed = {config.seed} leaves no room for {seeds} seeds below {MAX_SEED + 1}: give a smaller one."
        )
    return [config.model_copy(update={"seed": config.seed + place}) for place in range(seeds)]


def create_seed_folders(path: Path | str, config: Config, seeds: int) -> list[RunFolder]:
    """Create one run folder per seed, ``seed-0`` and so on, in a folder of their own."""
    return [RunFolder.create(Path(path) / f"seed-{each.seed}", each) for each in seed_configs(config, seeds)]


def reopen_seed_folders(path: Path | str) -> list[RunFolder]:
    """Open the run folders of all seeds, in the order of the seeds; none if the folder does not hold any."""
    found = [RunFolder.reopen(file.parent) for file in Path(path).glob("seed-*/config.toml")]
    return sorted(found, key=lambda folder: folder.config.seed)


def run_seeds(
    folders: Sequence[RunFolder], *, progress: Progress | bool = False, callbacks: tuple[Callback, ...] = ()
) -> SeedRuns:
    """Run a comparison under several seeds, one after the other; runs with checkpoints continue from them.

    Args:
        folders: one run folder per seed, see `create_seed_folders`.
        progress: where to report progress; True for a display of its own.
        callbacks: added to every run; one that raises `StopTraining` ends them all, with the results so far kept.

    Raises:
        InputError: if there is no folder, or the configuration is unsuitable; raised before any training.
    """
    if not folders:
        raise InputError("there is no run folder for any seed: create them first.")
    evidence, summaries = [], []
    with showing(progress) as shown:
        for place, folder in enumerate(folders, start=1):
            shown.say(f"seed {folder.config.seed} ({place} of {len(folders)})")
            comparison = run(folder.config, folder=folder, progress=shown, callbacks=callbacks)
            evidence.append(evidence_of(comparison))
            summaries.append(summarise(comparison))
            if comparison.interrupted:
                break
            del comparison  # its data would stay in memory while the next is loaded
    return SeedRuns(folders[0].config, tuple(evidence), tuple(summaries), len(folders))
