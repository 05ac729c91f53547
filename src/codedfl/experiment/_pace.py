"""Progress of runs that nobody waits for one by one."""

from __future__ import annotations

from codedfl.progress import Progress
from codedfl.training import Callback


class Pace(Callback):
    """Reports the rounds of short runs that advance and end together."""

    def __init__(self, progress: Progress, title: str, total: int) -> None:
        self.progress, self.title, self.total, self.done = progress, title, total, 0

    def on_round(self, progress: object) -> None:  # noqa: ARG002
        self.done += 1
        self.progress.update(self.title, self.done, self.total)
