"""Whether a step size is stable, before anything is trained.

The loss is quadratic, so a round is linear in the model. Averaged over arrivals and batches, ``tau`` gradient steps on a Hessian
``H`` take an error ``e = W - W_limit`` to ``(I - eta H)^tau e``. A party therefore sends, times ``eta``,
``eta sum_{u < tau} H (I - eta H)^u e = (I - (I - eta H)^tau) e``. Let device ``i`` count with mean weight ``a_i`` and the server
with weight ``v``, and let ``C = X~^T X~ / c - sigma^2 I`` be the coded Hessian. Then the mean round is ``e -> M e`` with

``M(eta) = I - sum_i a_i (I - (I - eta H_i)^tau) - v (I - (I - eta C)^tau)``.

``M`` is symmetric. The mean error shrinks if all its eigenvalues lie in ``(-1, 1)``, and grows without bound if one lies outside
``[-1, 1]``. An eigenvalue below ``-1`` means that the step is too long; a shorter one helps. An eigenvalue above ``1`` comes from
negative curvature of the coded Hessian. Since ``(1 - x)^tau >= 1 - tau x`` for ``x <= 2``, ``M >= I - eta tau A`` with the mean
Hessian ``A = sum_i a_i H_i + v C``, so if ``A`` has a negative eigenvalue, *no* step is stable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from scipy.sparse.linalg import LinearOperator, eigsh

from codedfl._validation import require_at_least, require_finite, require_non_negative, require_positive
from codedfl.errors import InputError
from codedfl.parallel import one_blas_thread
from codedfl.theory._round import Round
from codedfl.typing import FloatArray

DENSE_UP_TO = 128
"""Dimensions up to which operators are written out as matrices."""

BASIS, RESIDUAL = 20, 1e-2
"""Lanczos vectors, and the residual at which an eigenvalue is accepted; its own error is of the order of the square."""

GROWTH = 1e-3
"""Growth per round beyond 1 that is tolerated: an error doubles in 700 rounds."""


@dataclass(frozen=True, eq=False)
class RoundParty:
    """A device or the server in the mean round: it takes steps on the Hessian ``scale X^T X - make_up I``.

    Args:
        features: ``X``, (l, d): a device's samples, or coded samples.
        weight: ``a_i``, what the party's update counts for on average: for SCFL ``w`` for a device (``w / p_i`` times its arrival
            probability ``p_i``) and ``1 - w`` for the server; for FedAvg, which adds up what arrives, ``p_i``.
        scale: 1 for a device, ``1 / c`` for coded samples.
        make_up: ``sigma^2`` of the make-up term; 0 for a device.
    """

    features: FloatArray
    weight: float = 1.0
    scale: float = 1.0
    make_up: float = 0.0

    def __post_init__(self) -> None:
        if self.features.ndim != 2 or 0 in self.features.shape:
            raise InputError(f"features has shape {self.features.shape}: give a matrix with one row per sample.")
        for name in ("weight", "scale", "make_up"):
            require_non_negative(name, getattr(self, name))

    def hessian_times(self, vectors: FloatArray) -> FloatArray:
        """Return ``(scale X^T X - make_up I) V`` in the precision of the data."""
        X = self.features
        product: FloatArray = X.dtype.type(self.scale) * (X.T @ (X @ vectors)) - X.dtype.type(self.make_up) * vectors
        return product


def mean_round_growth(parties: Sequence[RoundParty], step_size: float, local_steps: int) -> float:
    """Return the largest absolute eigenvalue of the mean round ``M(eta)``; above 1, training diverges in the mean.

    Small problems are solved exactly. In more than 128 dimensions Lanczos iterations with a fixed start (ARPACK) find the
    eigenvalue, at ``4 tau l d`` operations per iteration for ``l`` rows in all. About 20 iterations are enough; they approach the
    eigenvalue from below, so growth by less than about 1e-3 per round may be missed.

    Args:
        parties: The devices, and the server if it takes steps.
        step_size: ``eta``, which multiplies the gradient of the summed loss.
        local_steps: ``tau``.

    Returns:
        The growth of the mean error per round, in the worst direction; infinite beyond the range of numbers.

    Raises:
        InputError: The parties have unequal dimensions, or a number is out of range.

    Example:
        >>> party = RoundParty(np.diag([1.0, 2.0]))
        >>> mean_round_growth([party], 0.25, 1), mean_round_growth([party], 1.0, 2)
        (0.75, 9.0)
    """
    require_non_negative("step_size", step_size)
    require_at_least("local_steps", local_steps, 1)
    dimension = _dimension(parties)

    def mean_round(vectors: FloatArray) -> FloatArray:
        result = np.array(vectors, np.float64)
        for party in parties:
            before = vectors.astype(party.features.dtype)
            after = before
            for _ in range(local_steps):
                after = after - party.features.dtype.type(step_size) * party.hessian_times(after)
            result -= party.weight * (before - after)
        return result

    with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
        return _largest_eigenvalue(mean_round, dimension)


@dataclass(frozen=True)
class StableSteps:
    """Which candidates for the step size are stable in the mean.

    Args:
        steps: The stable candidates, in the order given; those above the first unstable one are not offered.
        growth: The growth per round of every candidate that was examined.
        least_curvature: The least eigenvalue of the mean Hessian ``A``, if no candidate is stable; None otherwise.
    """

    steps: tuple[float, ...]
    growth: dict[float, float]
    least_curvature: float | None

    @property
    def hopeless(self) -> bool:
        """Whether no step can be stable, candidate or not: the mean Hessian has a negative eigenvalue."""
        return self.least_curvature is not None and self.least_curvature < 0


def stable_steps(
    parties: Sequence[RoundParty], candidates: Sequence[float], local_steps: int, tolerance: float = GROWTH
) -> StableSteps:
    """Return which step sizes are stable in the mean, and whether any could be if none is.

    The largest stable candidate is found by bisection, with about ``log2`` of their number calls of :func:`mean_round_growth`. If
    none is stable, the least eigenvalue of the mean Hessian tells whether shorter steps would help; it takes ``2 l d^2``
    operations.

    Args:
        parties: The devices, and the server if it takes steps.
        candidates: Step sizes, in any order.
        local_steps: ``tau``.
        tolerance: How far beyond 1 the growth per round may be. ``ln(10) / K`` lets an error grow tenfold in ``K`` rounds.

    Example:
        >>> devices = [RoundParty(np.diag([1.0, 2.0]), 0.5)]
        >>> stable_steps([*devices, RoundParty(np.diag([1.0, 2.0]), 0.5)], [1.0, 0.1, 0.4], 2).steps
        (0.1, 0.4)
        >>> noisy = stable_steps([*devices, RoundParty(np.diag([1.0, 2.0]), 0.5, make_up=3.0)], [1.0, 0.1, 0.4], 2)
        >>> noisy.steps, noisy.least_curvature, noisy.hopeless
        ((), -0.5, True)
    """
    if not candidates:
        raise InputError("candidates is empty: give at least one step size.")
    for step in candidates:
        require_positive("step_size", step)
    require_non_negative("tolerance", tolerance)
    ascending, growth = sorted(set(candidates)), {}
    stable, end = 0, len(ascending)  # everything before is stable, everything from there on is not
    while stable < end:
        middle = (stable + end) // 2
        growth[ascending[middle]] = mean_round_growth(parties, ascending[middle], local_steps)
        if growth[ascending[middle]] <= 1 + tolerance:
            stable = middle + 1
        else:
            end = middle
    steps = tuple(step for step in candidates if step in ascending[:stable])
    return StableSteps(steps, growth, None if steps else least_curvature(parties))


def least_curvature(parties: Sequence[RoundParty]) -> float:
    """Return the least eigenvalue of the mean Hessian ``A = sum_i a_i (scale_i X_i^T X_i - make_up_i I)``.

    If it is negative, no step size is stable. Eigenvalues that are zero up to rounding are returned as 0.

    Example:
        >>> least_curvature([RoundParty(np.diag([1.0, 2.0]), weight=0.5, make_up=3.0)])
        -1.0
    """
    dimension = _dimension(parties)
    hessian = np.zeros((dimension, dimension))
    with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
        for party in parties:
            X = party.features.astype(np.float64)
            hessian += party.weight * (party.scale * (X.T @ X) - party.make_up * np.eye(dimension))
        require_finite("the mean Hessian", hessian)
        eigenvalues = scipy.linalg.eigvalsh(hessian)
    least, rounding = float(eigenvalues[0]), 1e-12 * float(np.abs(eigenvalues).max())
    return least if abs(least) > rounding else 0.0


def mean_square_step(round: Round) -> float:
    """Return a step size up to which arrivals and batches cannot make training diverge, for ``tau = 1``: a sufficient bound.

    The mean may be stable and the variance not: weights ``1 / p_i`` and small batches add noise in proportion to the error.
    With full server batches and coded data at its mean, ``E ||e'||^2 <= ||e||^2 - eta e^T H e`` if

    ``eta (||H|| + max_i w_i^2 [ (1 / p_i - 1) ||H_i|| + q_i R_i^2 ]) <= 1``,

    with ``q_i = E[(l_i - b_i) / b_i] / p_i`` and the largest squared norm ``R_i^2`` of a sample. The bound is loose: a step
    beyond it *may* be too long, which is worth a warning but no reason to refuse the step.

    Args:
        round: Data and probabilities.

    Returns:
        The largest ``eta`` that satisfies the inequality; infinite if all data is zero.

    Example:
        >>> from codedfl.coding import Rows
        >>> rows = Rows(np.eye(2), np.ones((2, 1)))
        >>> half, none = np.full(1, 0.5), np.zeros(1)
        >>> one = Round((rows,), half, half, 10, server_batch=10, noise_variance=none, device_weight=1.0)
        >>> mean_square_step(one)
        0.5
    """
    norms, radii = np.zeros(round.devices), np.zeros(round.devices)
    for i, part in enumerate(round.parts):
        party = RoundParty(part.features if part.chosen is None else part.features[part.chosen])
        with one_blas_thread():
            norms[i] = _largest_eigenvalue(party.hessian_times, round.dimension)
        radii[i] = float(part.norms().max()) ** 2
    p, whole = round.arrival_probability, scipy.linalg.eigvalsh(round.gram.features)[-1]
    spread = (1 / p - 1) * norms + round.batch_excess / p * radii
    total = float(whole + np.max(round.weights**2 * spread))
    return 1 / total if total > 0 else math.inf


def _dimension(parties: Sequence[RoundParty]) -> int:
    dimensions = {party.features.shape[1] for party in parties}
    if len(dimensions) != 1:
        raise InputError(
            f"parties have {len(dimensions)} different dimensions: give at least one party, and features of one width."
        )
    return int(dimensions.pop())


def _largest_eigenvalue(product: Callable[[FloatArray], FloatArray], dimension: int) -> float:
    """Return the largest absolute eigenvalue of a symmetric operator; infinite if a product is not finite."""
    if dimension <= DENSE_UP_TO:
        matrix = product(np.eye(dimension))
        return float(np.abs(scipy.linalg.eigvalsh(matrix)).max()) if np.isfinite(matrix).all() else math.inf
    start = np.random.Generator(np.random.Philox(0)).standard_normal(dimension)

    def finite_product(vector: FloatArray) -> FloatArray:
        result = product(vector.ravel())
        if not np.isfinite(result).all():
            raise OverflowError
        return result

    operator = LinearOperator((dimension, dimension), matvec=finite_product, dtype=np.float64)
    try:
        found = eigsh(operator, k=1, which="LM", v0=start, ncv=BASIS, tol=RESIDUAL, return_eigenvectors=False)
    except OverflowError:
        return math.inf
    return float(abs(found[0]))
