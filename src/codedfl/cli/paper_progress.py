"""The progress of a reproduction on the terminal."""

from __future__ import annotations

import time
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

from codedfl.cli.bars import Bars
from codedfl.progress import Progress


class PaperProgress(Bars, Progress):
    """One bar for the whole reproduction, with the time remaining; without a terminal, one line per finished job.

    Jobs take minutes, so the time remaining is estimated from the whole time so far.

    Args:
        console: where to write.
        verbose: whether to write lines where there is no terminal to draw bars on.
    """

    def __init__(self, console: Console, verbose: bool = True) -> None:
        super().__init__(
            console,
            verbose,
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}", markup=False),
        )
        self.began = time.monotonic()

    def update(self, task: str, done: float = 0.0, total: float | None = None, note: str = "") -> None:
        """Advance the bar."""
        if not done or not total:
            return
        seconds = (time.monotonic() - self.began) * (total - done) / done
        left = f"{timedelta(seconds=round(max(0.0, seconds)))} left"
        if self.stage is None:
            self.stage = self.progress.add_task(task, note="")
        self.progress.update(self.stage, completed=done, total=total, note=f"{left}, {note} done")
        if self.lines:
            self.console.print(f"{note} done, {done / total:.0%} of all, {left}", highlight=False)

    def say(self, text: str) -> None:
        """Print a line."""
        if self.lines or self.console.is_terminal:
            self.console.print(text, highlight=False, markup=False)
