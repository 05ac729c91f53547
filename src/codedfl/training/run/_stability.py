"""Whether training with a step size can converge, decided before training.

Given who arrives and which rows are sampled, a round is linear in the model. Batches of different steps are independent, so
the mean round over arrivals and batches maps the error ``W - W*`` by the symmetric operator

    ``M = I - sum_i a_i (I - (I - eta H_i)^tau) - v (I - (I - eta C)^tau)``,

where ``a_i`` is the mean weight of device ``i`` (``p_i`` in a plain sum, ``w_i`` with weights ``w_i / p_i``), ``v`` that of the
server, ``H_i = X_i^T X_i`` and ``C = X~^T X~ / c - sigma^2 I``; on a factor the server takes ``s`` steps with ``tau / s`` times
``C``. The mean model diverges if an eigenvalue of ``M`` lies outside [-1, 1]. Strong noise makes ``C`` indefinite, and then an
eigenvalue exceeds 1 for every ``eta``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy.linalg

from codedfl.parallel import one_blas_thread
from codedfl.training.engine._gradients import accumulate_gradients
from codedfl.training.engine._steps import Start, Steps
from codedfl.training.protocol._scheme import PreparedScheme
from codedfl.typing import FloatArray

HARDLY_EVER = 0.1

LANCZOS_STEPS = 8
"""Ritz values lie within the spectrum, so one outside of [-1, 1] proves instability however few steps are taken."""

GROWTH_OVER_A_RUN = 100.0
"""A step size is unstable if the mean error grows by more than this factor in the rounds of a run."""


def round_growth(
    prepared: PreparedScheme, step_sizes: Sequence[float], *, rounds: int | None = None, steps: int = LANCZOS_STEPS
) -> FloatArray | None:
    """Return a lower bound of ``||M||``, the largest growth of the mean error in a round, for each step size.

    All step sizes are treated at once by a Lanczos iteration each, so the data is read ``2 tau`` times per Lanczos step.

    Args:
        prepared: the scheme in its setting.
        step_sizes: values of ``eta``.
        rounds: length of the run. Devices that arrive in it with a probability of at most `HARDLY_EVER` are left out: they
            are part of the mean, but not of a typical run.
        steps: Lanczos steps.

    Returns:
        One number per step size; None for a scheme whose mean round is not of this form (load allocation, custom
        state).
    """
    scheme = prepared.scheme
    if scheme.forecast != "steps" or scheme.heavy_ball is not None or not prepared.loss.quadratic:
        return None
    size, etas = prepared.setting.federation.dimension, np.asarray(step_sizes, np.float64)
    rng = prepared.setting.streams.at("stability")
    basis = [_unit(np.repeat(rng.standard_normal((size, 1)), len(etas), axis=1))]
    diagonal, beside = np.zeros((2, steps, len(etas)))
    with one_blas_thread():
        for j in range(min(steps, size)):
            image = _mean_round(prepared, basis[j], etas, HARDLY_EVER / rounds if rounds else 0.0)
            if image is None:
                return None
            diagonal[j] = np.sum(basis[j] * image, axis=0)
            for _ in range(2):  # orthogonalised twice, against rounding errors
                for vectors in basis:
                    image -= vectors * np.sum(vectors * image, axis=0)
            beside[j] = np.linalg.norm(image, axis=0)
            basis.append(_unit(image))
    count = min(steps, size)
    return np.array([_largest(diagonal[:count, g], beside[: count - 1, g]) for g in range(len(etas))])


def unstable_steps(prepared: PreparedScheme, step_sizes: Sequence[float], rounds: int) -> set[float]:
    """Return the step sizes at which the mean error would grow by `GROWTH_OVER_A_RUN` or more within a run.

    Example:
        >>> import codedfl
        >>> from codedfl.experiment import build_experiment
        >>> setting = build_experiment(codedfl.load_config()).setting
        >>> prepared = codedfl.make_scheme("fedavg").prepare(setting)
        >>> small, large = 0.5 / setting.gram.smoothness, 100.0 / setting.gram.smoothness
        >>> unstable_steps(prepared, [small, large], rounds=50) == {large}
        True
    """
    growth = round_growth(prepared, step_sizes, rounds=rounds)
    if growth is None:
        return set()
    with np.errstate(divide="ignore"):
        grows = rounds * np.log(growth) > math.log(GROWTH_OVER_A_RUN)
    return {step for step, unstable in zip(step_sizes, grows, strict=True) if unstable}


def _mean_round(prepared: PreparedScheme, vectors: FloatArray, etas: FloatArray, rarest: float) -> FloatArray | None:
    """Apply ``M``, with one step size per column."""
    setting, device, server = prepared.setting, prepared.device, prepared.server
    dtype = setting.federation.features.dtype
    starts = [
        Start(np.ascontiguousarray(column[:, None], dtype), float(eta))
        for column, eta in zip(vectors.T, etas, strict=True)
    ]
    probability = device.arrivals.probability
    often = np.where(probability < rarest, 0.0, probability)
    mean_weights = prepared.scheme.aggregation.mean_weights(often, setting.code.uploading)
    if mean_weights is None:
        return None
    device_weights, server_weight = mean_weights
    parties, weights = list[Steps](), list[float]()
    for i in np.flatnonzero(device_weights) if device.broadcasts else ():
        steps = device.mean_steps(int(i), starts)
        if steps is None:
            return None
        parties.append(steps)
        weights.append(float(device_weights[i]))
    if server:
        steps = server.mean_steps([start._replace(make_up=server.make_up) for start in starts])
        if steps is None:
            return None
        parties.append(steps)
        weights.append(server_weight)
    image: FloatArray = vectors.copy()
    for weight, gradients in zip(weights, accumulate_gradients(parties, setting.workers), strict=True):
        image -= weight * etas * np.hstack(gradients)
    return image


def _unit(vectors: FloatArray) -> FloatArray:
    units: FloatArray = vectors / np.maximum(np.linalg.norm(vectors, axis=0), np.finfo(np.float64).tiny)
    return units


def _largest(diagonal: FloatArray, beside: FloatArray) -> float:
    """Return the largest absolute eigenvalue of a tridiagonal matrix; infinite if it has overflowed."""
    if not (np.isfinite(diagonal).all() and np.isfinite(beside).all()):
        return math.inf
    return float(np.abs(scipy.linalg.eigh_tridiagonal(diagonal, beside, eigvals_only=True)).max())
