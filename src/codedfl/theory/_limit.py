"""The limit of training: the model at which the mean update of a scheme vanishes, in closed form.

In SCFL ``G`` and ``N`` are drawn once, so their error never averages out and a floor remains. With coded Hessian
``H~ = X~^T X~ / c - sigma^2 I`` the update vanishes at the solution of
``(w H + (1 - w) H~) W = w X^T Y + (1 - w) X~^T Y~ / c``, not at ``W*``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from codedfl._validation import require_positive
from codedfl.coding import CodedData, Gram, Rows, compute_gram
from codedfl.errors import InputError
from codedfl.theory._round import RoundLaw, require_moderate
from codedfl.theory._update import best_weight, variance_of_one_step
from codedfl.typing import FloatArray

SINGULAR = 1e-12
"""An eigenvalue below this share of the largest counts as zero."""


@dataclass(frozen=True, eq=False)
class LimitPoint:
    """The point where the mean update of a scheme is zero, for given coded data.

    Args:
        model: ``W``, (d, o).
        gap: ``f(W) - f(W*)``.
        least_eigenvalue: of the Hessian that training sees, ``w H + (1 - w) H~`` for SCFL; training diverges from the
            point if it is negative.
    """

    model: FloatArray
    gap: float
    least_eigenvalue: float

    @property
    def stable(self) -> bool:
        """Whether small steps lead to the point."""
        return self.least_eigenvalue > 0


def limit_point(gram: Gram, coded: CodedData, device_weight: float = 0.5, coded_gram: Gram | None = None) -> LimitPoint:
    """Solve for the limit of SCFL with small steps (or one local step) on given coded data.

    Args:
        gram: second moments of the data of all devices.
        coded: the coded data at the server.
        device_weight: ``w``.
        coded_gram: second moments of the data that ``coded`` stands for, if that is not all data.

    Example:
        >>> from codedfl.coding import encode
        >>> rng = np.random.default_rng(0)
        >>> rows = Rows(rng.standard_normal((50, 2)), rng.standard_normal((50, 1)))
        >>> limit = limit_point(compute_gram([rows]), encode(rows, 100, noise_variance=0.0, rng=rng))
        >>> limit.stable, 0 < limit.gap < 5
        (True, True)
    """
    if not 0.0 <= device_weight <= 1.0:
        raise InputError(f"device_weight = {device_weight} must be between 0 and 1.")
    coded_gram = coded_gram or gram
    seen = compute_gram([Rows(coded.features, coded.labels)])
    c, w = coded.coded_samples, device_weight
    hessian = seen.features / c - coded.noise_variance * np.eye(gram.dimension) - coded_gram.features
    hessian = gram.features + (1 - w) * hessian
    target = gram.cross + (1 - w) * (seen.cross / c - coded_gram.cross)
    return _limit(gram, hessian, target)


def coded_limit_point(gram: Gram, coded: CodedData) -> LimitPoint:
    """Solve for the limit of DP-CFL, least squares on the coded data: ``X~^T X~ W = X~^T Y~``.

    Args:
        gram: second moments of the data of all devices.
        coded: the coded data at the server.
    """
    seen = compute_gram([Rows(coded.features, coded.labels)])
    c = coded.coded_samples
    return _limit(gram, seen.features / c, seen.cross / c)


def arrival_limit_point(gram: Gram, parts: Sequence[Rows], arrival_probability: FloatArray) -> LimitPoint:
    """Solve for the limit of FedAvg, biased towards devices that arrive: ``(sum_i p_i H_i) W = sum_i p_i X_i^T Y_i``.

    Args:
        gram: second moments of the data of all devices.
        parts: the samples of each device.
        arrival_probability: ``p_i``, (N,).

    Example:
        >>> parts = [Rows(np.ones((1, 1)), np.array([[value]])) for value in (0.0, 1.0)]
        >>> arrival_limit_point(compute_gram(parts), parts, np.array([0.2, 0.6])).model.round(9).tolist()
        [[0.75]]
    """
    if len(parts) != len(arrival_probability):
        raise InputError(f"arrival_probability has {len(arrival_probability)} value(s) for {len(parts)} device(s).")
    seen = compute_gram(
        [
            Rows(part.features, part.labels, np.full(len(part), np.sqrt(p)))
            for part, p in zip(parts, arrival_probability, strict=True)
        ]
    )
    return _limit(gram, seen.features, seen.cross)


def _limit(gram: Gram, hessian: FloatArray, target: FloatArray) -> LimitPoint:
    """Solve ``hessian W = target``."""
    eigenvalues = scipy.linalg.eigvalsh(hessian)
    if np.abs(eigenvalues).min() <= SINGULAR * np.abs(eigenvalues).max():
        raise InputError(
            "the Hessian that training sees is singular, so there is no single limit point: use fewer features or more samples."
        )
    model: FloatArray = scipy.linalg.solve(hessian, target, assume_a="sym")
    return LimitPoint(model, gram.gap(model), float(eigenvalues[0]))


@dataclass(frozen=True)
class LimitError:
    """The optimality gap that remains after many rounds with a constant step size, to first order, for ``tau = 1``.

    Args:
        code_floor: ``F``; the coded data leaves a gap of ``(1 - w)^2 F`` at any step size.
        device_noise: ``eta / 4`` times the variance of the devices' part at ``W*``, before ``w^2``.
        server_noise: ``eta / 4`` times the variance of the server's batches at ``W*``, before ``(1 - w)^2``.
        uncovered_noise: ``eta / 4`` times the variance of devices that uploaded nothing.
        device_weight: ``w``.
    """

    code_floor: float
    device_noise: float
    server_noise: float
    uncovered_noise: float
    device_weight: float

    def total(self, device_weight: float | None = None) -> float:
        """Return the expected gap with weight ``w``, by default that of the round."""
        w = self.device_weight if device_weight is None else device_weight
        return self.uncovered_noise + w**2 * self.device_noise + (1 - w) ** 2 * (self.code_floor + self.server_noise)

    @property
    def best_weight(self) -> float:
        """The weight of least error, ``(F + S) / (F + S + V)``; it tends to 1 as the step size falls."""
        return best_weight(self.device_noise, self.code_floor + self.server_noise)

    def terms(self) -> dict[str, float]:
        """Return the terms by name, with their weights, so that they add up to the total."""
        w = self.device_weight
        return {
            "code_floor": (1 - w) ** 2 * self.code_floor,
            "device_noise": w**2 * self.device_noise + self.uncovered_noise,
            "server_noise": (1 - w) ** 2 * self.server_noise,
        }


def limit_error(round: RoundLaw, step_size: float) -> LimitError:
    """Predict the final gap of SCFL from the law of the coded data, before any is drawn.

    To first order in the error of the coded Hessian the limit point is off by ``-(1 - w) H^-1 e``, where ``e`` is the error of
    the coded gradient at ``W*``. With ``A``, ``B`` and ``C`` as in `round_variance`, at ``W*``,

    ``F = 1/2 E tr(e^T H^-1 e) = (tr(H^-1 A) tr C + tr(B^T H^-1 B)) / (2 c)``.

    The randomness of each round adds ``eta / 4`` times its variance at a constant step size ``eta``. Local steps beyond
    the first add a drift that is not counted here. The prediction is too low when the noise is so strong that the error
    of the coded Hessian is as large as the least eigenvalue of ``H``.

    Args:
        round: data and probabilities.
        step_size: ``eta``; as it tends to 0, only the floor remains.

    Example:
        >>> rows = Rows(np.array([[1.0], [1.0]]), np.array([[0.0], [2.0]]))
        >>> one = RoundLaw((rows,), np.ones(1), np.full(1, 0.5), 100, server_batch=100, noise_variance=np.zeros(1))
        >>> limit = limit_error(one, 0.1)
        >>> round(limit.code_floor, 6), limit.device_noise, limit.best_weight
        (0.01, 0.0, 1.0)
    """
    require_positive("step_size", step_size)
    require_moderate("step_size", step_size)
    optimum, inverse = round.gram.optimum, round.inverse
    at = variance_of_one_step(round, optimum)
    noise = round.total_noise
    residual = float(round.gradients(optimum).residual[round.covered].sum())
    trace_A = inverse.data + noise * inverse.trace
    trace_C = residual + noise * float(np.sum(optimum**2)) + round.outputs * round.total_label_noise
    norm_B = inverse.gradient + 2 * noise * inverse.mixed + noise**2 * inverse.model
    floor = (trace_A * trace_C + norm_B) / (2 * round.coded_samples)
    scale = step_size / 4
    return LimitError(
        code_floor=floor,
        device_noise=scale * at.device,
        server_noise=scale * at.server_batches,
        uncovered_noise=scale * at.uncovered,
        device_weight=round.device_weight,
    )
