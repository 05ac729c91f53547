"""A scheme with a loss of its own: plain descent on the cross entropy, as somebody else's package might have it."""

from __future__ import annotations

from dataclasses import dataclass

from codedfl.data import Task
from codedfl.losses import SOFTMAX, Loss
from codedfl.training import LocalSGD, Scheme, Sum


@dataclass(frozen=True)
class Logistic(Scheme):
    """Plain descent on the cross entropy."""

    def loss_for(self, task: Task) -> Loss:  # noqa: ARG002
        return SOFTMAX


def logistic(name: str = "logistic") -> Scheme:
    return Logistic(name, "Logistic", None, LocalSGD(steps=1), None, Sum(), "last")
