from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codedfl.coding import CodedData, Rows, encode
from codedfl.errors import InputError
from codedfl.theory import (
    RoundParty,
    least_curvature,
    mean_round_growth,
    mean_square_step,
    simulate_round,
    stable_steps,
)
from codedfl.theory._verification import example_round
from codedfl.typing import FloatArray


def dense_round(parties: list[RoundParty], step_size: float, local_steps: int) -> FloatArray:
    """``M(eta)``, straight from its definition with matrix powers."""
    eye = np.eye(parties[0].features.shape[1])
    result = eye.copy()
    for party in parties:
        X = party.features.astype(np.float64)
        hessian = party.scale * X.T @ X - party.make_up * eye
        result -= party.weight * (eye - np.linalg.matrix_power(eye - step_size * hessian, local_steps))
    return result


def scfl_parties(
    rng: np.random.Generator, dimension: int, noise: float, dtype: type = np.float64
) -> tuple[list[RoundParty], CodedData]:
    """Five unequal devices with a decaying spectrum, and coded data of all of them."""
    scales = np.arange(1, dimension + 1) ** -0.7
    parts = [rng.standard_normal((rows, dimension)) * scales for rows in (30, 80, 50, 200, 120)]
    whole = np.concatenate(parts)
    rows = 3 * dimension
    coded = encode(Rows(whole, np.zeros((len(whole), 1))), rows, noise_variance=noise, rng=rng)
    devices = [RoundParty(part.astype(dtype), 0.5) for part in parts]
    return [*devices, RoundParty(coded.features.astype(dtype), 0.5, 1 / rows, noise)], coded


@pytest.mark.parametrize("dimension", [1, 2, 40, 200])
@pytest.mark.parametrize("local_steps", [1, 2, 5])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_growth_is_the_largest_eigenvalue_of_the_dense_operator(dimension: int, local_steps: int, dtype: type) -> None:
    parties, _ = scfl_parties(np.random.default_rng(dimension), dimension, 0.3, dtype)
    largest = np.linalg.eigvalsh(sum(0.5 * party.features.T @ party.features for party in parties[:-1]))[-1]
    for factor in (0.05, 0.5, 1.5, 3.0):
        step = factor / float(largest)
        eigenvalues = np.linalg.eigvalsh(dense_round(parties, step, local_steps))
        growth = mean_round_growth(parties, step, local_steps)
        exact = float(np.abs(eigenvalues).max())
        assert growth == pytest.approx(exact, rel=2e-3 if dimension > 128 else 1e-4)
        assert growth <= exact * (1 + 1e-4)


def test_the_mean_of_simulated_rounds_is_the_operator() -> None:
    """Batches, arrivals and weights average out to ``M``: checked on the update of devices, for three local steps."""
    round = example_round(local_steps=3)
    optimum_free = example_round(
        local_steps=3, parts=tuple(Rows(part.features, np.zeros((len(part), 1))) for part in round.parts)
    )
    model, step = np.array([[1.0], [-2.0], [0.5]]), 0.04
    device, _ = simulate_round(optimum_free, model, step, 40_000, np.random.default_rng(3))
    after = model - step * device.sum(axis=1)
    parties = [RoundParty(part.features) for part in round.parts]
    error = after.std(axis=0) / math.sqrt(len(after))
    assert (np.abs(after.mean(axis=0) - dense_round(parties, step, 3) @ model) < 4.5 * error).all()


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_training_with_mean_rounds_converges_or_diverges_as_predicted(factor: float) -> None:
    """Full batches and everyone on time: gradient steps of all parties, with the limit of stability on either side."""
    parties, _ = scfl_parties(np.random.default_rng(1), 30, 0.0)
    low, high = 1e-6, 10.0
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if mean_round_growth(parties, middle, 3) <= 1 else (low, middle)
    model, step = np.ones(30), factor * low
    for _ in range(400):
        update = np.zeros(30)
        for party in parties:
            local = model.copy()
            for _ in range(3):
                local -= step * (party.scale * party.features.T @ (party.features @ local) - party.make_up * local)
            update += party.weight * (model - local)
        model = model - update
    assert (np.linalg.norm(model) < math.sqrt(30)) == (factor < 1)


