"""Monte Carlo: SCFL rounds drawn from the definitions, many at a time, and every formula of the theory held against them.

The draws use neither the training engine nor the closed forms. Batches have fixed size, ``1 / inverse_batch`` rounded. A check
has a value, its error bar, the formula as printed and the formula corrected.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from codedfl._validation import require_at_least
from codedfl.coding import Rows
from codedfl.theory._bounds import (
    cross_moment,
    device_bound,
    gap_bound,
    measure_constants,
    noise_moment,
    projection_moment,
    sampling_moment,
    server_bound,
)
from codedfl.theory._round import RoundLaw
from codedfl.theory._update import accumulated_descent, device_drift, round_variance, server_drift
from codedfl.typing import FloatArray

DRAWS_AT_ONCE = 500

SIGMAS = 4.0
"""Tolerance in standard errors: a correct formula exceeds it in one check out of 16,000."""


def simulate_round(
    round: RoundLaw, model: FloatArray, step_size: float, draws: int, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Draw ``G``, ``N``, all batches and all arrivals afresh, and compute both parts of the update from them.

    Args:
        round: data and probabilities.
        model: ``W_k``.
        step_size: ``eta_k``, which matters from the second local step on.
        draws: number of rounds to draw.
        rng: the source of randomness.

    Returns:
        The contribution of each device, ``1_i g_i / p_i``, (draws, N, d, o), and the server's part ``g_s``, (draws, d,
        o).
    """
    device, server = [], []
    for start in range(0, draws, DRAWS_AT_ONCE):
        count = min(DRAWS_AT_ONCE, draws - start)
        models = np.broadcast_to(np.asarray(model, np.float64), (count, round.dimension, round.outputs))
        parts = [_device(round, i, models, step_size, rng)[0] for i in range(round.devices)]
        device.append(np.stack(parts, axis=1))
        server.append(_server(round, _draw_code(round, count, rng), models, step_size, rng)[0])
    return np.concatenate(device), np.concatenate(server)


@dataclass(frozen=True, eq=False)
class SimulatedRuns:
    """Independent runs of SCFL, each with its own coded data.

    Args:
        gaps: ``f - f*`` of the step-weighted average after 1, ..., K rounds, (runs, K).
        largest_norm: the largest ``||W||_F`` of any model in any run, local ones included.
    """

    gaps: FloatArray
    largest_norm: float


def simulate_runs(round: RoundLaw, step_sizes: FloatArray, runs: int, rng: np.random.Generator) -> SimulatedRuns:
    """Train with SCFL from ``W_0 = 0``, with ``G`` and ``N`` drawn once per run and everything else in every round.

    Args:
        round: data and probabilities.
        step_sizes: ``eta_k`` of each round, (K,).
        runs: number of independent runs.
        rng: the source of randomness.
    """
    models = np.zeros((runs, round.dimension, round.outputs))
    code = _draw_code(round, runs, rng)
    summed, largest, gaps = np.zeros_like(models), 0.0, []
    for k, step_size in enumerate(step_sizes):
        summed += step_size * models
        difference = summed / np.sum(step_sizes[: k + 1]) - round.gram.optimum
        gaps.append(0.5 * np.sum(difference * (round.gram.features @ difference), axis=(1, 2)))
        update, norm = _server(round, code, models, step_size, rng)
        update, largest = (1 - round.device_weight) * update, max(largest, norm)
        for i in range(round.devices):
            sent, norm = _device(round, i, models, step_size, rng)
            update, largest = update + round.weights[i] * sent, max(largest, norm)
        models = models - step_size * update
    return SimulatedRuns(np.stack(gaps, axis=1), max(largest, _largest_norm(models)))


def _draw_code(round: RoundLaw, draws: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Draw ``X~ = G X + N`` and ``Y~ = G Y``, (draws, c, d) and (draws, c, o)."""
    c = round.coded_samples
    X, Y = np.zeros((draws, c, round.dimension)), np.zeros((draws, c, round.outputs))
    for i in np.flatnonzero(round.covered):
        G = rng.standard_normal((draws, c, round.samples[i]))
        X += G @ round.parts[i].features + np.sqrt(round.noise_variance[i]) * rng.standard_normal(X.shape)
        Y += G @ round.parts[i].labels + np.sqrt(round.label_noise[i]) * rng.standard_normal(Y.shape)
    return X, Y


def _device(
    round: RoundLaw, device: int, models: FloatArray, step_size: float, rng: np.random.Generator
) -> tuple[FloatArray, float]:
    part, p, draws = round.parts[device], round.arrival_probability[device], len(models)
    batch = max(1, int(np.rint(1 / round.inverse_batch[device])))
    X, Y = (np.broadcast_to(rows.astype(np.float64), (draws, *rows.shape)) for rows in (part.features, part.labels))
    sent, norm = _steps(X, Y, models, batch, len(part) / batch, 0.0, round.local_steps, step_size, rng)
    return np.asarray(sent * (rng.random(draws) < p)[:, None, None] / p), norm


def _server(
    round: RoundLaw, code: tuple[FloatArray, FloatArray], models: FloatArray, step_size: float, rng: np.random.Generator
) -> tuple[FloatArray, float]:
    b = round.server_batch
    return _steps(*code, models, b, 1 / b, round.total_noise, round.local_steps, step_size, rng)


def _steps(
    X: FloatArray,
    Y: FloatArray,
    models: FloatArray,
    batch: int,
    scale: float,
    make_up: float,
    steps: int,
    step_size: float,
    rng: np.random.Generator,
) -> tuple[FloatArray, float]:
    """Take ``tau`` stochastic gradient steps from every model; return the sums of the gradients and the largest norm."""
    draws, rows = X.shape[:2]
    total, largest, W = np.zeros(models.shape), 0.0, models
    for _ in range(steps):
        largest = max(largest, _largest_norm(W))
        chosen = rng.random((draws, rows, 1)) < batch / rows
        gradient = scale * X.transpose(0, 2, 1) @ (chosen * (X @ W - Y)) - make_up * W
        total += gradient
        W = W - step_size * gradient
    return total, largest


def _largest_norm(models: FloatArray) -> float:
    return float(np.sqrt(np.sum(models**2, axis=(1, 2)).max()))


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
        **changes: fields of `RoundLaw` to replace.
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
