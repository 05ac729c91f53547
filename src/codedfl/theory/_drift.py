"""The drift of local steps: for ``tau > 1`` the update of SCFL is not unbiased.

The paper's Lemma 2 compares the update with ``u_k``, ``tau`` steps of gradient descent on the global dataset. A device that takes
more than one step follows its own loss, and the sum of such steps is not a step of the sum.
"""

from __future__ import annotations

import numpy as np

from codedfl._validation import require_at_least, require_non_negative
from codedfl.coding import Gram, Rows, compute_gram
from codedfl.errors import InputError
from codedfl.theory._round import RoundLaw, checked_model
from codedfl.typing import FloatArray


def accumulated_descent(gram: Gram, model: FloatArray, step_size: float, local_steps: int) -> FloatArray:
    """Return ``sum_{u < tau} (I - eta H)^u (H W - X^T Y)``, the accumulated gradient of ``tau`` full-batch steps.

    On the data of all devices it is the virtual update ``u_k`` of the paper; on that of one device, it is the mean of
    the device's update, since every step draws a new batch.

    Example:
        >>> gram = compute_gram([Rows(np.array([[1.0], [1.0]]), np.array([[0.0], [2.0]]))])
        >>> accumulated_descent(gram, np.zeros((1, 1)), 0.25, 2)
        array([[-3.]])
    """
    require_non_negative("step_size", step_size)
    require_at_least("local_steps", local_steps, 1)
    gradient = gram.features @ checked_model(model, *gram.cross.shape) - gram.cross
    total = np.zeros_like(gradient)
    for _ in range(local_steps):
        total += gradient
        gradient = gradient - step_size * (gram.features @ gradient)
    return total


def device_drift(parts: tuple[Rows, ...], model: FloatArray, step_size: float, local_steps: int) -> FloatArray:
    """Return the bias of the devices' part, ``E[sum_i 1_i g_i / p_i] - u_k``, exact for any ``tau``.

    For two steps it is ``eta sum_{i != j} H_i grad f_j``.

    Args:
        parts: the samples of each device.
        model: ``W_k``.
        step_size: ``eta_k``.
        local_steps: ``tau``.

    Example:
        >>> parts = (Rows(np.array([[1.0]]), np.array([[0.0]])), Rows(np.array([[1.0]]), np.array([[2.0]])))
        >>> device_drift(parts, np.zeros((1, 1)), 0.25, 1), device_drift(parts, np.zeros((1, 1)), 0.25, 2)
        (array([[0.]]), array([[-0.5]]))
    """
    grams = [compute_gram([part]) for part in parts]
    whole = Gram(sum((gram.matrix for gram in grams), np.zeros_like(grams[0].matrix)), grams[0].dimension, 0)
    local = [accumulated_descent(gram, model, step_size, local_steps) for gram in grams]
    return np.asarray(np.sum(local, axis=0)) - accumulated_descent(whole, model, step_size, local_steps)


def server_drift(round: RoundLaw, model: FloatArray, step_size: float) -> FloatArray:
    """Return the bias of the server's part over ``G`` and ``N`` for two steps, ``-eta (A B + tr(A) B) / c``.

    Given the coded data the server's mean update is gradient descent on it, but its second step multiplies two errors of the
    same coded data. ``A = H + sigma^2 I`` and ``B = grad f(W) + sigma^2 W`` as in the variance.

    Raises:
        InputError: if the round does not have two local steps: with more, higher moments of the coded data enter.
    """
    if round.local_steps > 2:
        raise InputError(
            f"local_steps = {round.local_steps}: the bias of the server has a closed form for 1 or 2 steps."
        )
    W = checked_model(model, round.dimension, round.outputs)
    if round.local_steps == 1:
        return np.zeros_like(W)
    gram, noise = round.coded_gram, round.total_noise
    A = gram.features + noise * np.eye(round.dimension)
    B = gram.features @ W - gram.cross + noise * W
    bias: FloatArray = -step_size * (A @ B + np.trace(A) * B) / round.coded_samples
    return bias
