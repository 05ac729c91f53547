"""Lemmas 3 and 4 and Theorem 1 as the paper prints them, and the corrected theorem, term by term with plain loops."""

from __future__ import annotations

import math
from collections.abc import Sequence


def printed_rho_1(
    tau: int,
    p: Sequence[float],
    samples: Sequence[float],
    b: Sequence[float],
    zeta2: Sequence[float],
    kappa2: Sequence[float],
) -> float:
    """Lemma 3: ``2 tau sum (1-p_i)/p_i zeta_i^2 kappa_i^2 + 2 tau sum l_i (l_i-b_i)/b_i zeta_i^2 kappa_i^2``."""
    first = second = 0.0
    for i in range(len(p)):
        first += (1 - p[i]) / p[i] * zeta2[i] * kappa2[i]
        second += samples[i] * (samples[i] - b[i]) / b[i] * zeta2[i] * kappa2[i]
    return 2 * tau * first + 2 * tau * second


def printed_rho_2(
    tau: int, c: int, m: int, d: int, n: int, zeta: float, kappa: float, phi: float, sigma2: Sequence[float]
) -> float:
    """Lemma 4, where ``zeta`` and ``kappa`` bound ``||X||^2`` and ``||X W - Y||^2`` of all data."""
    fourth = sum(v**2 for v in sigma2)
    return (
        4 * tau / c * (m + m**2) * zeta * kappa
        + 4 * tau / c * (d + d**2) * phi**2 * fourth
        + 4 * d * m * n * tau / c**2 * (zeta * phi**2 + kappa) * sum(sigma2)
    )


def printed_gap(alpha: float, eta: Sequence[float], distance: float, rho_1: float, rho_2: float) -> float:
    """Theorem 1 with ``rho = rho_1 / 4 + rho_2 / 4``."""
    rho = rho_1 / 4 + rho_2 / 4
    return (1 - alpha * eta[0]) / (2 * sum(eta)) * distance**2 + sum(e**2 * rho for e in eta) / sum(eta)


def corrected_gap(
    mu: float,
    smoothness: float,
    eta: Sequence[float],
    distance: float,
    furthest: float,
    bias: Sequence[float],
    variance: float,
) -> float:
    """From ``||W_{k+1} - W*||^2 <= ||W_k - W*||^2 - 2 eta_k (f - f*) + 2 eta_k psi b_k + 2 eta_k^2 (b_k^2 + v)``, summed up."""
    total = (1 - mu * eta[0] * (1 - eta[0] * smoothness)) / 2 * distance**2
    for step, b in zip(eta, bias, strict=True):
        total += step * furthest * b + step**2 * (b**2 + variance)
    return total / sum(eta)


def drift_of_local_steps(
    tau: int,
    weights: Sequence[float],
    zeta2: Sequence[float],
    kappa2: Sequence[float],
    covered: Sequence[bool],
    w: float,
) -> float:
    """Bound on the bias of local steps over ``eta``: step ``u`` is taken ``eta u (|grad f_i| + |grad f|)`` off the virtual model.

    That moves a gradient by the Hessian's norm (at most ``zeta_i^2``) times the distance. A server that does not have the data
    of all devices drifts like a device.
    """
    everyone = sum(math.sqrt(z * k) for z, k in zip(zeta2, kappa2, strict=True))
    total = 0.0
    for u in range(tau):
        for i in range(len(weights)):
            total += weights[i] * zeta2[i] * u * (math.sqrt(zeta2[i] * kappa2[i]) + everyone)
        if not all(covered):
            coded = [i for i in range(len(weights)) if covered[i]]
            gradient = sum(math.sqrt(zeta2[i] * kappa2[i]) for i in coded)
            total += (1 - w) * sum(zeta2[i] for i in coded) * u * (gradient + everyone)
    return total
