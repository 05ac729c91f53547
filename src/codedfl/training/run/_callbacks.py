"""Callbacks: progress, checkpoints and recording attach to the round loop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, fields
from pathlib import Path
from types import FrameType

import numpy as np

from codedfl.files import csv_text, write_atomically
from codedfl.progress import Progress
from codedfl.training.run._result import Evaluation, RunProgress, RunResult, Status


class StopTraining(Exception):  # noqa: N818 (a request, not an error)
    """Raised by a callback to end a run after the current round, with the results so far kept.

    Args:
        message: the reason.
        status: the status of the result.
    """

    def __init__(self, message: str, status: Status = "interrupted") -> None:
        super().__init__(message)
        self.status: Status = status


class Callback:
    """Base class: does nothing; subclasses override what they need."""

    def on_start(self, progress: RunProgress, rounds: int) -> None:
        """Run before the first round, also after a resume."""

    def on_round(self, progress: RunProgress) -> None:
        """Run after every round; may raise `StopTraining`."""

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """Run after every evaluation."""

    def on_end(self, result: RunResult) -> None:
        """Run once at the end, however the run ended."""


class ReportProgress(Callback):
    """Reports the rounds of a run, and the score at each evaluation.

    Args:
        progress: where to report.
        title: the name of the run.
    """

    def __init__(self, progress: Progress, title: str) -> None:
        self.progress, self.title = progress, title
        self.rounds, self.note = 0, ""

    def on_start(self, progress: RunProgress, rounds: int) -> None:
        """Begin a task with one unit per round."""
        self.rounds = rounds
        self.progress.update(self.title, progress.state.round, rounds)

    def on_round(self, progress: RunProgress) -> None:
        """Report the round."""
        self.progress.update(self.title, progress.state.round, self.rounds, self.note)

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """Remember the score."""
        self.note = f"{evaluation.score:.4f}"

    def on_end(self, result: RunResult) -> None:
        """End the task."""
        self.progress.close(self.title, "" if result.status == "completed" else result.status)


class StopOnDivergence(Callback):
    """Ends the run when the model is no longer finite or the training loss exceeds a limit.

    Args:
        loss_limit: largest loss (for one sample) that still counts as training.
    """

    def __init__(self, loss_limit: float) -> None:
        self.loss_limit = loss_limit

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """Compare the loss of the last iterate with the limit; written so that NaN counts as divergence."""
        if not evaluation.last_loss <= self.loss_limit:
            raise StopTraining(f"diverged (training loss {evaluation.last_loss:.3g} a sample)", "diverged")

    def on_round(self, progress: RunProgress) -> None:
        """Stop if the model has overflowed."""
        if not np.isfinite(progress.state.model).all():
            raise StopTraining("diverged (the model is no longer finite)", "diverged")


class StopOnInterrupt(Callback):
    """Ends the run after the current round on Ctrl-C; a second Ctrl-C interrupts at once."""

    def __init__(self) -> None:
        self.requested = False

    def on_round(self, progress: RunProgress) -> None:  # noqa: ARG002
        """Stop if requested."""
        if self.requested:
            raise StopTraining("stopped by the user")

    @contextmanager
    def listening(self) -> Iterator[StopOnInterrupt]:
        """Listen for Ctrl-C (SIGINT) and SIGTERM inside the ``with`` block; only the main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

        def request(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
            if self.requested:
                raise KeyboardInterrupt
            self.requested = True

        try:
            for number in before:
                signal.signal(number, request)
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def curves_to_csv(curves: Iterable[tuple[str, Iterable[Evaluation]]]) -> str:
    """Return learning curves as CSV: one row per evaluation, the name of the scheme first.

    Example:
        >>> point = Evaluation(0, 0.0, 0.0, 0.5, 0.5, 0.1, 0.1, 0.4, 1.0, 0.0, 0.0)
        >>> print(curves_to_csv([("scfl", [point])]).splitlines()[1])
        scfl,0,0.0,0.0,0.5,0.5,0.1,0.1,0.4,1.0,0.0,0.0
    """
    header = ["scheme", *(item.name for item in fields(Evaluation))]
    return csv_text(header, ([name, *astuple(point)] for name, curve in curves for point in curve))


class Recorder(Callback):
    """Writes the learning curve of a run after every evaluation, so that it can be followed live.

    Args:
        path: the CSV file.
        scheme: the name in the first column.
    """

    def __init__(self, path: Path | str, scheme: str) -> None:
        self.path, self.scheme = Path(path), scheme
        self._progress: RunProgress | None = None

    def on_start(self, progress: RunProgress, rounds: int) -> None:  # noqa: ARG002
        """Keep a reference to the curve, and write its points so far."""
        self._progress = progress
        self._write()

    def on_evaluation(self, evaluation: Evaluation) -> None:  # noqa: ARG002 (it is the last point of the curve)
        """Write the curve with its new point."""
        self._write()

    def on_end(self, result: RunResult) -> None:  # noqa: ARG002
        """Write the curve as it ended: a run that diverged at its end replaces its last point."""
        self._write()

    def _write(self) -> None:
        if self._progress is not None:
            write_atomically(self.path, curves_to_csv([(self.scheme, self._progress.curve)]))
