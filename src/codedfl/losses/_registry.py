"""The losses by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from codedfl._messages import shown
from codedfl.errors import InputError
from codedfl.losses._loss import Loss
from codedfl.losses._softmax import SOFTMAX
from codedfl.losses._square import SQUARE

if TYPE_CHECKING:
    from codedfl.data import Task

LOSSES: dict[str, Loss] = {loss.name: loss for loss in (SQUARE, SOFTMAX)}
"""Every loss by its name."""

USUAL: dict[Task, Loss] = {"classification": SOFTMAX, "regression": SQUARE}
"""What ``auto`` stands for: softmax for classes, square for numbers."""

TASKS: dict[Task, str] = {"classification": "classes", "regression": "numbers"}


def make_loss(name: str, task: Task, *, field: str = "loss") -> Loss:
    """Return the loss of a name, or the usual one of a task for ``auto``.

    Args:
        name: ``auto`` or a name of `LOSSES`.
        task: what labels are.
        field: where the name comes from, for messages.

    Raises:
        InputError: there is no such loss, or it is not for the task.

    Example:
        >>> make_loss("auto", "classification").name, make_loss("auto", "regression").name
        ('softmax', 'square')
    """
    if name == "auto":
        return USUAL[task]
    if name not in LOSSES:
        raise InputError(f"{field} = {shown(name)} is no loss: use one of auto, {', '.join(LOSSES)}.")
    loss = LOSSES[name]
    if task not in loss.tasks:
        fitting = [other.name for other in LOSSES.values() if task in other.tasks]
        words = " and ".join(TASKS[each] for each in loss.tasks)
        use = " or ".join(f'"{each}"' for each in fitting)
        raise InputError(f'{field} = "{name}" is for {words}, but the task is a {task}: use {use}.')
    return loss
