"""The description of the gradient steps of a device or of the server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from codedfl.losses import SQUARE, Loss
from codedfl.training.engine._private_sum import PrivateSum
from codedfl.training.engine._sampling import Batch, BernoulliBatches
from codedfl.typing import FloatArray, IntArray


class Start(NamedTuple):
    """Where a model starts and how it moves.

    Attributes:
        model: ``W_k``, (d, o); never written to.
        step_size: ``eta_k``.
        make_up: ``sigma^2`` of the make-up term ``-sigma^2 W``; negative for a pull towards zero.
        shift: added to every gradient, (d, o), such as a control variate; None for nothing.
    """

    model: FloatArray
    step_size: float
    make_up: float = 0.0
    shift: FloatArray | None = None


@dataclass(frozen=True, eq=False)
class Steps:
    """The gradient steps of a device or of the server in one round.

    Step ``u`` computes ``g_u = scale * X_S^T (mu(X_S W_u) - Y_S) - make_up * W_u + shift`` on the sampled rows ``S`` and moves
    to ``W_{u+1} = W_u - eta g_u``; ``mu`` is that of the loss, the identity for least squares. With ``scale = l_i / b`` this is a
    device's local training, (3) in the paper; with ``scale = 1 / b_s`` on coded data and ``make_up = sigma^2`` it is the
    server's, (4).

    Several runs that share data and batches give several starts; every row is then sampled and gathered once for all.

    Args:
        features: ``X``, (l, d).
        labels: ``Y``, (l, o).
        batches: the sampled rows of each step.
        scale: the factor that makes the sampled gradient unbiased.
        starts: one per run.
        loss: what is minimised.
        private: what protects the gradient, of a single step; None for a gradient in the clear.
    """

    features: FloatArray
    labels: FloatArray
    batches: Sequence[Batch]
    scale: float
    starts: Sequence[Start]
    loss: Loss = SQUARE
    private: PrivateSum | None = None

    @cached_property
    def kernel_batches(self) -> BernoulliBatches | list[IntArray] | None:
        """The batches as the compiled kernel takes them; None if there are none, or if one is all rows."""
        if isinstance(self.batches, BernoulliBatches) and self.batches.samples == len(self.features):
            return self.batches
        sampled = [batch for batch in self.batches if batch is not None]
        return sampled if 0 < len(sampled) == len(self.batches) else None
