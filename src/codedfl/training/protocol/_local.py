"""What a device has at hand in a round: local steps of the loss on its own rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from codedfl.training.engine._gradients import accumulate_gradients
from codedfl.training.engine._steps import Start, Steps
from codedfl.typing import FloatArray


@dataclass(frozen=True, eq=False)
class Local:
    """The local work of one device in one round, in the simulator and on a real device alike.

    Args:
        take: describes the steps of the round from given starts: the device's rows, and the batches drawn for this round.
        steps: ``tau``.
        step_size: ``eta_k``.
        samples: ``l_i``.

    Example:
        >>> import numpy as np
        >>> X, Y = np.array([[1.0], [2.0]]), np.array([[1.0], [2.0]])
        >>> local = Local(lambda starts: Steps(X, Y, [None, None], 1.0, starts), steps=2, step_size=0.1, samples=2)
        >>> local.descend(np.zeros((1, 1))), local.descend(np.zeros((1, 1)), pull=1.0)
        (array([[-7.5]]), array([[-7.]]))
    """

    take: Callable[[Sequence[Start]], Steps]
    steps: int
    step_size: float
    samples: int

    def descend(self, model: FloatArray, *, shift: FloatArray | None = None, pull: float = 0.0) -> FloatArray:
        """Return the accumulated gradient ``sum_u g_u`` of ``tau`` local steps from a model.

        ``g_u`` is the gradient of the loss on the batch of step ``u``, scaled to all rows of the device, plus
        ``shift + pull (W_u - W_0)``.

        Args:
            model: ``W_0``.
            shift: added to every gradient, such as a control variate.
            pull: strength of a pull back to ``W_0``.
        """
        if pull:
            centre = -model.dtype.type(pull) * model
            shift = centre if shift is None else centre + shift
        start = Start(model, self.step_size, -pull, None if shift is None else shift.astype(model.dtype))
        ((update,),) = accumulate_gradients([self.take([start])])
        return update
