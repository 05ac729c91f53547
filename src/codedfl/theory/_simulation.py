"""Monte Carlo draws of SCFL rounds, straight from the definitions and many at a time.

The code is independent of the training engine and of the closed forms. Batches have fixed size, ``1 / inverse_batch``
rounded.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codedfl.theory._round import RoundLaw
from codedfl.typing import FloatArray

DRAWS_AT_ONCE = 500


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
