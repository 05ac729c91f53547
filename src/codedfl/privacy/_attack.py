"""How well the reconstruction attack works, measured on data (Fig. r1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from codedfl._validation import require_at_least, require_non_negative
from codedfl.coding import Rows, encode
from codedfl.errors import InputError
from codedfl.parallel import Workers, one_blas_thread
from codedfl.privacy._matching import matched_error, procrustes
from codedfl.privacy._matrices import require_matrix
from codedfl.privacy._reconstruction import reconstruct
from codedfl.streams import Streams
from codedfl.typing import FloatArray, IntArray


@dataclass(frozen=True)
class AttackResult:
    """Relative errors ``||X_U - matched||_F / ||X_U||_F`` of one attack; lower is more leakage.

    Every guess is matched to the truth in the same way (`matched_error`). Rotation and matching bring in what an attacker
    does not have, so each attack comes with a control, in which rows resampled from ``X_K`` take the place of what was
    found in the coded data. Coded data leak as far as an attack is below its control and below the baseline.

    Args:
        oracle_error: rotated by an oracle that knows the truth: the ceiling of what leaks.
        feasible_error: rotated towards rows resampled from ``X_K``, which an attacker can do.
        baseline_error: the mean of ``X_K`` as the guess of every row.
        oracle_control_error: the resampled rows, rotated by the oracle. Far below the baseline, and at times below
            ``oracle_error``, when many rows are unknown: then the oracle gives away more than the coded data do.
        feasible_control_error: the resampled rows as they are.
        known: rows of ``X_K``.
        unknown: rows of ``X_U``.
    """

    oracle_error: float
    feasible_error: float
    baseline_error: float
    oracle_control_error: float
    feasible_control_error: float
    known: int
    unknown: int


@dataclass(frozen=True)
class Measured:
    """A mean over repeats and its standard error.

    Example:
        >>> Measured.over([1.0, 3.0])
        Measured(mean=2.0, standard_error=1.0)
    """

    mean: float
    standard_error: float

    @classmethod
    def over(cls, values: Sequence[float]) -> Measured:
        """Summarise two or more values."""
        return cls(float(np.mean(values)), float(np.std(values, ddof=1) / math.sqrt(len(values))))


@dataclass(frozen=True)
class AttackPoint:
    """The attack at one known ratio and one noise variance: a point of Fig. r1. The errors are those of `AttackResult`."""

    known_ratio: float
    noise_variance: float
    oracle: Measured
    feasible: Measured
    baseline: Measured
    oracle_control: Measured
    feasible_control: Measured


def attack_error(
    features: FloatArray, known_ratio: float, coded_samples: int, noise_variance: float, rng: np.random.Generator
) -> AttackResult:
    """Encode a dataset, let an attacker know some of its rows, and measure how well the others are reconstructed.

    Rows of zeros leave no trace in coded data and are left out. The same generator state gives the same known rows and the
    same projection at any noise, and known rows that are nested as the ratio grows.

    Args:
        features: ``X``, (l, d): one device's rows if the server sees its upload, all devices' if it sees only the sum.
        known_ratio: share of rows that the attacker knows, above 0 and below 1; at least one row is known and one is not.
        coded_samples: ``c``.
        noise_variance: ``sigma^2`` in what the server sees.
        rng: the source of the known rows, the coded data, and the rows that the feasible rotation turns to.

    Example:
        >>> X = np.random.default_rng(0).uniform(size=(21, 16))
        >>> result = attack_error(X, 0.95, 10_000, 0.0, np.random.default_rng(1))
        >>> result.known, result.unknown, result.oracle_error < 0.1 < result.baseline_error
        (20, 1, True)
    """
    rows = _attackable(features)
    _check(known_ratio, coded_samples, noise_variance)
    with one_blas_thread():
        return _attack(rows, known_ratio, coded_samples, noise_variance, rng)


def attack_curve(
    features: FloatArray,
    known_ratios: Sequence[float],
    coded_samples: int,
    noise_variances: Sequence[float],
    *,
    streams: Streams,
    repeats: int = 5,
    workers: Workers | None = None,
) -> tuple[AttackPoint, ...]:
    """Measure the attack over known ratios, with and without noise: the data behind Fig. r1.

    Repeat r draws from the stream ("attack", round=r) at every point, so that points differ by ratio and noise alone.

    Args:
        features: ``X``, (l, d).
        known_ratios: shares of rows known, for example from 0.01 to 0.99.
        coded_samples: ``c``.
        noise_variances: values of ``sigma^2``, for example ``(0.0, 0.25)``.
        streams: the source of randomness.
        repeats: attacks at each point, 2 or more for a standard error.
        workers: threads; the result does not depend on them.

    Returns:
        The points, in the order of ``noise_variances`` and within that of ``known_ratios``.

    Example:
        >>> X = np.random.default_rng(0).uniform(size=(30, 4))
        >>> points = attack_curve(X, [0.3, 0.7], 4000, [0.0, 1e6], streams=Streams(0), repeats=3)
        >>> [(point.known_ratio, point.oracle.mean < 0.5 * point.baseline.mean) for point in points]
        [(0.3, True), (0.7, True), (0.3, False), (0.7, False)]
    """
    rows = _attackable(features)
    require_at_least("repeats", repeats, 2)
    places = [(ratio, variance) for variance in noise_variances for ratio in known_ratios]
    for ratio, variance in places:
        _check(ratio, coded_samples, variance)

    def run(job: tuple[float, float, int]) -> AttackResult:
        ratio, variance, repeat = job
        return _attack(rows, ratio, coded_samples, variance, streams.at("attack", round=repeat))

    jobs = [(ratio, variance, repeat) for ratio, variance in places for repeat in range(repeats)]
    with one_blas_thread():
        results = list((workers or Workers(1)).map(run, jobs))
    return tuple(
        _summarise(ratio, variance, results[place * repeats : (place + 1) * repeats])
        for place, (ratio, variance) in enumerate(places)
    )


def _attack(X: FloatArray, known_ratio: float, c: int, noise_variance: float, rng: np.random.Generator) -> AttackResult:
    known_count = min(max(round(known_ratio * len(X)), 1), len(X) - 1)
    order: IntArray = rng.permutation(len(X))
    known, unknown = X[order[:known_count]], X[order[known_count:]]
    resampled = known[rng.choice(len(known), len(unknown), replace=len(unknown) > len(known))]
    coded = encode(Rows(X, np.empty((len(X), 0), X.dtype)), c, noise_variance=noise_variance, rng=rng).features
    found = reconstruct(coded, known, len(unknown), noise_variance)
    return AttackResult(
        oracle_error=matched_error(unknown, found.rotate_to(unknown)),
        feasible_error=matched_error(unknown, found.rotate_to(resampled)),
        baseline_error=matched_error(unknown, np.tile(known.mean(axis=0), (len(unknown), 1))),
        oracle_control_error=matched_error(unknown, procrustes(resampled, unknown) @ resampled),
        feasible_control_error=matched_error(unknown, resampled),
        known=len(known),
        unknown=len(unknown),
    )


def _summarise(ratio: float, variance: float, results: Sequence[AttackResult]) -> AttackPoint:
    names = ("oracle", "feasible", "baseline", "oracle_control", "feasible_control")
    errors = {name: Measured.over([getattr(result, f"{name}_error") for result in results]) for name in names}
    return AttackPoint(ratio, variance, **errors)


def _attackable(features: FloatArray) -> FloatArray:
    require_matrix("features", features)
    rows = features[features.any(axis=1)]
    if len(rows) < 2:
        raise InputError(
            f"features has {len(rows)} row(s) that are not all zeros: an attack needs 2, one to know and one to find."
        )
    return rows


def _check(known_ratio: float, coded_samples: int, noise_variance: float) -> None:
    if not 0 < known_ratio < 1:
        raise InputError(f"known_ratio = {known_ratio} must be above 0 and below 1, for example 0.5.")
    require_at_least("coded_samples", coded_samples, 1)
    require_non_negative("noise_variance", noise_variance)
