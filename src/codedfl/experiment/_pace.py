"""Progress of runs whose scores are of no interest."""

from __future__ import annotations

from codedfl.progress import Progress
from codedfl.training import Callback


class Pace(Callback):
    """Reports the rounds of runs that advance and end together, and not how good their models are.

    Such runs choose step sizes, or hold canaries, which are made to be fitted badly. Whoever trains them closes the display.
    """

    def __init__(self, progress: Progress, title: str, total: int) -> None:
        self.progress, self.title, self.total, self.done = progress, title, total, 0

    def on_round(self, progress: object) -> None:  # noqa: ARG002
        self.done += 1
        self.progress.update(self.title, self.done, self.total)
