from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from codedfl.coding import Gram, Rows, compute_gram
from codedfl.errors import InputError
from codedfl.theory import (
    RoundLaw,
    accumulated_descent,
    best_weight,
    device_drift,
    round_variance,
    server_drift,
    simulate_round,
)
from codedfl.typing import FloatArray
from tests.reference.theory_variance import (
    device_outcomes,
    device_variance,
    row_covariance,
    server_drift_of_two_steps,
    server_variance,
    wick,
)
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


SEEDS = range(8)


def tiny_round(seed: int) -> tuple[RoundLaw, list[list[tuple[float, int]]]]:
    """A round small enough to list all its outcomes, and the law of each device's batch."""
    rng = np.random.default_rng(seed)
    samples = tuple(int(rows) for rows in rng.integers(1, 4, size=3))
    batches: list[list[tuple[float, int]]] = []
    for rows in samples:
        chances = rng.dirichlet(np.ones(rows)) if seed % 2 else np.eye(rows)[rng.integers(rows)]
        batches.append([(float(chance), size + 1) for size, chance in enumerate(chances)])
    c = int(rng.integers(2, 5))
    return random_round(
        rng,
        samples,
        inverse_batch=np.array([sum(chance / size for chance, size in law) for law in batches]),
        coded_samples=c,
        server_batch=int(rng.integers(1, c + 1)),
        label_noise_variance=rng.uniform(0.0, 0.5, 3) if seed % 3 else None,
        uploading=np.array([True, seed % 4 < 2, True]),
        device_weight=float(rng.uniform(0.1, 0.9)),
    ), batches


@pytest.mark.parametrize("seed", SEEDS)
def test_the_variance_is_that_of_all_outcomes_listed(seed: int) -> None:
    round, batches = tiny_round(seed)
    W = np.random.default_rng(100 + seed).standard_normal((3, 2))
    outcomes = [
        device_outcomes(part.features, part.labels, W, float(p), law)
        for part, p, law in zip(round.parts, round.arrival_probability, batches, strict=True)
    ]
    coded = [(part.features, part.labels) for part, on in zip(round.parts, round.covered, strict=True) if on]
    label_noise = 0.0 if round.label_noise_variance is None else float(round.label_noise_variance[round.covered].sum())
    noise = float(round.noise_variance[round.covered].sum())
    of_server = server_variance(coded, W, round.coded_samples, round.server_batch, noise, label_noise)
    only = [[float(on) for on in mask] for mask in (round.covered, ~round.covered)]
    of_devices, of_uncovered = (device_variance(outcomes, weights) for weights in only)

    variance = round_variance(round, W)
    assert variance.server == pytest.approx(of_server, rel=1e-10)
    assert variance.device == pytest.approx(of_devices, rel=1e-10)
    assert variance.uncovered == pytest.approx(of_uncovered, rel=1e-10)
    w = round.device_weight
    together = device_variance(outcomes, [w if on else 1.0 for on in round.covered])
    assert variance.total() == pytest.approx(together + (1 - w) ** 2 * of_server, rel=1e-10)


