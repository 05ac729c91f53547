"""Checkpoints: a killed run continues from here and ends as if uninterrupted."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import astuple
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np

from codedfl.errors import InputError
from codedfl.files import read_npz, write_npz
from codedfl.identity import identity
from codedfl.native import backend
from codedfl.training.run._callbacks import Callback
from codedfl.training.run._ledger import Ledger
from codedfl.training.run._records import record_arrays, record_from
from codedfl.training.run._result import Evaluation, RunProgress, RunResult, Status
from codedfl.training.run._run import Run

WORDS = ("fingerprint", "backend", "status", "message", "back_off_message")


def save_checkpoint(path: Path | str, progress: RunProgress, fingerprint: str) -> None:
    """Write everything that changes during a run to one ``.npz`` file, atomically and without pickle.

    The state and what devices remember are written array by array, however deep they nest.

    Args:
        path: the file.
        progress: the state of the run.
        fingerprint: identifies the configuration; a checkpoint can only be resumed under the same one.
    """
    arrays: dict[str, Any] = {}
    records = {
        "state": progress.state,
        "devices": progress.devices,
        "good": progress.good_state,
        "good-devices": progress.good_devices,
    }
    for prefix, record in records.items():
        arrays |= record_arrays(prefix, record)
    # The coded upload is regenerated from its random streams.
    arrays |= record_arrays("ledger", progress.ledger, skip=("upload",))
    arrays["curve"] = np.array([astuple(point) for point in progress.curve], np.float64)
    arrays["wall_time_s"] = np.asarray(progress.wall_time_s)
    arrays["back_offs"] = np.asarray(progress.back_offs)
    words = (fingerprint, backend(), progress.status, progress.message, progress.back_off_message)
    arrays |= {name: np.array(text) for name, text in zip(WORDS, words, strict=True)}
    write_npz(Path(path), {**arrays, "checksum": np.array(identity(arrays))})


def load_checkpoint(path: Path | str, run: Run, fingerprint: str) -> tuple[RunProgress, str]:
    """Read a checkpoint back.

    Args:
        path: the file.
        run: the run to continue; its initial state determines the fields of the checkpoint.
        fingerprint: that of the configuration.

    Returns:
        The progress of the run, and the backend that computed it.

    Raises:
        InputError: if the file cannot be read, has been altered, or belongs to another configuration.
    """
    path = Path(path)
    try:
        required = (*WORDS, "curve", "wall_time_s", "back_offs", "checksum")
        arrays = read_npz(path, required=required, optional=None)
        if str(arrays.pop("checksum")) != identity(arrays):
            raise ValueError("its content does not match its checksum")
        same = str(arrays["fingerprint"]) == fingerprint
        progress = _progress(arrays, run) if same else None
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{str(path)!r} is not a usable checkpoint ({error}): delete it to start this scheme again."
        ) from error
    if progress is None:
        raise InputError(
            f"{str(path)!r} was written under another configuration: resume with the same one, or start anew elsewhere."
        )
    return progress, str(arrays["backend"])


def _progress(arrays: Mapping[str, Any], run: Run) -> RunProgress:
    """Rebuild where a run stood, and refuse what does not fit it."""
    start, memories, formerly = run.initial_state, run.initial_devices, run.prepared.scheme.formerly
    good = any(name.startswith("good.") for name in arrays)
    progress = RunProgress(
        state=record_from("state", arrays, start, formerly),
        devices=record_from("devices", arrays, memories),
        ledger=record_from("ledger", arrays, Ledger.opened(run.prepared), upload=run.prepared.upload_cost),
        curve=[Evaluation(int(row[0]), *(float(value) for value in row[1:])) for row in arrays["curve"]],
        wall_time_s=float(arrays["wall_time_s"]),
        status=_status(str(arrays["status"])),
        message=str(arrays["message"]),
        back_offs=int(arrays["back_offs"]),
        good_state=record_from("good", arrays, start, formerly) if good else None,
        good_devices=record_from("good-devices", arrays, memories) if good else (),
        back_off_message=str(arrays["back_off_message"]),
    )
    _require_consistent(progress, run)
    return progress


def _status(text: str) -> Status:
    if text not in get_args(Status):
        raise ValueError(f"there is no status {text!r}")
    return cast(Status, text)


def _require_consistent(progress: RunProgress, run: Run) -> None:
    """Refuse a checkpoint that contradicts itself."""
    rounds = progress.state.round
    last = progress.curve[-1].round if progress.curve else 0
    if not (0 <= last <= rounds <= run.rounds and progress.ledger.rounds == rounds):
        raise ValueError(f"it is at round {rounds} of {run.rounds}, with {progress.ledger.rounds} charged")
    if progress.status == "completed" and rounds < run.rounds:
        raise ValueError(f"it claims to be completed after {rounds} of {run.rounds} rounds")
    if not 0 <= progress.back_offs <= len(run.fallbacks):
        raise ValueError(f"it has backed off {progress.back_offs} times")


class Checkpoint(Callback):
    """Writes a checkpoint at intervals of real time and at the end.

    Args:
        path: the file, overwritten each time.
        fingerprint: identifies the configuration.
        every_s: seconds between checkpoints; 0 for after every round.
    """

    def __init__(self, path: Path | str, fingerprint: str, every_s: float = 5.0) -> None:
        self.path, self.fingerprint, self.every_s = Path(path), fingerprint, every_s
        self._written = time.monotonic()

    def on_round(self, progress: RunProgress) -> None:
        """Write a checkpoint if one is due."""
        if time.monotonic() - self._written >= self.every_s:
            save_checkpoint(self.path, progress, self.fingerprint)
            self._written = time.monotonic()

    def on_end(self, result: RunResult) -> None:
        """Write the final checkpoint."""
        save_checkpoint(self.path, result.progress, self.fingerprint)
