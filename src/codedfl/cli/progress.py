"""Live progress on a terminal; lines where there is none."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn

from codedfl.cli.bars import Bars
from codedfl.progress import Progress


class ProgressDisplay(Bars, Progress):
    """Bars (temporary, replaced by the generic display)."""

    def __init__(self, console: Console, verbose: bool = True) -> None:
        super().__init__(
            console,
            verbose,
            TextColumn("{task.description:<34}", markup=False),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
        )
        self.tasks: dict[str, TaskID] = {}

    def update(self, task: str, done: float = 0.0, total: float | None = None, note: str = "") -> None:
        if task not in self.tasks:
            self.tasks[task] = self.progress.add_task(task, total=total, note=note)
        self.progress.update(self.tasks[task], completed=done, total=total, note=note)

    def say(self, text: str) -> None:
        if self.lines or self.console.is_terminal:
            self.console.print(text, highlight=False)