def test_the_instances_cover_what_a_round_can_have() -> None:
    rounds = [tiny_round(seed)[0] for seed in SEEDS]
    assert any(not round.covered.all() for round in rounds)
    assert any(round.label_noise_variance is None for round in rounds)
    assert any(round.server_batch < round.coded_samples for round in rounds)
    assert any(round.server_batch == round.coded_samples for round in rounds)
    assert all(round.batch_excess.max() > 0.1 for round in rounds)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_terms_add_up(seed: int) -> None:
    round = tiny_round(seed)[0]
    variance = round_variance(round, np.ones((3, 2)))
    assert sum(variance.terms().values()) == pytest.approx(variance.total(), rel=1e-12)
    assert min(variance.terms().values()) >= 0
    code = ("projection", "noise", "noise_and_data", "label_noise")
    share = (1 - round.device_weight) ** 2
    assert sum(variance.terms()[name] for name in code) == pytest.approx(share * variance.code, rel=1e-12)
    assert variance.server == pytest.approx(variance.code + variance.server_batches, rel=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_weight_has_less_variance_than_the_best(seed: int) -> None:
    variance = round_variance(tiny_round(seed)[0], np.ones((3, 2)))
    best = variance.best_weight
    assert best == pytest.approx(variance.server / (variance.device + variance.server), rel=1e-12)
    grid = np.linspace(0.0, 1.0, 1001)
    totals = np.array([variance.total(float(w)) for w in grid])
    assert variance.total(best) <= totals.min() * (1 + 1e-12)
    assert abs(best - grid[totals.argmin()]) <= 0.5e-3 + 1e-9
    # At the minimum of w^2 a + (1 - w)^2 b the value is the harmonic one, a b / (a + b).
    harmonic = 1 / (1 / variance.device + 1 / variance.server)
    assert variance.total(best) - variance.uncovered == pytest.approx(harmonic, rel=1e-9)


def test_the_best_weight_of_two_numbers() -> None:
    assert best_weight(0.0, 0.0) == 0.5
    assert best_weight(2.0, 0.0) == 0.0
    assert best_weight(0.0, 2.0) == 1.0
    assert best_weight(3.0, 1.0) == 0.25


def test_without_anything_random_there_is_no_variance_of_devices() -> None:
    rng = np.random.default_rng(0)
    certain = random_round(rng, arrival_probability=np.ones(3), inverse_batch=1 / np.array([4.0, 7.0, 3.0]))
    variance = round_variance(certain, np.ones((3, 2)))
    assert variance.device == pytest.approx(0.0, abs=1e-12)
    late = replace(certain, arrival_probability=np.array([1.0, 0.5, 1.0]))
    gradient = late.parts[1].features.T @ (late.parts[1].features @ np.ones((3, 2)) - late.parts[1].labels)
    assert round_variance(late, np.ones((3, 2))).device == pytest.approx(np.sum(gradient**2), rel=1e-12)


def test_without_noise_and_with_whole_batches_only_the_projection_remains() -> None:
    rng = np.random.default_rng(0)
    quiet = random_round(rng, noise_variance=np.zeros(3), server_batch=12)
    terms = round_variance(quiet, np.ones((3, 2))).terms()
    assert [name for name in ("noise", "noise_and_data", "label_noise", "server_batches") if terms[name] != 0] == []
    assert terms["projection"] > 0
    fit = quiet.gram.optimum
    X, Y = (np.vstack([getattr(part, name) for part in quiet.parts]) for name in ("features", "labels"))
    # At the optimum the gradient is zero, and ||X||^2 ||R||^2 / c is left.
    expected = np.sum(X**2) * np.sum((X @ fit - Y) ** 2) / 12
    assert round_variance(quiet, fit).projection == pytest.approx(expected, rel=1e-9)


def test_the_error_of_the_code_falls_as_one_over_its_length() -> None:
    rng = np.random.default_rng(0)
    round = random_round(rng, label_noise_variance=np.full(3, 0.2), server_batch=12)
    one = round_variance(round, np.ones((3, 2)))
    many = round_variance(replace(round, coded_samples=12_000, server_batch=12_000), np.ones((3, 2)))
    assert many.code == pytest.approx(one.code / 1000, rel=1e-12)
    assert many.server_batches == 0


def test_a_batch_of_a_long_code_is_a_poisson_number_of_fresh_rows() -> None:
    """The variance of a sum of a Poisson number of terms with mean ``b`` is ``b`` times the second moment of one."""
    round = random_round(np.random.default_rng(0), coded_samples=10**9)
    W = np.ones((3, 2))
    M = row_covariance([(part.features, part.labels) for part in round.parts], W, round.total_noise, 0.0)
    one = sum(wick(M, a, 3 + b, a, 3 + b) for a in range(3) for b in range(2))
    assert round_variance(round, W).server == pytest.approx(one / round.server_batch, rel=1e-8)


def test_float32_data_is_summed_in_float64() -> None:
    round = random_round(np.random.default_rng(0))
    parts = tuple(
        replace(part, features=part.features.astype(np.float32), labels=part.labels.astype(np.float32))
        for part in round.parts
    )
    same = tuple(
        replace(part, features=part.features.astype(np.float64), labels=part.labels.astype(np.float64))
        for part in parts
    )
    W = np.full((3, 2), 1 / 3)
    totals = [round_variance(replace(round, parts=data), W).total() for data in (parts, same)]
    assert totals[0] == pytest.approx(totals[1], rel=1e-13)


def test_what_has_no_closed_form_or_no_sense_is_refused() -> None:
    round = random_round(np.random.default_rng(0))
    with pytest.raises(InputError, match="local_steps = 2: the variance has a closed form for one local step only"):
        round_variance(replace(round, local_steps=2), np.ones((3, 2)))
    with pytest.raises(InputError, match=r"model has shape \(2, 3\), the data needs \(3, 2\)"):
        round_variance(round, np.ones((2, 3)))
    with pytest.raises(InputError, match="model has 1 value"):
        round_variance(round, np.array([[np.nan, 0], [0, 0], [0, 0]]))
