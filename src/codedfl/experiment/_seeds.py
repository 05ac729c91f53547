"""The same comparison under several seeds, with one run folder for each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from codedfl._progress_display import showing
from codedfl.config import Config
from codedfl.errors import InputError
from codedfl.experiment._run_folder import RunFolder
from codedfl.experiment._runner import run
from codedfl.progress import Progress
from codedfl.results import SeedRuns, evidence_of, summarise
from codedfl.streams import MAX_SEED
from codedfl.training import Callback

MOST_SEEDS = 1000


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
