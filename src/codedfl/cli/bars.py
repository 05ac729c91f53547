"""Bars on a terminal, lines where there is none."""

from __future__ import annotations

from typing import Self

from rich.console import Console
from rich.progress import Progress, ProgressColumn, TaskID


class Bars:
    """Live bars with one for the current stage.

    Args:
        console: where to write.
        verbose: whether to write lines where there is no terminal to draw bars on.
        columns: what a bar consists of.
    """

    def __init__(self, console: Console, verbose: bool, *columns: ProgressColumn) -> None:
        self.console = console
        self.lines = verbose and not console.is_terminal
        self.progress = Progress(*columns, console=console, disable=not console.is_terminal)
        self.stage: TaskID | None = None

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()
