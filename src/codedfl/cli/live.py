"""What surrounds training on the command line: a live display, Ctrl-C, and records elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from rich.console import Console

from codedfl._progress_display import ProgressDisplay
from codedfl.tracking import Tracker
from codedfl.training import Callback, StopOnInterrupt


@contextmanager
def live_training(
    trackers: Sequence[Tracker] = (), *, quiet: bool
) -> Iterator[tuple[ProgressDisplay, tuple[Callback, ...]]]:
    """Yield a display on standard error and the callbacks of a run; Ctrl-C ends it after the current round.

    Args:
        trackers: where else to record the run.
        quiet: whether to write nothing without a terminal.
    """
    stop = StopOnInterrupt()
    with ExitStack() as stack:
        stack.enter_context(stop.listening())
        display = stack.enter_context(ProgressDisplay(Console(stderr=True), verbose=not quiet))
        yield display, (stop, *(stack.enter_context(tracker) for tracker in trackers))
