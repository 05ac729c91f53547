"""Progress as live bars on a terminal and in a notebook, and as log lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Bars

from codedfl.progress import Progress

LINE_EVERY_S = 60.0
"""Seconds between two log lines about the same task."""

REDRAW_EVERY_S = 0.2
"""Seconds between two pictures of the bars in a notebook."""


@contextmanager
def showing(progress: Progress | bool | None) -> Iterator[Progress]:
    """Yield where to report progress: as given, to a display of its own for True, to nowhere for False and None.

    Example:
        >>> with showing(False) as progress:
        ...     progress.update("loading")
    """
    if isinstance(progress, Progress):
        yield progress
    elif progress:
        with ProgressDisplay(Console(stderr=True)) as display:
            yield display
    else:
        yield Progress()


@dataclass
class _Bar:
    task: TaskID
    began_s: float
    done_before: float
    line_s: float


class ProgressDisplay(Progress):
    """Shows a bar for every task of known length, and one line for other tasks.

    A bar has the latest note and the time remaining at the average pace so far. With neither a terminal nor a notebook, only
    lines are written: the texts of `say` and `close`, and the progress of each task once a minute.

    Args:
        console: where to write.
        verbose: whether to write lines without a terminal and a notebook.
    """

    def __init__(self, console: Console, verbose: bool = True) -> None:
        self.console = console
        self._live = console.is_terminal or console.is_jupyter
        self._lines = verbose and not self._live
        self._display = Bars(
            TextColumn("{task.description:<34}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[count]}"),
            TextColumn("{task.fields[note]}", markup=False),
            TextColumn("{task.fields[left]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._notebook = _NotebookBars(self._display) if console.is_jupyter else None
        self._bars: dict[str, _Bar] = {}
        self._stage: tuple[str, TaskID] | None = None

    def __enter__(self) -> Self:
        self._display.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._display.stop()
        if self._notebook is not None:
            self._notebook.draw()

    def update(self, task: str, done: float = 0.0, total: float | None = None, note: str = "") -> None:
        """Update the bar of a task, or show its name if its length is unknown."""
        if total is None:
            if self._stage is None or self._stage[0] != task:
                self._end_stage()
                self._stage = task, self._display.add_task(task, total=None, count="", note=note, left="")
                self._redraw()
            return
        self._end_stage()
        now = time.monotonic()
        if task not in self._bars:
            added = self._display.add_task(task, total=total, count="", note="", left="")
            self._bars[task] = _Bar(added, now, done, now)
        bar = self._bars[task]
        left = _time_left(now - bar.began_s, done - bar.done_before, total - done)
        count = f"{done:.0f}/{total:.0f}" if float(total).is_integer() else f"{done / total:.0%}"
        self._display.update(bar.task, completed=done, total=total, count=count, left=left, **_changed(note))
        self._redraw()
        if self._lines and now - bar.line_s >= LINE_EVERY_S:
            bar.line_s = now
            self._print(f"{task}: {', '.join(filter(None, (count, note, left)))}")

    def close(self, task: str, note: str = "") -> None:
        """Leave the bar of a task where it is, with a last note."""
        if self._stage is not None and self._stage[0] == task:
            self._end_stage()
        if task in self._bars:
            ended = self._bars.pop(task).task
            self._display.update(ended, left="", **_changed(note))
            self._display.stop_task(ended)
        if self._lines and note:
            self._print(f"{task}: {note}")

    def say(self, text: str) -> None:
        """Print a line, above the bars if there are any."""
        if self._lines or self._live:
            self._print(text)

    def _redraw(self) -> None:
        if self._notebook is not None:
            self._notebook.redraw()

    def _end_stage(self) -> None:
        if self._stage is not None:
            self._display.remove_task(self._stage[1])
            self._stage = None

    def _print(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)


class _NotebookBars:
    """Bars in the output of a notebook's cell. What rich does there by itself needs ipywidgets."""

    def __init__(self, bars: Bars) -> None:
        self._bars, self._handle, self._drawn_s = bars, None, -REDRAW_EVERY_S

    def redraw(self) -> None:
        """Draw, unless that was done a moment ago."""
        if time.monotonic() - self._drawn_s >= REDRAW_EVERY_S:
            self.draw()

    def draw(self) -> None:
        """Put the bars as they are in place of those before."""
        from IPython.display import display

        self._drawn_s = time.monotonic()
        if self._handle is None:
            self._handle = display(self._bars, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(self._bars)


def _changed(note: str) -> dict[str, Any]:
    return {"note": note} if note else {}


def _time_left(elapsed_s: float, done: float, rest: float) -> str:
    if done <= 0:
        return ""
    return f"{timedelta(seconds=round(max(0.0, elapsed_s * rest / done)))} left"
