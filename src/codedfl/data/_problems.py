"""Problems with an input, refused together instead of one at a time."""

from __future__ import annotations

from collections.abc import Sequence

from codedfl.errors import InputError, InputListError

MOST_LINES = 20
"""Largest number of problems that a message lists."""


def refuse_all(source: str, problems: Sequence[str]) -> None:
    """Refuse an input if there is anything wrong with it.

    Args:
        source: what is wrong, as messages name it.
        problems: one sentence each; a single one that does not name the source is put behind it.

    Raises:
        InputError: for a single problem, in one sentence.
        InputListError: for several, in a sentence and one line each.

    Example:
        >>> refuse_all("'my.csv'", ["column 'a' has no values.", "column 'b' has no values."])
        Traceback (most recent call last):
        codedfl.errors.InputListError: 'my.csv' has 2 problems:
        - column 'a' has no values.
        - column 'b' has no values.
    """
    if len(problems) == 1:
        raise InputError(problems[0] if source in problems[0] else f"{source}: {problems[0]}")
    if problems:
        lines = [f"- {problem}" for problem in problems[:MOST_LINES]]
        if len(problems) > MOST_LINES:
            lines.append(f"- and {len(problems) - MOST_LINES} more.")
        raise InputListError("\n".join([f"{source} has {len(problems)} problems:", *lines]))
