from __future__ import annotations

import math
from collections.abc import Sequence

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
    gaussian_mu,
    noise_multiplier_for,
)


def assert_round_trip(
    epsilon: float, delta: float, updates: int, rate: float = 1.0, besides: Sequence[Mechanism] = ()
) -> float:
    noise = noise_multiplier_for(epsilon, delta, updates=updates, sampling_rate=rate, besides=besides)
    found = epsilon_of([GaussianMechanism(noise, updates, rate), *besides], delta)
    assert 0.999 * epsilon <= found <= epsilon
    return noise


@pytest.mark.parametrize("updates", [1, 32, 10**6])
@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 2.0, 8.0, 1e4])
def test_full_batches_are_gaussian_differential_privacy(epsilon: float, updates: int) -> None:
    noise = assert_round_trip(epsilon, 1e-5, updates)
    assert noise == pytest.approx(math.sqrt(updates) / gaussian_mu(epsilon, 1e-5), rel=1e-9)


def test_other_gaussian_releases_share_the_budget_as_squares() -> None:
    noise = assert_round_trip(2.0, 1e-5, 10, besides=[GaussianMechanism(5.0)])
    assert 10 / noise**2 + 1 / 25 == pytest.approx(gaussian_mu(2.0, 1e-5) ** 2, rel=1e-9)


@pytest.mark.slow
def test_poisson_batches_need_less_and_uploads_more() -> None:
    full = noise_multiplier_for(2.0, 1e-5, updates=20)
    sampled = assert_round_trip(2.0, 1e-5, 20, rate=0.1)
    with_upload = assert_round_trip(2.0, 1e-5, 20, rate=0.1, besides=[CodedMechanism(50, 0.05)])
    assert sampled < with_upload < full


@pytest.mark.slow
def test_the_value_of_dp_accounting() -> None:
    """Its epsilon at the noise found, on a grid of its own, is the target to 0.1%."""
    from dp_accounting.pld import privacy_loss_distribution as library

    noise = noise_multiplier_for(2.0, 1e-5, updates=200, sampling_rate=0.02)
    theirs = library.from_gaussian_mechanism(noise, sampling_prob=0.02, value_discretization_interval=5e-4)
    assert theirs.self_compose(200).get_epsilon_for_delta(1e-5) == pytest.approx(2.0, rel=1e-3)


def test_what_needs_no_noise_gets_hardly_any() -> None:
    """At a rate of 1e-9, delta = 1e-5 covers that the sample is drawn at all."""
    assert noise_multiplier_for(2.0, 1e-5, updates=1, sampling_rate=1e-9) < 1e-5


def test_a_budget_that_is_used_up_is_refused() -> None:
    upload = CodedMechanism(1000, 0.1)
    used = exact_epsilon(1e-5, 1000, 0.1)
    with pytest.raises(InputError, match=rf"^epsilon = 2.0 leaves nothing for the updates.* use {used:.6g} at delta"):
        noise_multiplier_for(2.0, 1e-5, updates=10, besides=[upload])
    with pytest.raises(InputError, match=r"the other releases use inf at delta"):
        noise_multiplier_for(2.0, 1e-5, updates=10, besides=[GaussianMechanism(0.0)])


@pytest.mark.slow
def test_a_budget_that_is_all_but_used_up_is_refused() -> None:
    used = exact_epsilon(1e-5, 1000, 0.1)
    with pytest.raises(InputError, match=r"^epsilon = .* leaves too little for the updates"):
        noise_multiplier_for(used * (1 + 1e-12), 1e-5, updates=10, besides=[CodedMechanism(1000, 0.1)])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epsilon": 0.0}, "epsilon = 0.0"),
        ({"epsilon": math.inf}, "epsilon = inf"),
        ({"delta": 1.0}, "delta = 1.0"),
        ({"updates": 0}, "updates = 0"),
        ({"sampling_rate": 1.5}, "sampling_rate = 1.5"),
    ],
)
def test_bad_numbers_are_refused(changes: dict[str, float], words: str) -> None:
    given_: dict[str, float] = {"epsilon": 1.0, "delta": 1e-5, "updates": 3, "sampling_rate": 1.0, **changes}
    with pytest.raises(InputError, match=f"^{words} must"):
        noise_multiplier_for(
            given_["epsilon"],
            given_["delta"],
            updates=given_["updates"],  # type: ignore[arg-type]
            sampling_rate=given_["sampling_rate"],
        )


@pytest.mark.slow
@pytest.mark.parametrize(("updates", "rate"), [(1000, 0.01), (5_000, 0.005)])
def test_long_runs(updates: int, rate: float) -> None:
    assert_round_trip(2.0, 1e-5, updates, rate)
    assert_round_trip(2.0, 1e-5, updates, rate, besides=[CodedMechanism(1000, 1 / 100)])


@pytest.mark.slow
@given(
    epsilon=st.floats(-2, 4).map(lambda x: 10.0**x),
    delta=st.floats(-12, -2).map(lambda x: 10.0**x),
    updates=st.integers(1, 2000),
    rate=st.floats(0.001, 1.0),
)
@settings(max_examples=12, derandomize=True)
def test_any_solution_keeps_its_budget(epsilon: float, delta: float, updates: int, rate: float) -> None:
    noise = noise_multiplier_for(epsilon, delta, updates=updates, sampling_rate=rate)
    assert epsilon_of([GaussianMechanism(noise, updates, rate)], delta) <= epsilon
    assert noise <= noise_multiplier_for(epsilon, delta, updates=updates) * (1 + 1e-3)
