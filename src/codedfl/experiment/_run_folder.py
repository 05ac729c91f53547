"""The files of a run: its folder, its learning curves, and a record of who arrived in its rounds."""

from __future__ import annotations

import json
import math
import platform
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from codedfl._version import __version__
from codedfl.config import Config, load_config, to_toml
from codedfl.data import is_plugin_dataset
from codedfl.errors import InputError
from codedfl.experiment._fleet import names_plugin
from codedfl.experiment._run_details import run_details
from codedfl.files import plain, remove_leftovers, write_atomically
from codedfl.fleet import TraceArrivals, write_trace
from codedfl.identity import identity
from codedfl.native import backend
from codedfl.plugins import Kind, find_plugin
from codedfl.results import Comparison, curves_png, summarise
from codedfl.training import StepSizeChoice, Trial, curves_to_csv

SUBFOLDERS = ("checkpoints", "curves", "models")
LIBRARIES = ("numpy", "scipy", "scikit-learn", "pandas", "pydantic", "matplotlib")


class RunFolder:
    """A folder with the configuration, checkpoints and results of one comparison.

    Use `create` for a new run and `reopen` to continue one.

    Args:
        path: the folder.
        config: the configuration that the folder holds.
        new: whether the folder was made for a run that has not begun, and goes if that run is refused.
    """

    def __init__(self, path: Path | str, config: Config, *, new: bool = False) -> None:
        self.path, self.config, self.new = Path(path), config, new

    @classmethod
    def create(cls, path: Path | str, config: Config) -> RunFolder:
        """Create a folder for a new run and write the configuration to it.

        Raises:
            InputError: if the folder is not empty, so that no result is overwritten.
        """
        path = Path(path)
        try:
            if path.exists() and (not path.is_dir() or any(path.iterdir())):
                raise InputError(f"{path} exists and is not empty: resume the run in it, or give another folder.")
            folder = cls(path, config, new=True)
            folder._make_subfolders()
            write_atomically(path / "config.toml", to_toml(config))
        except OSError as error:
            raise InputError(f"{path} cannot be written ({error.strerror}): give another folder.") from error
        return folder

    @classmethod
    def reopen(cls, path: Path | str) -> RunFolder:
        """Open the folder of an earlier run, and remove files that a killed process left incomplete.

        Raises:
            InputError: if it is not a run folder, or a plug-in of the run is not what it was.
        """
        path = Path(path)
        if not ((path / "config.toml").is_file() and (path / "checkpoints").is_dir()):
            raise InputError(
                f"{path} holds no run to resume (no config.toml or no checkpoints in it): give the folder of a run."
            )
        folder = cls(path, load_config(path / "config.toml"))
        folder.require_same_plugins()
        try:
            remove_leftovers(path)
            folder._make_subfolders()
        except OSError as error:
            raise InputError(f"{path} cannot be written ({error.strerror}): give it the permission.") from error
        return folder

    def require_same_plugins(self) -> None:
        """Refuse to continue with another plug-in than the run began with: one table would hold the results of both.

        Raises:
            InputError: a plug-in has another version, or other source, than `keep_versions` recorded.
        """
        path = self.path / "versions.json"
        try:
            recorded = dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise InputError(f"{path} is damaged ({error}): delete it to continue with what is installed.") from error
        for name, now in plugin_versions(self.config).items():
            before = recorded.get(name, now)
            if before != now:
                raise InputError(
                    f"{self.path} was begun with another {name} ({before}) than is installed ({now}), and their results would be"
                    " mixed: install that version again, or give another folder."
                )

    def _make_subfolders(self) -> None:
        for name in SUBFOLDERS:
            (self.path / name).mkdir(parents=True, exist_ok=True)

    def discard_unused(self) -> None:
        """Remove the folder if it holds nothing that a run could continue from, so that a refused run leaves no trace."""
        subfolders = [self.path / name for name in SUBFOLDERS]
        # A curve alone is of no use: without a checkpoint the run begins again.
        files = {self.path / name for name in ("config.toml", "details.json", "versions.json")} | {
            *self.path.glob("curves/*.csv")
        }
        if {*self.path.rglob("*")} <= {*subfolders, *files}:
            with suppress(OSError):  # leftovers do no harm
                for file in files:
                    file.unlink(missing_ok=True)
                for folder in (*subfolders, self.path):
                    folder.rmdir()

    def checkpoint(self, scheme: str) -> Path:
        """Return the path of a scheme's checkpoint."""
        return self.path / "checkpoints" / f"{scheme}.npz"

    def curve(self, scheme: str) -> Path:
        """Return the path of a scheme's learning curve during the run."""
        return self.path / "curves" / f"{scheme}.csv"

    def step_sizes(self) -> dict[str, StepSizeChoice]:
        """Return the step sizes chosen so far."""
        path = self.path / "step_sizes.json"
        if not path.exists():
            return {}
        try:
            return {name: _choice(values) for name, values in json.loads(path.read_text(encoding="utf-8")).items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InputError(f"{path} is damaged ({error}): delete it to choose the step sizes again.") from error

    def keep_step_sizes(self, choices: dict[str, StepSizeChoice]) -> None:
        """Write the step sizes chosen so far."""
        values = {name: asdict(choice) for name, choice in choices.items()}
        write_atomically(self.path / "step_sizes.json", json.dumps(plain(values), indent=2))

    @property
    def has_details(self) -> bool:
        """Whether a run in this folder has begun."""
        return (self.path / "details.json").exists()

    def keep_details(self, details: dict[str, Any]) -> None:
        """Write the details of the run, those of its start or those of its end; ``codedfl report`` shows them."""
        write_atomically(self.path / "details.json", json.dumps(details))

    def keep_versions(self) -> None:
        """Write what the run is computed by."""
        write_atomically(self.path / "versions.json", json.dumps(_versions(self.config), indent=2))

    def write_results(self, comparison: Comparison) -> None:
        """Write the summary, details, curves, pictures, models and versions."""
        self.keep_details(run_details(comparison))
        write_atomically(self.path / "summary.json", json.dumps(summarise(comparison), indent=2))
        write_atomically(self.path / "curves.csv", curves_csv(comparison))
        self.keep_versions()
        if comparison.results:
            write_atomically(self.path / "curves.png", curves_png(comparison, "training"))
            write_atomically(self.path / "curves-charged.png", curves_png(comparison, "everything"))
        for result in comparison.results:
            # Nobody has a use for a model that is worse than none.
            if result.status != "diverged" and np.isfinite(result.model).all():
                comparison.predictor(result.scheme.name).save(
                    self.path / "models" / f"{result.scheme.name}.safetensors"
                )


def _choice(values: dict[str, Any]) -> StepSizeChoice:
    trials = tuple(
        Trial(float(trial["scale"]), _number(trial["score"], -math.inf), _number(trial["loss"], math.inf))
        for trial in values["trials"]
    )
    choice = StepSizeChoice(float(values["scale"]), trials)
    if choice.scale not in [trial.scale for trial in trials]:
        raise ValueError("a step size that was not tried")
    return choice


def _number(value: float | None, missing: float) -> float:
    return missing if value is None else float(value)


def curves_csv(comparison: Comparison) -> str:
    """Return all learning curves as CSV, one row per evaluation."""
    return curves_to_csv((result.scheme.name, result.curve) for result in comparison.results)


def record_trace(comparison: Comparison, path: str | Path) -> None:
    """Write the attendance of every round of a comparison.

    Schemes that ask devices for the same batches have the same arrivals, which make one CSV file. Where schemes differ (a fixed
    batch, a load allocation), ``path`` becomes a folder with one file per scheme, ``<scheme>.csv``.

    Args:
        comparison: the finished comparison.
        path: the file or folder, for ``fleet.trace``.

    Raises:
        InputError: if no scheme asks devices for anything, or the path cannot be written.
    """
    path = Path(path)
    asked = [result for result in comparison.results if result.prepared.device.broadcasts]
    if not asked:
        raise InputError("no scheme of this comparison asks devices for updates, so there is no trace to record.")
    names = comparison.setting.federation.device_names
    shared = len({identity(result.prepared.device.arrivals) for result in asked}) == 1
    try:
        for result in asked[:1] if shared else asked:
            trace = TraceArrivals.record(result.prepared.device.arrivals, max(r.final.round for r in asked))
            if not shared:
                path.mkdir(parents=True, exist_ok=True)
            write_trace(path if shared else path / f"{result.scheme.name}.csv", trace, names)
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}): give another path.") from error


def _versions(config: Config) -> dict[str, object]:
    return {
        "codedfl": __version__,
        "seed": config.seed,
        "python": platform.python_version(),
        "backend": backend(),
        "platform": platform.platform(),
        **{library: version(library) for library in LIBRARIES},
        **plugin_versions(config),
    }


def plugin_versions(config: Config) -> dict[str, str]:
    """Return package, version and source of every plug-in of a configuration, by kind and name.

    Example:
        >>> plugin_versions(Config())
        {}
    """
    used: list[tuple[Kind, str]] = [("scheme", name) for name in config.schemes]
    if is_plugin_dataset(config.data.dataset):
        used.append(("dataset", config.data.dataset))
    if names_plugin(config.fleet.file):
        used.append(("fleet", config.fleet.file))
    found = {f"{kind} {name}": find_plugin(kind, name) for kind, name in used}
    return {name: plugin.fingerprint() for name, plugin in found.items() if plugin is not None}
