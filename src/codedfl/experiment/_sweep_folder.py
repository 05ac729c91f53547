"""The folder of a sweep: a run folder for every point of a grid, and one table, CSV file and picture of all."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from codedfl._progress_display import showing
from codedfl.config import Config, load_config
from codedfl.errors import InputError
from codedfl.experiment._build import Experiment, build_experiment, family_key
from codedfl.experiment._grid import Point
from codedfl.experiment._run_folder import RunFolder
from codedfl.experiment._runner import check, sweep
from codedfl.files import remove_leftovers, write_atomically
from codedfl.identity import identity
from codedfl.progress import Progress
from codedfl.results import Axes, SweepResults
from codedfl.training import Callback

MOST_TOGETHER = 12
"""Points that advance in lock-step: their coded data is in memory at once, and a kill loses them together."""

GRID, DONE = "grid.json", "point.json"
"""Written first, to the folder of the sweep, and last, to that of a point."""


class SweepFolder:
    """A folder with one run folder for every point of a grid.

    Use `create` for a new sweep and `reopen` to continue one.

    Args:
        path: the folder.
        axes: values by key.
        points: all points of the grid.
    """

    def __init__(self, path: Path | str, axes: Axes, points: Sequence[Point]) -> None:
        self.path, self.axes, self.points = Path(path), axes, list(points)

    @classmethod
    def create(cls, path: Path | str, axes: Axes, points: Sequence[Point]) -> SweepFolder:
        """Write the grid and the configuration of every point to a new folder.

        Raises:
            InputError: if the folder is not empty, so that no result is overwritten.
        """
        folder = cls(path, axes, points)
        for point in points:
            RunFolder.create(folder.path / point.folder, point.config)
        grid = {"over": dict(axes), "points": [{"folder": p.folder, "values": dict(p.values)} for p in points]}
        write_atomically(folder.path / GRID, json.dumps(grid, indent=2))
        return folder

    @classmethod
    def reopen(cls, path: Path | str) -> SweepFolder:
        """Open the folder of an earlier sweep.

        Raises:
            InputError: if it is not one, or a plug-in is not what it was for the points that are complete.
        """
        path = Path(path)
        try:
            grid = json.loads((path / GRID).read_text(encoding="utf-8"))
            axes = {str(key): list(values) for key, values in grid["over"].items()}
            named = [(str(point["folder"]), dict(point["values"])) for point in grid["points"]]
            if any(Path(folder).name != folder or not folder.strip(".") for folder, _ in named):
                raise ValueError("a folder elsewhere")
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise InputError(
                f"{path} holds no sweep to continue (no {GRID} that can be read): give the folder of a sweep."
            ) from error
        remove_leftovers(path)
        points = [Point(folder, values, load_config(path / folder / "config.toml")) for folder, values in named]
        folder = cls(path, axes, points)
        for point in points:
            if folder.is_complete(point):
                RunFolder(path / point.folder, point.config).require_same_plugins()
        return folder

    def discard_unused(self) -> None:
        """Remove what a sweep that was refused at its start has written."""
        if not any(self.is_complete(point) for point in self.points):
            for point in self.points:
                RunFolder(self.path / point.folder, point.config).discard_unused()
            if {*self.path.iterdir()} == {self.path / GRID}:
                (self.path / GRID).unlink()
                self.path.rmdir()

    def is_complete(self, point: Point) -> bool:
        """Whether the results of a point are all there."""
        return (self.path / point.folder / DONE).is_file()

    @property
    def pending(self) -> list[Point]:
        """The points that are still to be run."""
        return [point for point in self.points if not self.is_complete(point)]

    def run(self, *, progress: Progress | bool = False, callbacks: tuple[Callback, ...] = ()) -> SweepResults:
        """Run the points that are not complete yet, and write the table of all that are.

        Points that share their data run in lock-step; see `codedfl.experiment.sweep`.

        Args:
            progress: where to report progress; True for a display of its own.
            callbacks: added to every run; one that raises `StopTraining` ends the sweep, with the points completed so far kept.

        Raises:
            InputError: if a point is not possible; raised before any training.
        """
        with showing(progress) as shown:
            pending, data = self.pending, _LoadedData(shown)
            done = len(self.points) - len(pending)
            if done and pending:
                shown.say(f"{done} of {len(self.points)} runs are complete already")
            self._check(pending, data, shown)
            for group in _together(pending):
                shown.update("sweep", done, len(self.points))
                like = data.of(group[0].config)
                configs = [point.config for point in group]
                comparisons = sweep(configs, like=like, progress=shown, callbacks=callbacks)
                for point, comparison in zip(group, comparisons, strict=True):
                    if not comparison.interrupted:
                        RunFolder(self.path / point.folder, point.config).write_results(comparison)
                        write_atomically(self.path / point.folder / DONE, json.dumps({"values": dict(point.values)}))
                        done += 1
                if any(comparison.interrupted for comparison in comparisons):
                    break
            shown.update("sweep", done, len(self.points))
            shown.close("sweep")
        results = self.results()
        results.write(self.path)
        return results

    def results(self) -> SweepResults:
        """Return the results of all points that are complete."""
        found: list[tuple[str, Mapping[str, Any], dict[str, Any]]] = []
        for point in self.points:
            if self.is_complete(point):
                summary = json.loads((self.path / point.folder / "summary.json").read_text(encoding="utf-8"))
                found.append((point.folder, point.values, summary))
        return SweepResults.of(self.axes, found, planned=len(self.points))

    def _check(self, points: Sequence[Point], data: _LoadedData, progress: Progress) -> None:
        """Refuse what cannot run before anything is trained. Other seeds make no difference to that."""
        first = {identity(dict(point.values)): point for point in reversed(points)}
        tasks: dict[str, Point] = {}
        for group in _together(list(reversed(first.values()))):
            like = data.of(group[0].config)
            tasks.setdefault(like.setting.federation.task, group[0])
            check([point.config for point in group], like=like, progress=progress)
        if len(tasks) > 1:
            (one, first_point), (other, second_point) = list(tasks.items())[:2]
            raise InputError(
                f"{first_point.folder} is a {one} and {second_point.folder} a {other}, whose scores cannot be compared: sweep"
                " them one by one."
            )


class _LoadedData:
    """The data that was loaded last, for the points that share it."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self._known: tuple[str, Experiment] | None = None

    def of(self, config: Config) -> Experiment:
        key = _data_key(config)
        if self._known is None or self._known[0] != key:
            self._known = None  # the old data goes before the new data comes
            self.progress.update(f"loading {config.data.dataset}")
            self._known = key, build_experiment(config)
        return self._known[1]


def _data_key(config: Config) -> str:
    labels = config.privacy.label_bound, config.privacy.label_center
    return identity((config.seed, config.data, config.data.data_dir, config.features, labels))


def _together(points: Sequence[Point]) -> Iterator[list[Point]]:
    """Yield the points in groups that share everything but code, schemes and rounds, ordered by their data."""
    groups: dict[str, dict[str, list[Point]]] = {}
    for point in points:
        families = groups.setdefault(_data_key(point.config), {})
        families.setdefault(family_key(point.config), []).append(point)
    for families in groups.values():
        for family in families.values():
            for start in range(0, len(family), MOST_TOGETHER):
                yield family[start : start + MOST_TOGETHER]
