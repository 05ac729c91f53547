"""One epsilon for everything, against closed forms, dp-accounting and Monte Carlo of the privacy loss."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codedfl.errors import InputError
from codedfl.privacy import (
    CodedMechanism,
    GaussianMechanism,
    Mechanism,
    epsilon_of,
    exact_epsilon,
    gaussian_epsilon,
)
from codedfl.privacy._composition import (
    Direction,
    PrivacyLoss,
    _composed,
    _epsilon_for_delta,
    _renyi_epsilon,
    _self_composed,
    _slack,
    coded_loss,
    gaussian_loss,
    masses,
    pmf_of,
    sampled_loss,
    support,
)
from codedfl.privacy._gaussian import log_gaussian_delta
from codedfl.privacy._mechanisms import merge
from tests.reference.privacy_losses import Matrix, coded_losses, delta_from_losses, sampled_gaussian_losses

TAIL = 1e-20

MIXED: tuple[Mechanism, ...] = (CodedMechanism(100, 0.02), GaussianMechanism(8.0, 3), GaussianMechanism(2.0, 20, 0.05))

CASES: dict[str, tuple[tuple[Mechanism, ...], tuple[float, ...]]] = {
    "Gaussian": ((GaussianMechanism(1.0),), (0.38, 0.127)),
    "Gaussians": ((GaussianMechanism(3.0, 5), GaussianMechanism(2.0)), (0.2, 0.035)),
    "sampled": ((GaussianMechanism(0.8, 1, 0.2),), (0.07, 0.028)),
    "sampled often": ((GaussianMechanism(1.0, 10, 0.1),), (0.083, 0.007)),
    "coded": ((CodedMechanism(50, 0.2),), (0.21, 0.025)),
    "coded twice": ((CodedMechanism(50, 0.1), CodedMechanism(20, 0.3)), (0.23, 0.035)),
    "mixed": (MIXED, (0.074, 0.0062)),
}


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


def sampled_losses(mechanisms: Sequence[Mechanism], direction: str, draws: int, rng: np.random.Generator) -> Matrix:
    """The sum of the losses of all releases."""
    total = np.zeros(draws)
    for mechanism in mechanisms:
        if isinstance(mechanism, CodedMechanism):
            total += coded_losses(mechanism.coded_samples, mechanism.signal_to_noise, direction, draws, rng)
        else:
            for _ in range(mechanism.count):
                total += sampled_gaussian_losses(
                    mechanism.noise_multiplier, mechanism.sampling_rate, direction, draws, rng
                )
    return total


def assert_monte_carlo_agrees(mechanisms: Sequence[Mechanism], deltas: Sequence[float], draws: int) -> None:
    """At epsilon, the larger delta of both directions is the one asked for, within 4 standard errors, and 0.2% for the grid."""
    rng = np.random.default_rng(20)
    losses = {direction: sampled_losses(mechanisms, direction, draws, rng) for direction in ("remove", "add")}
    for delta in deltas:
        found = epsilon_of(mechanisms, delta)
        estimates = [delta_from_losses(values, found) for values in losses.values()]
        mean, error = max(estimates)
        assert mean > 20 * error, "the test has power"
        assert mean - 4 * error <= delta <= mean * 1.002 + 4 * error


@pytest.mark.parametrize("name", CASES)
def test_epsilon_agrees_with_monte_carlo(name: str) -> None:
    assert_monte_carlo_agrees(*CASES[name], draws=40_000)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_epsilon_agrees_with_much_monte_carlo(name: str) -> None:
    assert_monte_carlo_agrees(*CASES[name], draws=400_000)


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_each_direction_agrees_with_monte_carlo(direction: Direction) -> None:
    mechanisms = [GaussianMechanism(1.0, 5, 0.2)]
    losses = sampled_losses(mechanisms, direction, 200_000, np.random.default_rng(21))
    pmf = _composed(merge(mechanisms), direction)
    for epsilon in (0.1, 0.6):
        mean, error = delta_from_losses(losses, epsilon)
        assert mean > 20 * error
        assert mean - 4 * error <= pmf.get_delta_for_epsilon(epsilon) <= mean * 1.002 + 4 * error


def test_full_batches_and_a_single_upload_are_exact() -> None:
    for delta in (1e-2, 1e-5, 1e-100):
        mechanisms = [GaussianMechanism(4.0, 10), GaussianMechanism(2.0, 3)]
        assert epsilon_of(mechanisms, delta) == gaussian_epsilon(math.sqrt(10 / 16 + 3 / 4), delta)
        assert epsilon_of([CodedMechanism(100, 0.1)] * 3, delta) == exact_epsilon(delta, 300, 0.1)
    assert epsilon_of([GaussianMechanism(1.0)], 0.126936737507) == pytest.approx(1.0)  # Phi(-1/2) - e Phi(-3/2)


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-8])
@pytest.mark.parametrize("mu", [1e-4, 1e-2, 0.3, 1.0, 5.0, 30.0])
def test_a_gaussian_on_the_grid_is_at_most_a_thousandth_above_the_closed_form(mu: float, delta: float) -> None:
    """The stated bound, alone and cut into 300 releases."""
    exact = gaussian_epsilon(mu, delta)
    for count in (1, 300):
        step = mu / math.sqrt(count)
        pmf = _self_composed(pmf_of(gaussian_loss(step, 1e-23), 2.0 ** math.floor(math.log2(0.02 * step))), count)
        found = _epsilon_for_delta(pmf, delta, most=2 * exact + 1)
        assert exact * (1 - 1e-6) <= found <= exact * 1.001


@pytest.mark.parametrize("count", [1000, 100_000])
def test_rounding_of_the_transforms_stays_within_its_slack(count: int) -> None:
    step = 1 / math.sqrt(count)
    pmf = _self_composed(pmf_of(gaussian_loss(step, 1e-26), 2.0 ** math.floor(math.log2(0.02 * step))), count)
    slack = _slack(merge([GaussianMechanism(1.0, count, 0.5)]))
    for epsilon in np.linspace(1.0, 9.0, 17):
        exact = math.exp(float(log_gaussian_delta(1.0, np.array(epsilon))))
        assert pmf.get_delta_for_epsilon(float(epsilon)) >= exact - slack


@pytest.mark.parametrize(
    ("noise", "rate", "count"), [(0.9, 0.01, 1000), (2.0, 0.3, 50), (0.5, 0.001, 10), (5.0, 0.5, 1)]
)
def test_poisson_samples_agree_with_dp_accounting(noise: float, rate: float, count: int) -> None:
    """Theirs is pessimistic too, by the square of its interval against the variance of one loss."""
    from dp_accounting.pld import privacy_loss_distribution as library

    theirs = library.from_gaussian_mechanism(noise, sampling_prob=rate, value_discretization_interval=5e-4)
    expected = theirs.self_compose(count).get_epsilon_for_delta(1e-5)
    assert epsilon_of([GaussianMechanism(noise, count, rate)], 1e-5) == pytest.approx(expected, rel=2e-3)


@pytest.mark.slow
def test_it_is_tighter_than_renyi_and_never_above_it() -> None:
    cases: list[list[Mechanism]] = [
        [GaussianMechanism(0.9, 1000, 0.01)],
        [*MIXED],
        [CodedMechanism(100, 0.02), GaussianMechanism(4.0)],
    ]
    for mechanisms in cases:
        bound = _renyi_epsilon(merge(mechanisms), 1e-5)
        assert 0.5 * bound < epsilon_of(mechanisms, 1e-5) < 0.99 * bound


def test_renyi_bounds_are_those_of_dp_accounting() -> None:
    import dp_accounting

    event = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(0.9))
    orders = [float(order) for order in range(2, 65)]
    theirs = dp_accounting.rdp.RdpAccountant(orders).compose(event, 1000).get_epsilon(1e-5)
    merged = merge([GaussianMechanism(0.9, 1000, 0.01)])
    assert _renyi_epsilon(merged, 1e-5) == pytest.approx(theirs, rel=0.01)


def test_nothing_and_no_noise() -> None:
    assert epsilon_of([], 1e-5) == 0.0
    assert epsilon_of([GaussianMechanism(math.inf, 10), CodedMechanism(10, 0.0)], 1e-5) == 0.0
    for bare in (GaussianMechanism(0.0), GaussianMechanism(0.0, 3, 0.1), CodedMechanism(10, math.inf)):
        assert epsilon_of([*MIXED, bare], 1e-5) == math.inf


def test_order_does_not_matter() -> None:
    assert len({epsilon_of(order, 1e-5) for order in itertools.permutations(MIXED)}) == 1


@pytest.mark.slow
def test_two_uploads_are_one_of_twice_the_rows_also_on_the_grid() -> None:
    """Ratios that differ by a millionth cannot be merged, and go through the grid."""
    once = epsilon_of([CodedMechanism(200, 0.05)], 1e-5)
    apart = epsilon_of([CodedMechanism(100, 0.05), CodedMechanism(100, 0.05 * (1 - 1e-6))], 1e-5)
    assert once * (1 - 1e-5) <= apart <= once * 1.001


@pytest.mark.slow
def test_more_noise_fewer_releases_and_smaller_batches_reveal_less() -> None:
    base = epsilon_of([GaussianMechanism(1.0, 100, 0.05)], 1e-5)
    assert epsilon_of([GaussianMechanism(1.1, 100, 0.05)], 1e-5) < base
    assert epsilon_of([GaussianMechanism(1.0, 90, 0.05)], 1e-5) < base
    assert epsilon_of([GaussianMechanism(1.0, 100, 0.04)], 1e-5) < base
    assert epsilon_of([GaussianMechanism(1.0, 100, 0.05)], 1e-4) < base
    assert epsilon_of([GaussianMechanism(1.0, 100, 0.05), CodedMechanism(10, 0.01)], 1e-5) > base


def test_bad_numbers_are_refused() -> None:
    for delta in (0.0, 1.0, -1.0, math.nan):
        with pytest.raises(InputError, match=r"^delta = "):
            epsilon_of(MIXED, delta)


@pytest.mark.slow
@given(
    noise=st.floats(-6, 6).map(lambda x: 10.0**x),
    rate=st.floats(-15, -0.001).map(lambda x: 10.0**x),
    count=st.floats(0, 6).map(lambda x: round(10**x)),
    delta=st.floats(-300, -0.5).map(lambda x: 10.0**x),
    coded=st.none() | st.tuples(st.integers(1, 10**6), st.floats(-9, 3).map(lambda x: 10.0**x)),
)
@settings(max_examples=40)
def test_extremes_lie_between_a_part_and_a_plain_bound(
    noise: float, rate: float, count: int, delta: float, coded: tuple[int, float] | None
) -> None:
    """One release of the sum, or the upload alone, is not above; what is never amplified is not below."""
    uploads = [] if coded is None else [CodedMechanism(*coded)]
    mechanisms: list[Mechanism] = [GaussianMechanism(noise, count, rate), *uploads]
    found = epsilon_of(mechanisms, delta)
    assert found >= epsilon_of(uploads, delta) * (1 - 1e-6) - 1e-12
    assert found <= _renyi_epsilon(merge(mechanisms), delta)
    if delta < rate:
        # One release: delta(ln(1 + q (e^t - 1))) = q delta_Gauss(t).
        alone = gaussian_epsilon(1 / noise, delta / rate) if delta / rate < 1 else 0.0
        once = math.log1p(rate * math.expm1(alone)) if alone < 700 else alone + math.log(rate)
        assert found >= once * (1 - 1e-6) - 1e-9


def test_losses_that_cannot_be_indexed_leave_the_plain_bound() -> None:
    strong = [GaussianMechanism(0.01, 100, 0.1)]
    assert epsilon_of([GaussianMechanism(0.01, 1, 0.1)], 0.1) < epsilon_of(strong, 0.1) < math.inf
