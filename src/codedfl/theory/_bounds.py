"""The constants of Assumption 1, the moments of Lemma 1, and the bounds of Lemmas 3 and 4 and of Theorem 1 of the paper.

Each bound is available as printed and corrected. The corrections are derived in docs/theory.md:

- the moment of the noise is that of the sum, ``(sum_i sigma_i^2)^2``;
- accumulating ``tau`` steps costs ``tau^2``, not ``tau``;
- a device's stochastic gradient is larger than its full gradient, by ``E[l_i / b_i]`` on average;
- the server samples too;
- the loss is ``lambda_min(X^T X)``-strongly convex, not ``||X||_F^2``-strongly;
- ``G`` and ``N`` are drawn once, so their error is a bias that does not average out over rounds;
- local steps drift.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import scipy.linalg
from scipy.optimize import minimize_scalar

from codedfl._validation import require_non_negative, require_positive
from codedfl.coding import Gram, Rows, compute_gram
from codedfl.errors import InputError
from codedfl.theory._round import RoundLaw, require_moderate
from codedfl.typing import FloatArray

Method = Literal["exact", "cheap"]

Reading = Literal["printed", "corrected"]
"""A formula as printed in the paper, or corrected."""


@dataclass(frozen=True, eq=False)
class Constants:
    """The constants of the bounds: norms of the data and of the models during training.

    Args:
        radius: ``phi``; every model during training lies within ``||W||_F <= phi``.
        feature_norm: ``zeta_i^2 = alpha_i^2 = ||X_i||_F^2``, (N,).
        residual: ``kappa_i^2``, the largest ``||X_i W - Y_i||_F^2`` within the radius, (N,).
        smoothness: ``L = lambda_max(X^T X)``.
        strong_convexity: ``mu = lambda_min(X^T X)``.
        optimum_norm: ``||W*||_F``.
    """

    radius: float
    feature_norm: FloatArray
    residual: FloatArray
    smoothness: float
    strong_convexity: float
    optimum_norm: float

    @property
    def printed_strong_convexity(self) -> float:
        """``alpha = sum_i alpha_i^2 = ||X||_F^2``, which the paper takes for the strong convexity of the loss: at least ``L``."""
        return float(np.sum(self.feature_norm))


def measure_constants(
    parts: tuple[Rows, ...], radius: float, *, gram: Gram | None = None, method: Method = "exact"
) -> Constants:
    """Measure the constants of Assumption 1.

    Args:
        parts: the samples of each device.
        radius: ``phi``.
        gram: second moments of all data, if already computed.
        method: ``exact`` decomposes the Hessian of every device, about ``25 d^3`` operations each. ``cheap`` reads the
            data once: ``kappa_i <= ||X_i||_F phi + ||Y_i||_F`` and ``mu >= 0``, which still give valid bounds.

    Example:
        >>> parts = (Rows(np.diag([1.0, 2.0]), np.zeros((2, 1))),)
        >>> exact, cheap = (measure_constants(parts, 3.0, method=method) for method in ("exact", "cheap"))
        >>> exact.residual.round(6), exact.smoothness, exact.strong_convexity
        (array([36.]), 4.0, 1.0)
        >>> cheap.residual.round(6), round(cheap.smoothness, 6), cheap.strong_convexity
        (array([45.]), 4.0, 0.0)
    """
    require_positive("radius", radius)
    require_moderate("radius", radius)
    gram = gram or compute_gram(parts)
    feature_norm = np.array([_square(part.features) for part in parts])
    if method == "cheap":
        label_norm = np.array([_square(part.labels) for part in parts])
        residual = (np.sqrt(feature_norm) * radius + np.sqrt(label_norm)) ** 2
        smoothness, strong_convexity = gram.smoothness, 0.0
    else:
        residual = np.array([largest_residual(compute_gram([part]), radius) for part in parts])
        eigenvalues = scipy.linalg.eigvalsh(gram.features)
        smoothness, strong_convexity = float(eigenvalues[-1]), max(float(eigenvalues[0]), 0.0)
    return Constants(radius, feature_norm, residual, smoothness, strong_convexity, float(np.linalg.norm(gram.optimum)))


def largest_residual(gram: Gram, radius: float) -> float:
    """Return ``kappa^2 = max ||X W - Y||_F^2`` over ``||W||_F <= phi``.

    The maximum of a convex quadratic over a ball has no duality gap, so it is the minimum over ``nu > lambda_max`` of
    ``nu phi^2 + sum_k g_k / (nu - lambda_k) + ||Y||^2``, where ``lambda_k`` are the eigenvalues of ``X^T X`` and ``g_k`` the
    squared norms of the rows of ``X^T Y`` in their basis. Every ``nu`` gives an upper bound, so rounding errs on the
    safe side.
    """
    eigenvalues, vectors = scipy.linalg.eigh(gram.features)
    weights = np.sum((vectors.T @ gram.cross) ** 2, axis=1)
    top, label_norm = float(eigenvalues[-1]), float(np.trace(gram.labels))
    furthest = np.sqrt(weights.sum()) / radius
    if furthest <= 0:
        return max(top, 0.0) * radius**2 + label_norm

    def dual(log_excess: float) -> float:
        excess = np.exp(log_excess)
        return float((top + excess) * radius**2 + np.sum(weights / (excess + (top - eigenvalues))))

    # At the minimum nu - lambda_max is at most ||X^T Y|| / phi; the search covers fourteen orders of magnitude below it.
    found = minimize_scalar(dual, bounds=(np.log(furthest) - 32, np.log(furthest) + 1e-9), method="bounded")
    return min(float(found.fun), dual(float(np.log(furthest)))) + label_norm


def _square(values: FloatArray) -> float:
    return float(np.sum(np.square(values, dtype=np.float64)))


def projection_moment(samples: int, coded_samples: int) -> float:
    """Return ``E ||G^T G / c - I||_F^2 = (m + m^2) / c``, as printed.

    Example:
        >>> projection_moment(3, 6)
        2.0
    """
    return (samples + samples**2) / coded_samples


def noise_moment(
    dimension: int, coded_samples: int, noise_variance: FloatArray, reading: Reading = "corrected"
) -> float:
    """Return ``E ||N^T N / c - sigma^2 I||_F^2 = (d + d^2) / c (sum_i sigma_i^2)^2``.

    ``N = sum_i N_i`` is Gaussian with the sum of the variances, so the moment has the square of the sum; the paper
    prints the sum of the squares, ``sum_i sigma_i^4``.

    Example:
        >>> noise_moment(1, 4, np.array([1.0, 1.0])), noise_moment(1, 4, np.array([1.0, 1.0]), "printed")
        (2.0, 1.0)
    """
    variance = np.asarray(noise_variance, np.float64)
    fourth = float(np.sum(variance**2)) if reading == "printed" else float(np.sum(variance)) ** 2
    return (dimension + dimension**2) / coded_samples * fourth


def cross_moment(dimension: int, samples: int, coded_samples: int, noise: float) -> float:
    """Return ``E ||G^T N||_F^2 = d m c sigma^2``; the paper's proof has ``dmn`` with an ``n`` that it does not define.

    Example:
        >>> cross_moment(2, 3, 5, 0.5)
        15.0
    """
    return dimension * samples * coded_samples * noise


def sampling_moment(samples: int, batch: int) -> float:
    """Return ``E ||l / b S - I||_F^2 = l (l - b) / b``, as printed, for devices and (with ``c`` and ``b_s``) the server.

    Example:
        >>> sampling_moment(6, 2)
        12.0
    """
    return samples * (samples - batch) / batch


def device_bound(round: RoundLaw, constants: Constants, reading: Reading = "corrected") -> dict[str, float]:
    """Return the terms of ``rho_1``, the bound of Lemma 3 on the variance of the devices' part.

    Printed: ``2 tau sum_i (1 - p_i) / p_i zeta_i^2 kappa_i^2 + 2 tau sum_i l_i (l_i - b_i) / b_i zeta_i^2 kappa_i^2``. Corrected:
    ``tau^2`` for ``tau``, and ``E[l_i / b_i]`` in the first sum.
    """
    return {name: float(np.sum(values)) for name, values in _device_terms(round, constants, reading).items()}


def server_bound(round: RoundLaw, constants: Constants, reading: Reading = "corrected") -> dict[str, float]:
    """Return the terms of ``rho_2``, the bound of Lemma 4 on the variance of the server's part.

    Printed (with ``n = c``, the only value that the proof allows): ``4 tau / c`` times
    ``(m + m^2) zeta kappa + (d + d^2) phi^2 sum_i sigma_i^4 + d m (zeta phi^2 + kappa) sigma^2``.

    Corrected: ``tau^2`` for ``tau``, ``sigma^4`` for ``sum_i sigma_i^4``, label noise if there is any, and the server's sampling,
    ``tau (1 / b_s - 1 / c) (phi^2 + 1) (tr A tr S + 2 ||S_x||^2)``, where ``S`` is the covariance of a coded row ``[x y]``, ``A``
    its block of the features and ``S_x`` the rows of that block.
    """
    steps = round.local_steps if reading == "printed" else round.local_steps**2
    terms = {name: steps * value for name, value in _code_terms(round, constants, reading).items()}
    terms["server_batches"] = 0.0 if reading == "printed" else round.local_steps * _server_sampling(round, constants)
    return terms


@dataclass(frozen=True, eq=False)
class GapBound:
    """A bound on ``f(W_K) - f(W*)`` for the step-weighted average after each round, term by term.

    Args:
        terms: by name, the value after 1, 2, ..., K rounds, each (K,).
    """

    terms: dict[str, FloatArray]

    @cached_property
    def total(self) -> FloatArray:
        """The bound after 1, 2, ..., K rounds, (K,)."""
        return np.asarray(np.sum(list(self.terms.values()), axis=0))

    def after(self, rounds: int) -> dict[str, float]:
        """Return the terms after a number of rounds."""
        if not 1 <= rounds <= len(self.total):
            raise InputError(f"rounds = {rounds} must be between 1 and {len(self.total)}.")
        return {name: float(values[rounds - 1]) for name, values in self.terms.items()}


def gap_bound(
    round: RoundLaw,
    constants: Constants,
    step_sizes: FloatArray,
    initial_distance: float,
    reading: Reading = "corrected",
) -> GapBound:
    """Bound the optimality gap of SCFL for any schedule of step sizes, Theorem 1.

    Printed: ``(1 - alpha eta_0) / 2 ||W_0 - W*||^2 + sum_k eta_k^2 rho`` divided by ``sum_k eta_k``, with
    ``rho = (rho_1 + rho_2) / 4``.

    Corrected: ``(1 - mu eta_0 (1 - eta_0 L)) / 2 ||W_0 - W*||^2 + sum_k eta_k psi b_k + sum_k eta_k^2 (b_k^2 + v)`` divided by
    ``sum_k eta_k``. Here ``b_k`` bounds the bias of an update (drift of local steps and error of the coded data),
    ``psi = phi + ||W*||``, and ``v = w^2 rho_1 + (1 - w)^2 s`` with the server's sampling ``s``. The bound is in
    expectation over all randomness, including ``G`` and ``N``, and holds while all models, including local ones, stay
    within ``||W||_F <= phi``.

    Args:
        round: data and probabilities.
        constants: those of Assumption 1.
        step_sizes: ``eta_0, ..., eta_{K-1}``, each with ``eta_k L < 1``.
        initial_distance: ``||W_0 - W*||_F``.
        reading: ``printed`` or ``corrected``.

    Returns:
        The bound after 1, ..., K rounds, by terms.

    Example:
        >>> from codedfl.coding import Rows
        >>> from codedfl.theory import measure_constants
        >>> rows = Rows(np.eye(2), np.ones((2, 1)))
        >>> one = RoundLaw((rows,), np.ones(1), np.full(1, 0.5), 10**6, server_batch=10**6, noise_variance=np.zeros(1))
        >>> constants = measure_constants(one.parts, radius=2.0)
        >>> for reading in ("printed", "corrected"):
        ...     gap_bound(one, constants, np.full(3, 0.9), 2.0, reading).total.round(2)
        array([-1.78, -0.89, -0.59])
        array([2.06, 1.05, 0.71])
    """
    eta = np.asarray(step_sizes, np.float64)
    require_non_negative("initial_distance", initial_distance)
    if eta.ndim != 1 or not eta.size or not (eta > 0).all() or not np.isfinite(eta).all():
        raise InputError("step_sizes must be positive finite numbers, one per round.")
    require_moderate("step_sizes", float(eta.min()))
    if initial_distance:
        require_moderate("initial_distance", initial_distance)
    if eta.max() * constants.smoothness >= 1:
        raise InputError(
            f"step_sizes has {eta.max():.4g}, but Theorem 1 needs every step below 1 / L = {1 / constants.smoothness:.4g}: "
            "lower the learning rate."
        )
    require_moderate("step_sizes", float(eta.max()))
    spread = np.cumsum(eta**2) / np.cumsum(eta)
    w = round.device_weight
    squares = {
        name: float(np.sum(round.weights**2 * values))
        for name, values in _device_terms(round, constants, reading).items()
    }
    if reading == "printed":
        start = 1 - constants.printed_strong_convexity * eta[0]
        squares |= {name: (1 - w) ** 2 * value for name, value in server_bound(round, constants, reading).items()}
        terms = {"initial_distance": start * initial_distance**2 / (2 * np.cumsum(eta))}
        return GapBound(terms | {name: value * spread for name, value in squares.items()})

    start = 1 - constants.strong_convexity * eta[0] * (1 - eta[0] * constants.smoothness)
    code = _code_terms(round, constants, reading)
    of_code = (1 - w) * round.local_steps * np.sqrt(sum(code.values()))
    of_drift = eta * _drift(round, constants)
    bias = of_code + of_drift
    furthest = constants.radius + constants.optimum_norm

    def average(values: FloatArray) -> FloatArray:
        return np.cumsum(eta * values) / np.cumsum(eta)

    terms = {
        "initial_distance": start * initial_distance**2 / (2 * np.cumsum(eta)),
        "bias_of_code": np.full(eta.shape, furthest * of_code),
        "bias_of_drift": furthest * average(of_drift),
    }
    terms |= {name: value * spread for name, value in squares.items()}
    # (a + b)^2 = b (a + b) + a (a + b): each bias gets its share, and that of the code is divided among its sources.
    of_code_squared = average(eta * of_code * bias)
    whole = sum(code.values()) or 1.0
    terms |= {name: value / whole * of_code_squared for name, value in code.items()}
    terms["drift"] = average(eta * of_drift * bias)
    terms["server_batches"] = (1 - w) ** 2 * round.local_steps * _server_sampling(round, constants) * spread
    return GapBound(terms)


def _device_terms(round: RoundLaw, constants: Constants, reading: Reading) -> dict[str, FloatArray]:
    p, product = round.arrival_probability, constants.feature_norm * constants.residual
    steps = round.local_steps if reading == "printed" else round.local_steps**2
    stochastic = 1.0 if reading == "printed" else 1.0 + round.batch_excess
    return {
        "arrivals": 2 * steps * (1 - p) / p * stochastic * product,
        "device_batches": 2 * steps * round.samples * round.batch_excess * product,
    }


def _code_terms(round: RoundLaw, constants: Constants, reading: Reading) -> dict[str, float]:
    """Bound ``E sup ||e(W)||^2``, the squared error of the coded gradient, over all models within the radius."""
    c, d, noise = round.coded_samples, round.dimension, round.total_noise
    zeta = float(np.sum(constants.feature_norm[round.covered]))
    kappa = float(np.sum(constants.residual[round.covered]))
    m, phi = int(round.samples[round.covered].sum()), constants.radius
    label_noise = 0.0 if reading == "printed" else round.total_label_noise
    # The square of a sum of n terms is at most n times the sum of their squares.
    n = 5 if label_noise else 4
    return {
        "projection": n * projection_moment(m, c) * zeta * kappa,
        "noise": n * noise_moment(d, c, round.noise_variance[round.covered], reading) * phi**2,
        "noise_and_data": n * cross_moment(d, m, c, noise) / c**2 * (zeta * phi**2 + kappa),
        "label_noise": n * round.outputs * label_noise * (zeta + d * noise) / c,
    }


def _server_sampling(round: RoundLaw, constants: Constants) -> float:
    d, noise = round.dimension, round.total_noise
    covariance = round.coded_gram.matrix.copy()
    covariance[:d, :d] += noise * np.eye(d)
    covariance[d:, d:] += round.total_label_noise * np.eye(round.outputs)
    fourth = np.trace(covariance[:d, :d]) * np.trace(covariance) + 2 * np.sum(covariance[:d] ** 2)
    return float((1 / round.server_batch - 1 / round.coded_samples) * (constants.radius**2 + 1) * fourth)


def _drift(round: RoundLaw, constants: Constants) -> float:
    """Bound the drift of local steps divided by the step size: zero for ``tau = 1``.

    After ``u`` steps a local model is within ``eta u (||grad f_i|| + ||grad f||)`` of the virtual one.
    """
    product = np.sqrt(constants.feature_norm * constants.residual)
    everyone = float(product.sum())
    pairs = round.local_steps * (round.local_steps - 1) / 2
    drift = float(np.sum(round.weights * constants.feature_norm * (product + everyone)))
    if not round.covered.all():  # the server then follows the loss of the coded data alone
        zeta = float(np.sum(constants.feature_norm[round.covered]))
        drift += (1 - round.device_weight) * zeta * (float(product[round.covered].sum()) + everyone)
    return pairs * drift
