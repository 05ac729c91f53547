"""One display for everything that a reproduction carries out."""

from __future__ import annotations

from rich.console import Console
from rich.progress import (
    BarColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from codedfl.cli.bars import Bars
from codedfl.paper import Watcher

STAGES = {
    "tune": "choosing step sizes",
    "train": "training",
    "attack": "attacking coded data",
    "limits": "solving for limits",
}


class PaperProgress(Bars, Watcher):
    """A bar for each stage with the time remaining; where there is no terminal, a line for each job.

    Args:
        console: where to write.
        verbose: whether to write lines where there is no terminal to draw bars on.
    """

    def __init__(self, console: Console, verbose: bool = True) -> None:
        super().__init__(
            console,
            verbose,
            TextColumn("{task.description:<24}", markup=False),
            BarColumn(bar_width=28),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("left:"),
            TimeRemainingColumn(elapsed_when_finished=False),
            TextColumn("{task.fields[note]}", markup=False),
        )

    def on_plan(self, stage: str, cost: float, cached: int, runs: int) -> None:
        """Begin a bar."""
        title = STAGES.get(stage, stage)
        note = f"{runs - cached} of {runs} runs to do"
        self.stage = self.progress.add_task(title, total=cost, note=note)
        if self.lines and runs:
            self.console.print(f"{title}: {note}", highlight=False)

    def on_job(self, title: str, cost: float) -> None:
        """Advance the bar."""
        if self.stage is None:
            return
        self.progress.update(self.stage, advance=cost, note=title)
        if self.lines:
            task = next(task for task in self.progress.tasks if task.id == self.stage)
            self.console.print(f"{title} done, {task.percentage:.0f}%", highlight=False)
