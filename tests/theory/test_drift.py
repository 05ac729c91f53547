from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from codedfl.coding import Gram, Rows, compute_gram
from codedfl.errors import InputError
from codedfl.theory import RoundLaw, accumulated_descent, device_drift, server_drift, simulate_round
from codedfl.typing import FloatArray
from tests.reference.theory_variance import server_drift_of_two_steps
from tests.theory.rounds import random_round

SIGMAS = 4.5
"""Standard errors by which a mean may be off: any of the 24 coordinates below fails with probability below 2e-4."""

W = np.random.default_rng(7).standard_normal((3, 2))


def descend(X: FloatArray, Y: FloatArray, steps: int, eta: float) -> FloatArray:
    """The sum of the gradients of full-batch gradient descent."""
    model, total = W.copy(), np.zeros_like(W)
    for _ in range(steps):
        gradient = X.T @ (X @ model - Y)
        total = total + gradient
        model = model - eta * gradient
    return total


def stack(parts: tuple[Rows, ...]) -> tuple[FloatArray, FloatArray]:
    return np.vstack([part.features for part in parts]), np.vstack([part.labels for part in parts])


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_accumulated_descent_is_gradient_descent(steps: int) -> None:
    parts = random_round(np.random.default_rng(0)).parts
    found = accumulated_descent(compute_gram(parts), W, 0.03, steps)
    np.testing.assert_allclose(found, descend(*stack(parts), steps, 0.03), rtol=1e-10)


def test_one_step_has_no_drift() -> None:
    parts = random_round(np.random.default_rng(0)).parts
    np.testing.assert_allclose(device_drift(parts, W, 0.05, 1), 0.0, atol=1e-12)


def test_a_single_device_does_not_drift() -> None:
    parts = random_round(np.random.default_rng(0), (5,)).parts
    np.testing.assert_allclose(device_drift(parts, W, 0.05, 6), 0.0, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_the_drift_of_two_steps_is_a_sum_over_pairs_of_devices(seed: int) -> None:
    parts = random_round(np.random.default_rng(seed)).parts
    expected = np.zeros((3, 2))
    for i, one in enumerate(parts):
        for j, other in enumerate(parts):
            if i != j:
                gradient = other.features.T @ (other.features @ W - other.labels)
                expected += 0.05 * one.features.T @ one.features @ gradient
    np.testing.assert_allclose(device_drift(parts, W, 0.05, 2), expected, rtol=1e-10)


@pytest.mark.parametrize("steps", [3, 4, 7])
def test_the_drift_of_many_steps_is_descent_apart_less_descent_together(steps: int) -> None:
    parts = random_round(np.random.default_rng(1)).parts
    apart = sum((descend(part.features, part.labels, steps, 0.02) for part in parts), np.zeros((3, 2)))
    expected = apart - descend(*stack(parts), steps, 0.02)
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(device_drift(parts, W, 0.02, steps), expected, rtol=1e-9)


def two_steps(**changes: object) -> RoundLaw:
    return random_round(np.random.default_rng(3), (3, 4, 2), local_steps=2, coded_samples=6, server_batch=6, **changes)


@pytest.mark.parametrize(
    "round",
    [
        two_steps(),
        two_steps(label_noise_variance=np.array([0.5, 0.1, 0.3])),
        two_steps(uploading=np.array([True, False, True])),
        replace(two_steps(), coded_samples=4, server_batch=2),
    ],
    ids=["all", "label noise", "partial", "small batch"],
)
def test_the_servers_drift_of_two_steps_by_pairing_of_indices(round: RoundLaw) -> None:
    coded = [(part.features, part.labels) for part, on in zip(round.parts, round.covered, strict=True) if on]
    noise, label_noise = (float(v[round.covered].sum()) for v in (round.noise_variance, round.label_noise))
    expected = server_drift_of_two_steps(coded, W, round.coded_samples, noise, label_noise, 0.04)
    np.testing.assert_allclose(server_drift(round, W, 0.04), expected, rtol=1e-9)


@pytest.mark.parametrize(
    "round",
    [
        two_steps(),
        replace(two_steps(), server_batch=3),
        two_steps(label_noise_variance=np.array([0.5, 0.1, 0.3])),
        two_steps(uploading=np.array([True, False, True])),
    ],
    ids=["all", "small batch", "label noise", "partial"],
)
def test_the_servers_drift_of_two_steps_by_draws(round: RoundLaw) -> None:
    eta = 0.03
    _, server = simulate_round(round, W, eta, 12_000, np.random.default_rng(4))
    error = server.std(axis=0, ddof=1) / np.sqrt(len(server))
    virtual = accumulated_descent(round.coded_gram, W, eta, 2)
    measured, drift = server.mean(axis=0) - virtual, server_drift(round, W, eta)
    assert (np.abs(measured - drift) < SIGMAS * error).all()
    assert np.max(np.abs(drift) / error) > 2 * SIGMAS, "the drift must be large enough to be seen"


@pytest.mark.parametrize("steps", [2, 3])
def test_the_devices_drift_by_draws(steps: int) -> None:
    round, eta = replace(two_steps(), local_steps=steps), 0.05
    device, _ = simulate_round(round, W, eta, 12_000, np.random.default_rng(6))
    samples = device.sum(axis=1)
    error = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    measured = samples.mean(axis=0) - accumulated_descent(round.gram, W, eta, steps)
    drift = device_drift(round.parts, W, eta, steps)
    assert (np.abs(measured - drift) < SIGMAS * error).all()
    assert np.max(np.abs(drift) / error) > 2 * SIGMAS, "the drift must be large enough to be seen"


def test_the_server_does_not_drift_in_one_step_and_has_no_closed_form_for_three() -> None:
    assert not server_drift(replace(two_steps(), local_steps=1), W, 0.05).any()
    with pytest.raises(InputError, match="local_steps = 3: the bias of the server has a closed form for 1 or 2 steps"):
        server_drift(replace(two_steps(), local_steps=3), W, 0.05)


def test_a_bad_step_is_refused() -> None:
    gram = Gram(np.eye(5), 3, 4)
    with pytest.raises(InputError, match="step_size = -1"):
        accumulated_descent(gram, W, -1.0, 2)
    with pytest.raises(InputError, match="local_steps = 0"):
        accumulated_descent(gram, W, 0.1, 0)


def test_a_model_of_the_wrong_shape_is_refused() -> None:
    round, wrong = random_round(np.random.default_rng(0), local_steps=2), np.ones((9, 1))
    with pytest.raises(InputError, match=r"model has shape \(9, 1\)"):
        accumulated_descent(round.gram, wrong, 0.1, 2)
    with pytest.raises(InputError, match=r"model has shape \(9, 1\)"):
        server_drift(round, wrong, 0.1)
