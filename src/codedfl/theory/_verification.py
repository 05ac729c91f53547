"""Monte Carlo verification of the theory: value, error bar, formula as printed, formula corrected."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from codedfl._validation import require_at_least
from codedfl.coding import Rows
from codedfl.theory._bounds import device_bound, gap_bound, server_bound
from codedfl.theory._constants import measure_constants
from codedfl.theory._drift import accumulated_descent, device_drift, server_drift
from codedfl.theory._moments import cross_moment, noise_moment, projection_moment, sampling_moment
from codedfl.theory._round import RoundLaw
from codedfl.theory._simulation import simulate_round, simulate_runs
from codedfl.theory._variance import round_variance
from codedfl.typing import FloatArray

SIGMAS = 4.0
"""Tolerance in standard errors: a correct formula exceeds it in one check out of 16,000."""


@dataclass(frozen=True)
class Check:
    """One claim against a Monte Carlo estimate.

    Args:
        name: the claim.
        relation: ``=`` for a value, ``<=`` for a bound.
        value: the estimate.
        error: its standard error.
        printed: the paper's value; None if it has none.
        corrected: the correct value.
    """

    name: str
    relation: Literal["=", "<="]
    value: float
    error: float
    printed: float | None
    corrected: float

    def _holds(self, claim: float) -> bool:
        if self.relation == "<=":
            return self.value - SIGMAS * self.error <= claim
        # A value that is exact by construction has no standard error, only rounding.
        return abs(self.value - claim) <= SIGMAS * self.error + 1e-9 * abs(claim)

    @property
    def printed_holds(self) -> bool:
        """Whether the paper's formula, if any, agrees with the estimate."""
        return self.printed is None or self._holds(self.printed)

    @property
    def corrected_holds(self) -> bool:
        """Whether the corrected formula agrees with the estimate."""
        return self._holds(self.corrected)


def verify(seed: int = 0, draws: int = 4000) -> list[Check]:
    """Check by Monte Carlo every moment of Lemma 1, the unbiasedness lemma, the drift of local steps, and all bounds.

    Args:
        seed: of all draws.
        draws: Monte Carlo draws of each experiment.

    Returns:
        The checks. Printed formulas that needed a correction fail; no corrected formula does.

    Example:
        >>> checks = verify(draws=200)
        >>> all(check.corrected_holds for check in checks), all(check.printed_holds for check in checks)
        (True, False)
    """
    require_at_least("draws", draws, 2)
    rng = np.random.Generator(np.random.Philox(seed))
    return [*_lemma_1(rng, draws), *_lemma_2(rng, draws), *_lemmas_3_and_4(rng, draws), *_theorem_1(rng, draws)]


def example_round(**changes: object) -> RoundLaw:
    """Return a small round with unequal devices, probabilities, noise and batches.

    Args:
        **changes: fields of :class:`~codedfl.theory._round.RoundLaw` to replace.
    """
    rng = np.random.Generator(np.random.Philox(1))
    parts = tuple(Rows(rng.standard_normal((rows, 3)), rng.standard_normal((rows, 2))) for rows in (4, 7, 3))
    fields: dict[str, object] = {
        "parts": parts,
        "arrival_probability": np.array([0.9, 0.4, 0.7]),
        "inverse_batch": 1 / np.array([2.0, 3.0, 3.0]),
        "coded_samples": 12,
        "server_batch": 5,
        "noise_variance": np.array([0.3, 0.0, 1.2]),
    }
    return RoundLaw(**(fields | changes))  # type: ignore[arg-type]


def lonely_round(**changes: object) -> RoundLaw:
    """Return a round of one device with one sample of one feature, for which the inequalities of the proofs are tight."""
    fields: dict[str, object] = {
        "parts": (Rows(np.ones((1, 1)), np.zeros((1, 1))),),
        "arrival_probability": np.array([0.5]),
        "inverse_batch": np.ones(1),
        "coded_samples": 40,
        "server_batch": 40,
        "noise_variance": np.zeros(1),
    }
    return RoundLaw(**(fields | changes))  # type: ignore[arg-type]


def _mean(values: FloatArray) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def _square(values: FloatArray) -> FloatArray:
    """Return the squared Frobenius norm of each matrix."""
    return np.asarray(np.sum(values**2, axis=tuple(range(1, values.ndim))))


def _lemma_1(rng: np.random.Generator, draws: int) -> Iterator[Check]:
    c, m, d, batch = 12, 5, 3, 4
    noise = np.array([0.3, 0.5, 1.2, 0.8])
    total = float(noise.sum())
    G = rng.standard_normal((draws, c, m))
    N = sum((np.sqrt(variance) * rng.standard_normal((draws, c, d)) for variance in noise), np.zeros((draws, c, d)))
    GG, NN = (matrix.transpose(0, 2, 1) @ matrix / c for matrix in (G, N))
    # The mean of a symmetric matrix is tested along the vector of ones, which involves every entry.
    yield Check("Lemma 1: mean of G^T G / c", "=", *_mean(GG.sum(axis=(1, 2)) / m), 1.0, 1.0)
    moment = projection_moment(m, c)
    yield Check("Lemma 1: E |G^T G / c - I|^2", "=", *_mean(_square(GG - np.eye(m))), moment, moment)
    yield Check("Lemma 1: mean of N^T N / c", "=", *_mean(NN.sum(axis=(1, 2)) / d), total, total)
    printed, corrected = (noise_moment(d, c, noise, reading) for reading in ("printed", "corrected"))
    yield Check("Lemma 1: E |N^T N / c - s^2 I|^2", "=", *_mean(_square(NN - total * np.eye(d))), printed, corrected)
    moment = cross_moment(d, m, c, total)
    yield Check("Lemma 4: E |G^T N|^2, n = c", "=", *_mean(_square(G.transpose(0, 2, 1) @ N)), moment, moment)
    for who, rows in (("server", c), ("device", m)):
        scaled = rows / batch * (rng.random((draws, rows)) < batch / rows)
        yield Check(f"Lemma 1: mean of l/b S, {who}", "=", *_mean(scaled.mean(axis=1)), 1.0, 1.0)
        moment = sampling_moment(rows, batch)
        yield Check(f"Lemma 1: E |l/b S - I|^2, {who}", "=", *_mean(_square(scaled - 1.0)), moment, moment)


