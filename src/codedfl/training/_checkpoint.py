"""Checkpoints: a killed run goes on from here and ends as if nothing had happened."""

from __future__ import annotations

import time
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any, cast

import numpy as np

from codedfl.errors import InputError
from codedfl.files import read_npz, write_npz
from codedfl.training._callbacks import Callback
from codedfl.training._ledger import Ledger
from codedfl.training._result import Evaluation, Progress, RunResult, Status
from codedfl.training._scheme import PreparedScheme, SchemeState
from codedfl.typing import FloatArray


def save_checkpoint(path: Path, progress: Progress, fingerprint: str) -> None:
    """Write everything that changes during a run to one ``.npz`` file, atomically and without pickle.

    Args:
        path: where.
        progress: what.
        fingerprint: identifies the configuration; a checkpoint can only be resumed under the same one.
    """
    arrays: dict[str, FloatArray] = {}
    for prefix, record in (("state", progress.state), ("ledger", progress.ledger)):
        for item in fields(record):
            if item.name != "upload":  # the coded upload is made again from its random streams
                arrays[f"{prefix}.{item.name}"] = np.asarray(getattr(record, item.name))
    arrays["curve"] = np.array([astuple(point) for point in progress.curve], np.float64)
    arrays["wall_time_s"] = np.asarray(progress.wall_time_s)
    words = {"fingerprint": fingerprint, "status": progress.status, "message": progress.message}
    write_npz(path, {**arrays, **{name: np.array(text) for name, text in words.items()}})


def load_checkpoint(path: Path, prepared: PreparedScheme, fingerprint: str) -> Progress:
    """Read a checkpoint back.

    Raises:
        InputError: if the file cannot be read or belongs to another configuration.
    """
    try:
        arrays = read_npz(path, required=("fingerprint", "status", "message", "curve", "wall_time_s"), optional=None)
        state = SchemeState(**_record("state", arrays))
        ledger = Ledger(**_record("ledger", arrays), upload=prepared.upload_cost)
        curve = [Evaluation(int(row[0]), *(float(value) for value in row[1:])) for row in arrays["curve"]]
        status = cast(Status, str(arrays["status"]))
        progress = Progress(state, ledger, curve, float(arrays["wall_time_s"]), status, str(arrays["message"]))
    except (InputError, TypeError, ValueError) as error:
        raise InputError(
            f"{str(path)!r} is not a readable checkpoint: delete it to start this scheme again."
        ) from error
    if str(arrays["fingerprint"]) != fingerprint:
        raise InputError(
            f"{str(path)!r} was written under another configuration: resume with the same one, or start anew elsewhere."
        )
    return progress


def _record(prefix: str, arrays: dict[str, FloatArray]) -> dict[str, Any]:
    """Collect the fields of one record; zero-dimensional arrays become plain numbers again."""
    start = f"{prefix}."
    return {
        name.removeprefix(start): value.item() if value.ndim == 0 else value
        for name, value in arrays.items()
        if name.startswith(start)
    }


class Checkpoint(Callback):
    """Writes a checkpoint at intervals of real time and at the end.

    Args:
        path: the file, overwritten each time.
        fingerprint: identifies the configuration.
        every_s: seconds between checkpoints; 0 for after every round.
    """

    def __init__(self, path: Path, fingerprint: str, every_s: float = 5.0) -> None:
        self.path, self.fingerprint, self.every_s = path, fingerprint, every_s
        self._written = time.monotonic()

    def on_round(self, progress: Progress) -> None:
        """Write if it is time."""
        if time.monotonic() - self._written >= self.every_s:
            save_checkpoint(self.path, progress, self.fingerprint)
            self._written = time.monotonic()

    def on_end(self, result: RunResult) -> None:
        """Write the end of the run."""
        save_checkpoint(self.path, result.progress, self.fingerprint)
