"""Folders and files for results, refused before the work starts if they cannot be written."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from codedfl.errors import InputError

RUNS = Path("runs")

LONGEST_NAME = 60
"""Maximum length of a dataset's name in a folder name."""


def new_run_path(dataset: str, kind: str = "") -> Path:
    """Return a folder in ``runs/`` that does not exist yet, named by time, dataset and kind."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    name = "-".join(filter(None, (stamp, Path(dataset).stem[:LONGEST_NAME], kind)))
    path, count = RUNS / name, 2
    while path.exists():
        path, count = RUNS / f"{name}-{count}", count + 1
    return path


def results_folder(out: Path | None, dataset: str, kind: str = "", *, if_full: str = "give another --out") -> Path:
    """Return the folder for results: ``out``, or a new one in ``runs/``. It is not created yet.

    Args:
        out: the folder that the user gave, if any.
        dataset: part of the name of a new folder.
        kind: the same, for results other than a run.
        if_full: advice for the error if the folder is not empty.

    Raises:
        InputError: if it is not empty, so that nothing is overwritten, or cannot be created.
    """
    folder = out or new_run_path(dataset, kind)
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"{folder} exists and is not empty: {if_full}.")
        _try_to_make(folder)
    except OSError as error:
        raise InputError(f"{folder} cannot be made ({error.strerror}): give another --out.") from error
    return folder


def require_writable(option: str, path: Path) -> None:
    """Refuse a file that could not be written once the work is done.

    Raises:
        InputError: if its folder does not exist or cannot be written, or if it is not a regular file.
    """
    problem = ""
    try:
        if path.is_dir():
            problem = "it is a folder"
        elif path.exists() and not path.is_file():  # a pipe or device file would be replaced
            problem = "it is not a regular file"
        else:
            tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.").close()
    except OSError as error:
        problem = error.strerror or str(error)
    if problem:
        raise InputError(f"{option} = {path} cannot be written ({problem}): give another path.")


def latest_run() -> Path:
    """Return the latest run folder in ``runs/``, or that of several seeds; only those of ``codedfl run`` hold checkpoints."""
    runs = {file: file.parent for file in RUNS.glob("*/config.toml") if (file.parent / "checkpoints").is_dir()}
    runs |= {file: file.parent.parent for file in RUNS.glob("*/seed-*/config.toml")}
    if not runs:
        raise InputError("--resume: there is no run in runs/ to continue; give its folder with --out.")
    return runs[max(runs, key=lambda file: file.stat().st_mtime)]


def _try_to_make(folder: Path) -> None:
    """Create a folder and a file in it, and remove both."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    finally:
        for path in missing:
            with suppress(OSError):
                path.rmdir()


def discard_empty_runs() -> None:
    """Remove ``runs/`` if nothing is left in it."""
    with suppress(OSError):
        RUNS.rmdir()
