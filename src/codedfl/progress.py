"""Progress: the one protocol through which long work says how far it is."""

from __future__ import annotations


class Progress:
    """Ignores what it is told; the command line's display draws bars.

    A task is known by its name. Work that knows its length reports ``done`` of ``total``; work that does not reports its name
    alone.

    Example:
        >>> class Printer(Progress):
        ...     def update(self, task, done=0.0, total=None, note=""):
        ...         print(task if total is None else f"{task}: {done:g} of {total:g} {note}")
        >>> printer = Printer()
        >>> printer.update("loading digits")
        loading digits
        >>> printer.update("SCFL", 3, 10, "0.91")
        SCFL: 3 of 10 0.91
    """

    def update(self, task: str, done: float = 0.0, total: float | None = None, note: str = "") -> None:
        """Report that ``done`` of ``total`` units of a task are complete.

        Args:
            task: what is going on, in a few words; the same words for the same task.
            done: units completed so far.
            total: units in all; None if unknown.
            note: the latest figure, such as a score.
        """

    def close(self, task: str, note: str = "") -> None:
        """Report that a task has ended, completed or not."""

    def say(self, text: str) -> None:
        """Report one line that is worth reading by itself."""
