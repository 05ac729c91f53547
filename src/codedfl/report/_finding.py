"""Runs found in the folders that a user names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from codedfl._messages import shown
from codedfl.errors import InputError
from codedfl.report._federation import federation_folder, read_federation
from codedfl.report._record import Record
from codedfl.report._simulation import is_run, read_run

DEPTH = 3
"""Levels of folders below a folder in which runs are looked for, such as those of a sweep."""

MOST_RUNS = 200
"""Runs that one page can hold."""


def read_runs(paths: Sequence[Path | str]) -> list[Record]:
    """Read all runs in the given folders.

    Args:
        paths: folders of runs, of federations, or folders that hold several of them, such as those of a sweep.

    Returns:
        The runs in the order of the folders, with names that tell them apart.

    Raises:
        InputError: a folder holds no run, or the runs do not fit on one page.
    """
    found: list[Path] = []
    for path in map(Path, paths):
        here = run_folders(path)
        if not here:
            raise InputError(_refusal(path))
        found += [folder for folder in here if folder not in found]
    if len(found) > MOST_RUNS:
        raise InputError(f"{len(found)} runs do not fit on one page (at most {MOST_RUNS}): give fewer folders.")
    records = [_read(folder, name) for folder, name in zip(found, _names(found), strict=True)]
    metrics = {record.metric: record.name for record in records}
    if len(metrics) > 1:
        (one, first), (other, second) = list(metrics.items())[:2]
        raise InputError(f"{first} is scored by {one} and {second} by {other}: report them on pages of their own.")
    return records


def run_folders(path: Path) -> list[Path]:
    """Return the folders of all runs in a folder: itself, or those below it."""
    below = _below(path, DEPTH)
    if below:
        return below
    federation = federation_folder(path) if path.is_dir() else None
    if federation:
        return [federation]
    return [path] if is_run(path) else []


def _below(path: Path, depth: int) -> list[Path]:
    if depth == 0 or not path.is_dir() or (path / "federation.toml").is_file():
        return []
    found: list[Path] = []
    for folder in sorted((each for each in path.iterdir() if each.is_dir()), key=_natural):
        deeper = _below(folder, depth - 1)
        if deeper:
            found += deeper
        elif is_run(folder) or (folder / "federation.toml").is_file():
            found.append(folder)
    return found


def _natural(path: Path) -> list[tuple[int, str]]:
    """Return a key that sorts seed-2 before seed-10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", path.name)]


def _read(folder: Path, name: str) -> Record:
    return read_run(folder, name) if is_run(folder) else read_federation(folder, name)


def _names(folders: Sequence[Path]) -> list[str]:
    """Return the shortest ends of the paths that tell all folders apart."""
    paths = [folder.resolve() for folder in folders]
    for length in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-length:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def _refusal(path: Path) -> str:
    if not path.exists():
        return (
            f"{shown(path)} does not exist: give the folder of a run, such as runs/..., of a sweep or of a federation."
        )
    return (
        f"{shown(path)} holds no run (no config.toml with curves, and no federation.toml): give the folder that codedfl run, "
        "sweep or federation wrote."
    )