def _along(samples: FloatArray, direction: FloatArray) -> tuple[float, float]:
    """Return the mean of the samples along a direction, as a multiple of it, with its standard error."""
    return _mean(np.sum(samples * direction, axis=(1, 2)) / np.sum(direction**2))


def _lemma_2(rng: np.random.Generator, draws: int) -> Iterator[Check]:
    model, step_size = np.ones((3, 2)), 0.04
    for steps in (1, 2):
        round = example_round(local_steps=steps)
        device, server = simulate_round(round, model, step_size, 5 * draws, rng)
        virtual = accumulated_descent(round.gram, model, step_size, steps)
        drift = device_drift(round.parts, model, step_size, steps)
        of_server = server_drift(round, model, step_size)
        for name, samples, bias in (("devices", device.sum(axis=1), drift), ("server", server, of_server)):
            expected = 1 + float(np.sum(bias * virtual) / np.sum(virtual**2))
            yield Check(f"Lemma 2: E g / u, {name}, tau = {steps}", "=", *_along(samples, virtual), 1.0, expected)
            if steps > 1:
                yield Check(f"drift / formula, {name}, tau = {steps}", "=", *_along(samples - virtual, bias), None, 1.0)


def _lemmas_3_and_4(rng: np.random.Generator, draws: int) -> Iterator[Check]:
    yield from _variances("unequal devices", example_round(), np.ones((3, 2)), rng, draws)
    yield from _variances("unequal devices", example_round(local_steps=3), np.ones((3, 2)), rng, draws)
    one = np.ones((1, 1))
    yield from _variances("one sample", lonely_round(local_steps=8), one, rng, draws)
    yield from _variances("one sample, small server batch", lonely_round(server_batch=2), one, rng, draws)
    many = lonely_round(
        parts=tuple(Rows(np.full((1, 1), 1e-3), np.zeros((1, 1))) for _ in range(40)),
        arrival_probability=np.full(40, 0.5),
        inverse_batch=np.ones(40),
        noise_variance=np.ones(40),
    )
    yield from _variances("40 noisy devices", many, one, rng, draws)
    rare = lonely_round(
        parts=(Rows(np.eye(10, 1), np.zeros((10, 1))),),
        arrival_probability=np.array([0.02]),
        coded_samples=2,
        server_batch=2,
    )
    yield from _variances("rare device, batch of one", rare, one, rng, 60 * draws)


def _variances(name: str, round: RoundLaw, model: FloatArray, rng: np.random.Generator, draws: int) -> Iterator[Check]:
    """Compare both variances with their bounds, and with the exact variance for one step."""
    # A step so small that local models do not move isolates the effect of accumulation.
    step_size = 1e-9
    device, server = simulate_round(round, model, step_size, draws, rng)
    virtual = accumulated_descent(round.gram, model, step_size, round.local_steps)
    constants = measure_constants(round.parts, float(np.linalg.norm(model)))
    suffix = f"{name}, tau = {round.local_steps}"
    both = ("devices", device.sum(axis=1), device_bound, 3), ("server", server, server_bound, 4)
    for who, samples, bound, lemma in both:
        printed, corrected = (sum(bound(round, constants, reading).values()) for reading in ("printed", "corrected"))
        measured = _mean(_square(samples - virtual))
        yield Check(f"Lemma {lemma}: variance of {who}, {suffix}", "<=", *measured, printed, corrected)
        if round.local_steps == 1:
            exact = round_variance(round, model)
            variance = exact.device if who == "devices" else exact.server
            yield Check(f"exact variance of {who}, {suffix}", "=", *measured, None, variance)


def _theorem_1(rng: np.random.Generator, draws: int) -> Iterator[Check]:
    equal = RoundLaw(
        (Rows(np.eye(4), np.ones((4, 1))),),
        np.ones(1),
        np.full(1, 0.25),
        coded_samples=1500,
        server_batch=1500,
        noise_variance=np.zeros(1),
    )
    yield _gap("equal eigenvalues, tau = 1", equal, 0.5, rng, max(2, draws // 40))
    for steps in (1, 3):
        round = example_round(local_steps=steps)
        yield _gap(f"unequal devices, tau = {steps}", round, 0.05 / steps, rng, max(2, draws // 4))


def _gap(name: str, round: RoundLaw, scale: float, rng: np.random.Generator, runs: int) -> Check:
    """Compare the mean gap of runs, at the round where the corrected bound is tightest, with both bounds."""
    step_sizes = np.full(20, scale / round.gram.smoothness)
    simulated = simulate_runs(round, step_sizes, runs, rng)
    constants = measure_constants(round.parts, simulated.largest_norm)
    distance = float(np.linalg.norm(round.gram.optimum))
    printed, corrected = (
        gap_bound(round, constants, step_sizes, distance, reading).total for reading in ("printed", "corrected")
    )
    tightest = int(np.argmin(corrected / simulated.gaps.mean(axis=0)))
    measured = _mean(simulated.gaps[:, tightest])
    return Check(f"Theorem 1: gap, {name}", "<=", *measured, float(printed[tightest]), float(corrected[tightest]))
