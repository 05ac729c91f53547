"""The exact law of one SCFL update: its bias from local steps, its variance, and the best weight between devices and server.

For ``tau > 1`` the update is biased. The paper's Lemma 2 compares it with ``u_k``, ``tau`` steps of gradient descent on the
global dataset; but a device that takes more than one step follows its own loss, and the sum of such steps is not a step of the
sum.

For ``tau = 1`` the update ``g(W) = sum_i w_i 1_i g_i / p_i + (1 - w) g_s`` has mean ``grad f(W)``, and its variance over batches,
arrivals, ``G`` and ``N`` has a closed form: see docs/theory.md. It lies between the bounds of Lemmas 3 and 4 of the paper, which
are many times larger, and Monte Carlo, which is noisy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codedfl._validation import require_at_least, require_non_negative
from codedfl.coding import Gram, Rows, compute_gram
from codedfl.errors import InputError
from codedfl.theory._round import RoundLaw, checked_model
from codedfl.typing import BoolArray, FloatArray


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


@dataclass(frozen=True, eq=False)
class RoundVariance:
    """The variance of an SCFL update, term by term, before the weights ``w_i^2`` and ``(1 - w)^2``.

    Args:
        arrivals: ``(1 - p_i) / p_i ||D_i||^2``: devices are missing, (N,).
        device_batches: ``E[(l_i - b_i) / b_i] / p_i sum_j ||x_j||^2 ||r_j||^2``: devices sample, (N,).
        projection: ``(||X||^2 ||R||^2 + ||D||^2) / c``: the coded data is a random projection.
        noise: ``(d + 1) sigma^4 ||W||^2 / c``: noise times noise.
        noise_and_data: ``sigma^2 (||X||^2 ||W||^2 + d ||R||^2 + 2 <D, W>) / c``: noise times projected data.
        label_noise: ``o sigma_Y^2 (||X||^2 + d sigma^2) / c``: noise on the coded labels.
        server_batches: ``(1 / b_s - 1 / c) (tr A tr C + 2 ||B||^2)``: the server samples.
        covered: whose data is coded, (N,).
        device_weight: ``w``.
    """

    arrivals: FloatArray
    device_batches: FloatArray
    projection: float
    noise: float
    noise_and_data: float
    label_noise: float
    server_batches: float
    covered: BoolArray
    device_weight: float

    @property
    def device(self) -> float:
        """``V_1``, the variance of ``sum_i 1_i g_i / p_i`` over the devices whose data is coded."""
        return float(np.sum((self.arrivals + self.device_batches)[self.covered]))

    @property
    def uncovered(self) -> float:
        """The same over the devices that uploaded nothing."""
        return float(np.sum((self.arrivals + self.device_batches)[~self.covered]))

    @property
    def code(self) -> float:
        """The share of ``G`` and ``N`` in ``V_2``: drawn once, they cause the same error in every round."""
        return self.projection + self.noise + self.noise_and_data + self.label_noise

    @property
    def server(self) -> float:
        """``V_2``, the variance of the server's gradient."""
        return self.code + self.server_batches

    def total(self, device_weight: float | None = None) -> float:
        """Return ``E ||g(W) - grad f(W)||^2`` with weight ``w``, by default that of the round."""
        w = self.device_weight if device_weight is None else device_weight
        return self.uncovered + w**2 * self.device + (1 - w) ** 2 * self.server

    @property
    def best_weight(self) -> float:
        """``w* = V_2 / (V_1 + V_2)``, the weight of least variance; 1/2 in the paper."""
        return best_weight(self.device, self.server)

    def terms(self) -> dict[str, float]:
        """Return the terms by name, with their weights, so that they add up to the total."""
        w = self.device_weight
        squares = np.where(self.covered, w**2, 1.0)
        return {
            "arrivals": float(np.sum(squares * self.arrivals)),
            "device_batches": float(np.sum(squares * self.device_batches)),
            "projection": (1 - w) ** 2 * self.projection,
            "noise": (1 - w) ** 2 * self.noise,
            "noise_and_data": (1 - w) ** 2 * self.noise_and_data,
            "label_noise": (1 - w) ** 2 * self.label_noise,
            "server_batches": (1 - w) ** 2 * self.server_batches,
        }


def best_weight(device: float, server: float) -> float:
    """Return the ``w`` that minimises ``w^2 device + (1 - w)^2 server``; 1/2 if both are zero.

    Example:
        >>> best_weight(1.0, 3.0)
        0.75
    """
    return server / (device + server) if device + server > 0 else 0.5


def round_variance(round: RoundLaw, model: FloatArray) -> RoundVariance:
    """Return the exact variance of the update at a model, for ``tau = 1``.

    With ``A = H + sigma^2 I``, ``B = D + sigma^2 W`` and ``tr C = ||R||^2 + sigma^2 ||W||^2 + o sigma_Y^2`` of the coded data,
    whose rows are Gaussian, ``V_2 = (tr A tr C + ||B||^2) / c + (1 / b_s - 1 / c) (tr A tr C + 2 ||B||^2)``.

    Args:
        round: data and probabilities.
        model: ``W``, (d, o).

    Returns:
        The variance, term by term.

    Example:
        >>> from codedfl.coding import Rows
        >>> rows = Rows(np.array([[1.0]]), np.array([[0.0]]))
        >>> one = RoundLaw((rows,), np.array([0.5]), np.array([1.0]), 4, server_batch=4, noise_variance=np.array([0.0]))
        >>> variance = round_variance(one, np.array([[1.0]]))
        >>> variance.device, variance.server, variance.total()
        (1.0, 0.5, 0.375)
    """
    if round.local_steps != 1:
        raise InputError(f"local_steps = {round.local_steps}: the variance has a closed form for one local step only.")
    return variance_of_one_step(round, model)


def variance_of_one_step(round: RoundLaw, model: FloatArray) -> RoundVariance:
    """Return the variance of an update with one local step, for any ``tau`` of the round."""
    W = checked_model(model, round.dimension, round.outputs)
    at = round.gradients(W)
    c, b, d, o = round.coded_samples, round.server_batch, round.dimension, round.outputs
    noise, label_noise = round.total_noise, round.total_label_noise
    D = at.gradient[round.covered].sum(axis=0)
    residual = float(at.residual[round.covered].sum())
    size = float(np.trace(round.coded_gram.features))
    model_norm, along = float(np.sum(W**2)), float(np.sum(D * W))
    trace_A = size + d * noise
    trace_C = residual + noise * model_norm + o * label_noise
    norm_B = float(np.sum((D + noise * W) ** 2))
    p = round.arrival_probability
    return RoundVariance(
        arrivals=(1 - p) / p * np.sum(at.gradient**2, axis=(1, 2)),
        device_batches=round.batch_excess / p * at.spread,
        projection=(size * residual + float(np.sum(D**2))) / c,
        noise=(d + 1) * noise**2 * model_norm / c,
        noise_and_data=noise * (size * model_norm + d * residual + 2 * along) / c,
        label_noise=o * label_noise * trace_A / c,
        server_batches=(1 / b - 1 / c) * (trace_A * trace_C + 2 * norm_B),
        covered=round.covered,
        device_weight=round.device_weight,
    )
