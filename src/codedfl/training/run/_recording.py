"""Learning curves written to disk during a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, fields
from pathlib import Path

from codedfl.files import csv_text, write_atomically
from codedfl.training.run._callbacks import Callback
from codedfl.training.run._result import Evaluation, RunProgress, RunResult


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
