"""Train all schemes of one or several configurations, or of one under several seeds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from codedfl._messages import shown
from codedfl._progress_display import showing
from codedfl.config import Config, load_config
from codedfl.errors import InputError
from codedfl.experiment._build import Experiment, family_key
from codedfl.experiment._family import Family
from codedfl.experiment._run_folder import RunFolder
from codedfl.plugins import blaming_plugins
from codedfl.progress import Progress
from codedfl.results import Comparison, SeedRuns, evidence_of, summarise
from codedfl.streams import MAX_SEED
from codedfl.training import Callback, StepSizeChoice, StopTogether

Settings = Config | Mapping[str, Any] | str | Path
"""A configuration, what differs from the defaults (see `load_config`), or the path of a TOML file."""

Callbacks = Callback | Iterable[Callback]
"""One callback, or several."""

Result = TypeVar("Result")


def as_config(settings: Settings) -> Config:
    """Return a configuration as it is, read from a file, or made of overrides.

    Example:
        >>> as_config({"training.rounds": 20})
        Config(training=TrainingConfig(rounds=20))
        >>> as_config(3)
        Traceback (most recent call last):
        codedfl.errors.InputError: config = 3 is no configuration: give a Config, a dictionary, or the path of a TOML file.
    """
    if isinstance(settings, Config):
        return settings
    if isinstance(settings, Mapping):
        return load_config(overrides=settings)
    if isinstance(settings, str | os.PathLike):
        return load_config(settings)
    raise InputError(
        f"config = {shown(settings)} is no configuration: give a Config, a dictionary, or the path of a TOML file."
    )


def as_callbacks(callbacks: Callbacks) -> tuple[Callback, ...]:
    """Return the callbacks as a tuple, or refuse what is none.

    Example:
        >>> len(as_callbacks(Callback())), len(as_callbacks([Callback(), Callback()]))
        (1, 2)
        >>> as_callbacks(3)
        Traceback (most recent call last):
        codedfl.errors.InputError: callbacks = 3 is no codedfl.training.Callback: give one, or a tuple of them.
    """
    if isinstance(callbacks, Callback):
        return (callbacks,)
    hooks = tuple(callbacks) if isinstance(callbacks, Iterable) and not isinstance(callbacks, str) else (callbacks,)
    for each in hooks:
        if not isinstance(each, Callback):
            raise InputError(
                f"callbacks = {shown(each)} is no codedfl.training.Callback: give one, or a tuple of them."
            )
    return hooks


def as_folder(folder: RunFolder | Path | str | None, config: Config) -> RunFolder | None:
    """Return the run folder as it is, or a new one at a path.

    Example:
        >>> as_folder(3, Config())
        Traceback (most recent call last):
        codedfl.errors.InputError: folder = 3 is no folder: give a path, or a RunFolder.
    """
    if folder is None or isinstance(folder, RunFolder):
        return folder
    if isinstance(folder, str | os.PathLike):
        return RunFolder.create(Path(folder), config)
    raise InputError(f"folder = {shown(folder)} is no folder: give a path, or a RunFolder.")


@blaming_plugins()
def run(
    config: Settings,
    *,
    experiment: Experiment | None = None,
    folder: RunFolder | Path | str | None = None,
    progress: Progress | bool = False,
    callbacks: Callbacks = (),
) -> Comparison:
    """Run a comparison: train every scheme of a configuration in the same setting, one after the other.

    Args:
        config: what to compare, and in which setting: a configuration, what differs from the defaults (see `load_config`), or the
            path of a TOML file.
        experiment: the configuration's data, fleet and code, if already built.
        folder: where checkpoints and results go: the path of a new folder, or a `RunFolder`, in which schemes with a checkpoint
            continue from it. None keeps everything in memory. A new one goes if the run is refused.
        progress: where to report progress; True for a display of its own, on the terminal or in the notebook.
        callbacks: one or several, added to every run; one that raises `StopTraining` ends the comparison, with the results so far
            kept.

    Returns:
        The result of every scheme.

    Raises:
        InputError: if the configuration, the data or the fleet is unsuitable; raised before any training.

    Example:
        >>> run({"schemes": ["scfl"], "training.rounds": 20, "learning_rate.scale": 0.5})["scfl"].final.round
        20
    """
    config, hooks = as_config(config), as_callbacks(callbacks)
    folder = as_folder(folder, config)
    try:
        with showing(progress) as display:
            runner = Family([config], display, hooks, experiment=experiment, folder=folder)
            (comparison,) = runner.compare()
    except Exception:
        if folder and folder.new:
            folder.discard_unused()
        raise
    if folder:
        folder.write_results(comparison)
    return comparison


@blaming_plugins()
def sweep(
    configs: Sequence[Settings],
    *,
    like: Experiment | None = None,
    progress: Progress | bool = False,
    callbacks: Callbacks = (),
) -> list[Comparison]:
    """Run several comparisons with the same results as `run`, in a fraction of the time.

    Configurations that agree in data, features, fleet, local steps and deadline share them, and their runs advance in lock-step
    (see `codedfl.training.train_together`): noise levels, draws of the coded data, step sizes, server batches and schemes cost
    little more than one of them. A run whose result does not depend on what differs, such as FedAvg at several noise levels, is
    trained once. Every number equals that of `run` up to rounding. The coded data of all configurations is held in
    memory at once.

    Nothing is written; ``RunFolder.create(path, config).write_results(comparison)`` does that.

    Args:
        configs: what to compare, and in which settings; each as for `run`.
        like: an experiment with the same data and seed as all configurations, so that the data is not loaded again.
        progress: as for `run`; a shared run is reported once.
        callbacks: as for `run`; one that raises `StopTraining` ends the sweep, with the results so far kept.

    Returns:
        One comparison per configuration, in order. Each reports the real time of all comparisons that shared its data.

    Raises:
        InputError: if a configuration, the data or the fleet is unsuitable; raised before any training on that data.

    Example:
        >>> base = {"schemes": ["fedavg", "scfl"], "training.rounds": 20, "learning_rate.scale": 0.5}
        >>> quiet, noisy = sweep([base | {"coding.noise_variance": variance} for variance in (0.1, 10.0)])
        >>> quiet["scfl"].final.loss < noisy["scfl"].final.loss, quiet["fedavg"].final == noisy["fedavg"].final
        (True, True)
    """
    stop = StopTogether()
    hooks = (*as_callbacks(callbacks), stop)

    with showing(progress) as display:

        def compare(family: list[Config]) -> list[Comparison]:
            return Family(family, display, hooks, like=like, stop=stop).compare()

        return _by_family(configs, compare)


@blaming_plugins()
def check(configs: Sequence[Settings], *, like: Experiment | None = None, progress: Progress | bool = False) -> None:
    """Refuse whatever `sweep` would refuse, without training.

    Args:
        configs: what would be compared, and in which settings; each as for `run`.
        like: as for `sweep`.
        progress: as for `run`.

    Raises:
        InputError: if a configuration, the data or the fleet is unsuitable.

    Example:
        >>> check([{"coding.noise_variance": [0.1, 0.2]}])
        Traceback (most recent call last):
        codedfl.errors.InputError: coding.noise_variance has 2 value(s) for 20 device(s): give one, or one for each device.
    """
    with showing(progress) as display:

        def build(family: list[Config]) -> list[None]:
            Family(family, display, (), like=like)
            return [None] * len(family)

        _by_family(configs, build)


@blaming_plugins()
def tune(
    configs: Sequence[Settings],
    *,
    like: Experiment | None = None,
    progress: Progress | bool = False,
    callbacks: Callbacks = (),
) -> list[dict[str, StepSizeChoice]]:
    """Choose step sizes as `sweep` does, without training with them.

    Args:
        configs: the configurations; those whose ``learning_rate.scale`` is a number have nothing to choose.
        like: as for `sweep`.
        progress: where to report progress; True for a display of its own, on the terminal or in the notebook.
        callbacks: one or several, added to every short run.

    Returns:
        For each configuration the choice of each scheme, by name.

    Raises:
        InputError: as from `sweep`.
        StopTraining: if a callback stopped a run.
    """
    stop = StopTogether()
    hooks = (*as_callbacks(callbacks), stop)

    with showing(progress) as display:

        def choose(family: list[Config]) -> list[dict[str, StepSizeChoice]]:
            return Family(family, display, hooks, like=like, stop=stop).choose()

        return _by_family(configs, choose)


def _by_family(settings: Sequence[Settings], work: Callable[[list[Config]], list[Result]]) -> list[Result]:
    """Do the work for each group of configurations that differ only in code, schemes and rounds."""
    configs = [as_config(each) for each in settings]
    families: dict[str, list[int]] = {}
    for place, config in enumerate(configs):
        families.setdefault(family_key(config), []).append(place)
    results: dict[int, Result] = {}
    for places in families.values():
        results.update(zip(places, work([configs[place] for place in places]), strict=True))
    return [results[place] for place in range(len(configs))]


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
    with showing(progress) as display:
        for place, folder in enumerate(folders, start=1):
            display.say(f"seed {folder.config.seed} ({place} of {len(folders)})")
            comparison = run(folder.config, folder=folder, progress=display, callbacks=callbacks)
            evidence.append(evidence_of(comparison))
            summaries.append(summarise(comparison))
            if comparison.interrupted:
                break
            del comparison  # its data would stay in memory while the next is loaded
    return SeedRuns(folders[0].config, tuple(evidence), tuple(summaries), len(folders))
