"""The losses that private descent minimises, and the constants that go with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LossName = Literal["auto", "square", "softmax"]
"""``auto`` is softmax for a classification and square for a regression."""


@dataclass(frozen=True)
class Loss:
    """A loss of a linear model, with what private descent has to know about it before it sees any data.

    Args:
        softmax: whether residuals are those of a softmax, ``softmax(W^T x) - y``, instead of ``W^T x - y``.
        curvature: the largest second derivative with respect to the outputs.
        clip_share: clip norm of a sample's gradient, in units of the product of the typical norms of its features and its labels.
            Residuals start at the size of the labels and shrink, so a smaller norm saves noise; it makes the loss linear in
            residuals beyond it, as Huber's is.
        noise_share: standard deviation that the noise may have in an output, in units of the labels (square) or of logits
            (softmax). It sets the ridge.
    """

    softmax: bool
    curvature: float
    clip_share: float
    noise_share: float


SQUARE = Loss(softmax=False, curvature=1.0, clip_share=0.75, noise_share=0.1)
SOFTMAX = Loss(softmax=True, curvature=0.5, clip_share=0.45, noise_share=0.6)


def loss_of(name: LossName, task: str) -> Loss:
    """Return the loss of a name, given the task.

    Example:
        >>> loss_of("auto", "classification").softmax, loss_of("auto", "regression").softmax
        (True, False)
    """
    if name == "auto":
        return SOFTMAX if task == "classification" else SQUARE
    return SOFTMAX if name == "softmax" else SQUARE
