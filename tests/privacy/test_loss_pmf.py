from __future__ import annotations

import math

import numpy as np
import pytest

from codedfl.privacy._loss_pmf import (
    Direction,
    PrivacyLoss,
    coded_loss,
    gaussian_loss,
    masses,
    pmf_of,
    sampled_loss,
    support,
)

TAIL = 1e-20


def some_losses(direction: Direction) -> list[PrivacyLoss]:
    return [
        gaussian_loss(0.7, TAIL),
        sampled_loss(0.8, 0.1, 1, direction, TAIL),
        sampled_loss(5.0, 1e-4, 1, direction, TAIL),
        coded_loss(0.1, 50, direction, TAIL),
    ]


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_masses_are_those_of_connect_the_dots_in_dp_accounting(direction: Direction) -> None:
    from dp_accounting.pld import pld_pmf

    for loss in some_losses(direction):
        interval = 0.05 * math.sqrt(loss.variance)
        points = support(loss, interval).astype(np.int64)
        epsilon = points * interval
        found, at_infinity = masses(loss, epsilon)
        negative = epsilon < 0
        deltas = np.empty_like(epsilon)
        deltas[~negative] = np.exp(loss.log_delta(epsilon[~negative]))
        deltas[negative] = -np.expm1(epsilon[negative]) + np.exp(
            epsilon[negative] + loss.log_delta_reversed(-epsilon[negative])
        )
        theirs = pld_pmf.create_pmf_pessimistic_connect_dots(interval, points, deltas).to_dense_pmf()
        # Theirs subtracts deltas near 1: an error of 1e-16 over the interval.
        np.testing.assert_allclose(found, theirs._probs[points - points[0]], rtol=0, atol=4e-15 / interval)
        assert at_infinity == theirs._infinity_mass


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_masses_are_a_probability_under_both_datasets(direction: Direction) -> None:
    for loss in some_losses(direction):
        epsilon = support(loss, 0.02 * math.sqrt(loss.variance)) * 0.02 * math.sqrt(loss.variance)
        found, at_infinity = masses(loss, epsilon)
        assert found.sum() + at_infinity == pytest.approx(1, abs=1e-13)
        assert found @ np.exp(-epsilon) <= 1 + 1e-13
        mean = float(found @ epsilon)
        assert mean == pytest.approx(loss.mean, rel=2e-4)
        assert loss.variance <= found @ np.square(epsilon - mean) <= loss.variance * (1 + 2e-4)


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_delta_on_the_grid_is_never_below_the_truth(direction: Direction) -> None:
    for loss in some_losses(direction):
        scale = math.sqrt(loss.variance)
        pmf = pmf_of(loss, 0.3 * scale)
        for epsilon in np.linspace(0, 5, 40) * scale:
            exact = math.exp(float(loss.log_delta(np.array([epsilon]))[0]))
            assert pmf.get_delta_for_epsilon(float(epsilon)) >= exact * (1 - 1e-9) - 1e-15


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize(("noise", "rate"), [(0.8, 0.1), (2.0, 0.5), (5.0, 1e-3)])
def test_the_curve_of_a_poisson_sample_agrees_with_dp_accounting(
    direction: Direction, noise: float, rate: float
) -> None:
    from dp_accounting.pld import privacy_loss_mechanism as library

    way = library.AdjacencyType.REMOVE if direction == "remove" else library.AdjacencyType.ADD
    theirs = library.GaussianPrivacyLoss(noise, sampling_prob=rate, adjacency_type=way)
    loss = sampled_loss(noise, rate, 1, direction, TAIL)
    epsilon = np.linspace(0, 6, 50) * math.sqrt(loss.variance)
    np.testing.assert_allclose(
        np.exp(loss.log_delta(epsilon)), theirs.get_delta_for_epsilon(epsilon), rtol=1e-9, atol=1e-15
    )


def test_the_support_is_dense_near_the_mean_and_reaches_both_ends() -> None:
    loss = gaussian_loss(1.0, TAIL)
    points = support(loss, 1e-3)
    assert points[0] * 1e-3 <= loss.low < loss.high <= points[-1] * 1e-3
    assert 0 in points
    assert np.diff(points).min() >= 1
    assert len(points) < 1000
    near = np.abs(points * 1e-3 - loss.mean) < 1.9
    assert np.diff(points[near]).max() <= 20
