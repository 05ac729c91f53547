"""One display for everything that a reproduction carries out."""

from __future__ import annotations

import time
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

from codedfl.cli.bars import Bars
from codedfl.paper import Watcher

STAGES = {
    "tune": "choosing step sizes",
    "train": "training",
    "attack": "attacking coded data",
    "limits": "solving for limits",
}


class PaperProgress(Bars, Watcher):
    """One bar for the whole with the time remaining; where there is no terminal, a line for each job.

    Jobs take minutes, so the time remaining rests on all of the time so far.

    Args:
        console: where to write.
        verbose: whether to write lines where there is no terminal to draw bars on.
    """

    def __init__(self, console: Console, verbose: bool = True) -> None:
        super().__init__(
            console,
            verbose,
            TextColumn("{task.description:<20}", markup=False),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}", markup=False),
            TextColumn("{task.fields[note]}", markup=False),
        )
        self.began = time.monotonic()
        self.total = self.done = 0.0

    def on_outlook(self, cost: float) -> None:
        """Begin the bar, or make it longer."""
        self.total += cost
        if self.stage is None and cost > 0:
            self.stage = self.progress.add_task("", total=cost, note="", left="")
        elif self.stage is not None:
            self.progress.update(self.stage, total=self.total)

    def on_plan(self, stage: str, cost: float, cached: int, runs: int) -> None:  # noqa: ARG002
        """Say what comes next."""
        title = STAGES.get(stage, stage)
        note = f"{runs - cached} of {runs} runs to do"
        if self.stage is not None:
            self.progress.update(self.stage, description=title, note=note)
        if self.lines and runs:
            self.console.print(f"{title}: {note}", highlight=False)

    def on_job(self, title: str, cost: float) -> None:
        """Advance the bar."""
        self.done += cost
        if self.stage is None:
            return
        left = f"{self.time_left()} left"
        self.progress.update(self.stage, advance=cost, note=title, left=left)
        if self.lines:
            self.console.print(f"{title} done, {self.done / self.total:.0%} of all, {left}", highlight=False)

    def time_left(self) -> timedelta:
        """Return how long the rest will take at the pace so far."""
        rest = (time.monotonic() - self.began) * (self.total - self.done) / self.done
        return timedelta(seconds=round(max(0.0, rest)))
