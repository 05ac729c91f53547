"""The simulation that checks the theory is itself checked where nothing is random."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from codedfl.coding import Rows
from codedfl.theory import RoundLaw, simulate_round, simulate_runs
from codedfl.typing import FloatArray
from tests.theory.rounds import random_round

WHOLE = 1 / np.array([4.0, 7.0, 3.0])


def local_steps(X: FloatArray, Y: FloatArray, W: FloatArray, eta: float, steps: int) -> tuple[FloatArray, list[float]]:
    total, norms = np.zeros_like(W), []
    for _ in range(steps):
        norms.append(float(np.linalg.norm(W)))
        gradient = X.T @ (X @ W - Y)
        total, W = total + gradient, W - eta * gradient
    return total, norms


def certain_round(**changes: Any) -> RoundLaw:
    """Whole batches, everyone arrives, and only the devices count."""
    fixed: dict[str, Any] = {"arrival_probability": np.ones(3), "inverse_batch": WHOLE, "device_weight": 1.0}
    return random_round(np.random.default_rng(0), **(fixed | changes))


def test_runs_without_chance_are_federated_descent() -> None:
    round, eta = certain_round(local_steps=3), np.array([0.02, 0.01, 0.03, 0.005])
    runs = simulate_runs(round, eta, 2, np.random.default_rng(1))
    X, Y = (np.vstack([getattr(part, name) for part in round.parts]) for name in ("features", "labels"))
    optimum = np.linalg.lstsq(X, Y)[0]
    W, weighted = np.zeros((3, 2)), np.zeros((3, 2))
    norms: list[float] = []
    for k, step in enumerate(eta):
        weighted += step * W
        average = weighted / eta[: k + 1].sum()
        gap = 0.5 * np.sum((X @ average - Y) ** 2) - 0.5 * np.sum((X @ optimum - Y) ** 2)
        assert runs.gaps[:, k] == pytest.approx([gap, gap], rel=1e-9)
        update = np.zeros((3, 2))
        for part in round.parts:
            sent, met = local_steps(part.features, part.labels, W, float(step), 3)
            update, norms = update + sent, norms + met
        W = W - step * update
    norms.append(float(np.linalg.norm(W)))
    assert runs.largest_norm >= max(norms) * (1 - 1e-12), "models of the server may be larger still"


def test_devices_that_upload_nothing_count_in_full() -> None:
    """The only one that uploads has nothing but zeros, so that the others alone make the update, whatever the weight."""
    full = certain_round()
    empty = replace(full.parts[0], features=np.zeros((4, 3)), labels=np.zeros((4, 2)))
    others = replace(full, parts=(empty, *full.parts[1:]), noise_variance=np.zeros(3))
    some = replace(others, uploading=np.array([True, False, False]), device_weight=0.3)
    gaps = [simulate_runs(one, np.full(3, 0.02), 1, np.random.default_rng(1)).gaps for one in (others, some)]
    np.testing.assert_allclose(gaps[0], gaps[1], rtol=1e-12)


def test_the_largest_norm_counts_local_models() -> None:
    """Two devices that pull in opposite directions: their models go far, the global one stays."""
    X, Y = np.eye(3), np.ones((3, 2))
    parts = (Rows(0 * X, 0 * Y), Rows(X, Y), Rows(X, -Y))
    round = certain_round(
        parts=parts, inverse_batch=np.full(3, 1 / 3), noise_variance=np.zeros(3), local_steps=3, device_weight=0.5
    )
    some = replace(round, uploading=np.array([True, False, False]))
    largest = simulate_runs(some, np.full(4, 0.1), 2, np.random.default_rng(5)).largest_norm
    # Before its last step a local model has gone two steps from 0 towards 1: 1 - 0.9^2, in six entries.
    assert largest == pytest.approx((1 - 0.9**2) * np.sqrt(6), rel=1e-9)


def test_each_run_keeps_its_code() -> None:
    """With whole batches a code drawn once makes a run deterministic; the runs differ, and so do rounds with fresh codes."""
    round = certain_round(device_weight=0.0, server_batch=12)
    W = np.zeros((3, 2))
    _, server = simulate_round(round, W, 0.01, 5, np.random.default_rng(2))
    assert np.abs(server[0] - server[1]).max() > 0.1
    # From W_0 = 0 with one tiny step after another the gap is linear in the number of rounds: the same error every time.
    gaps = simulate_runs(round, np.full(5, 1e-7), 4, np.random.default_rng(3)).gaps
    steps = np.diff(gaps, axis=1)
    assert np.abs(steps / steps[:, :1] - 1).max() < 1e-3
    assert np.abs(steps[:, 0] / steps[0, 0] - 1)[1:].min() > 1e-3


def test_a_draw_has_every_device_or_nothing_of_it() -> None:
    round = certain_round(arrival_probability=np.array([1.0, 0.25, 0.5]))
    device, server = simulate_round(round, np.ones((3, 2)), 0.01, 600, np.random.default_rng(4))
    assert device.shape == (600, 3, 3, 2)
    assert server.shape == (600, 3, 2)
    for i, part in enumerate(round.parts):
        gradient = part.features.T @ (part.features @ np.ones((3, 2)) - part.labels)
        absent = np.abs(device[:, i]).max(axis=(1, 2)) == 0
        np.testing.assert_allclose(
            device[~absent, i], np.broadcast_to(gradient / round.arrival_probability[i], device[~absent, i].shape)
        )
        p = round.arrival_probability[i]
        # 4.5 standard errors of a frequency, exceeded with probability 7e-6.
        assert abs(absent.mean() - (1 - p)) <= 4.5 * np.sqrt(p * (1 - p) / 600)