@pytest.mark.parametrize("dimension", [40, 200])
def test_an_indefinite_coded_hessian_leaves_no_stable_step(dimension: int) -> None:
    parties, _ = scfl_parties(np.random.default_rng(2), dimension, 50.0)
    mean_hessian = sum(
        party.weight * (party.scale * party.features.T @ party.features - party.make_up * np.eye(dimension))
        for party in parties
    )
    least = float(np.linalg.eigvalsh(np.asarray(mean_hessian))[0])
    assert least < -1
    assert least_curvature(parties) == pytest.approx(least, rel=1e-9)
    for step in (1e-4, 1e-3, 1e-2):
        # M >= I - eta tau A, as long as eta times the largest curvature is at most 2
        assert np.linalg.eigvalsh(dense_round(parties, step, 2))[-1] >= 1 + 2 * step * -least - 1e-12
        assert mean_round_growth(parties, step, 2) >= 1 + 2 * step * -least - 2e-3
    found = stable_steps(parties, [1e-2, 3e-3, 1e-1], 2)
    assert found.steps == ()
    assert found.hopeless
    assert found.least_curvature == pytest.approx(least, rel=1e-9)


def test_stable_candidates_are_those_of_the_dense_operator_in_the_order_given() -> None:
    parties, _ = scfl_parties(np.random.default_rng(5), 25, 0.01)
    candidates = [0.4, 1e-4, 0.02, 1e-3, 5e-3, 0.1, 1e-3]
    found = stable_steps(parties, candidates, 4, 1e-6)
    stable = [c for c in candidates if np.abs(np.linalg.eigvalsh(dense_round(parties, c, 4))).max() <= 1 + 1e-6]
    assert 0 < len(stable) < len(candidates)
    assert found.steps == tuple(stable)
    assert found.least_curvature is None
    assert not found.hopeless
    assert len(found.growth) <= 3


def test_steps_that_are_merely_too_long_are_not_hopeless() -> None:
    found = stable_steps([RoundParty(np.eye(3))], [5.0, 9.0], 1)
    assert (found.steps, found.hopeless, found.least_curvature) == ((), False, 1.0)
    flat = stable_steps([RoundParty(np.diag([1.0, 0.0]))], [5.0], 1)
    assert (flat.hopeless, flat.least_curvature) == (False, 0.0)


def test_mean_square_step_keeps_the_second_moment_from_growing() -> None:
    """With devices alone, the bound holds for the exact second moment; far beyond it the second moment grows."""
    round = example_round(device_weight=1.0, arrival_probability=np.array([0.9, 0.05, 0.7]))
    step = mean_square_step(round)
    rng = np.random.default_rng(7)
    errors = rng.standard_normal((50, 3, 1))
    for factor, grows in ((1.0, False), (40.0, True)):
        eta, ratios = factor * step, []
        for e in errors:
            mean, variance = np.zeros((3, 1)), 0.0
            for i, part in enumerate(round.parts):
                X, p = part.features, round.arrival_probability[i]
                g = X.T @ (X @ e)
                mean += g
                spread = np.sum(np.sum(X**2, axis=1) * (X @ e)[:, 0] ** 2)
                variance += (1 / p - 1) * np.sum(g**2) + round.batch_excess[i] / p * spread
            ratios.append((np.sum((e - eta * mean) ** 2) + eta**2 * variance) / np.sum(e**2))
        assert (max(ratios) > 1) == grows


@pytest.mark.parametrize(
    ("parties", "sentence"),
    [([], "0 different dimensions"), ([RoundParty(np.ones((1, 2))), RoundParty(np.ones((1, 3)))], "2 different")],
)
def test_parties_that_do_not_fit_together(parties: list[RoundParty], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        mean_round_growth(parties, 0.1, 1)


def test_bad_numbers_are_refused() -> None:
    party = RoundParty(np.eye(2))
    with pytest.raises(InputError, match=r"features has shape \(2,\)"):
        RoundParty(np.ones(2))
    with pytest.raises(InputError, match="make_up = -1"):
        RoundParty(np.eye(2), make_up=-1.0)
    with pytest.raises(InputError, match="step_size = nan"):
        mean_round_growth([party], math.nan, 1)
    with pytest.raises(InputError, match="local_steps = 0"):
        mean_round_growth([party], 0.1, 0)
    with pytest.raises(InputError, match="candidates is empty"):
        stable_steps([party], [], 1)
    with pytest.raises(InputError, match="step_size = 0"):
        stable_steps([party], [0.1, 0.0], 1)


@given(
    size=st.floats(1e-150, 1e150),
    step=st.floats(1e-300, 1e300),
    make_up=st.floats(0, 1e300),
    local_steps=st.integers(1, 20),
    dimension=st.sampled_from([1, 3, 130]),
)
@settings(deadline=None, max_examples=40)
def test_extreme_numbers_have_a_growth(
    size: float, step: float, make_up: float, local_steps: int, dimension: int
) -> None:
    party = RoundParty(size * np.eye(2, dimension), make_up=make_up)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        growth = mean_round_growth([party], step, local_steps)
    assert growth >= 0
