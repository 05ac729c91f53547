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
    PrivacyTarget,
    coded_noise,
    epsilon_of,
    exact_epsilon,
    gaussian_mu,
    least_arrivals,
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


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ((0.0, 1e-5), "privacy.epsilon = 0.0"),
        ((-1.0, 1e-5), "privacy.epsilon = -1.0"),
        ((math.nan, 1e-5), "privacy.epsilon = nan"),
        ((math.inf, 1e-5), "privacy.epsilon = inf"),
        ((1.0, 0.0), "privacy.delta = 0.0"),
        ((1.0, 1.0), "privacy.delta = 1.0"),
        ((1.0, math.nan), "privacy.delta = nan"),
        ((1.0, 1e-5, "each-message", 0.0), "privacy.label_bound = 0.0"),
    ],
)
def test_targets_out_of_range_are_refused(values: tuple[float, ...], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as refused:
        PrivacyTarget(*values)  # type: ignore[arg-type]
    assert str(refused.value).endswith(".")
    assert "\n" not in str(refused.value)


def test_only_one_threat_model_is_sums() -> None:
    assert PrivacyTarget(1.0, 1e-5, "sums-only").sums_only
    assert not PrivacyTarget(1.0, 1e-5).sums_only


@pytest.mark.parametrize("epsilon", [0.1, 2.0, 50.0])
def test_shares_of_a_budget_compose_to_the_whole(epsilon: float) -> None:
    target = PrivacyTarget(epsilon, 1e-6)
    shares = (0.02, 0.03, 0.12, 0.83)
    parts = [GaussianMechanism(target.multiplier_for_share(share)) for share in shares]
    assert epsilon_of(parts, 1e-6) == pytest.approx(epsilon, rel=1e-9)
    assert epsilon_of(parts[:3], 1e-6) < epsilon


def test_the_noise_of_updates_makes_room_for_what_was_spent_and_what_comes_besides() -> None:
    spent, besides = GaussianMechanism(20.0), GaussianMechanism(30.0)
    target = PrivacyTarget(1.5, 1e-5, spent=(spent,))
    z = target.noise_multiplier(updates=10, besides=[besides])
    assert epsilon_of([spent, besides, GaussianMechanism(z, 10)], 1e-5) == pytest.approx(1.5, rel=1e-9)
    assert z == pytest.approx(math.sqrt(10 / (gaussian_mu(1.5, 1e-5) ** 2 - 20.0**-2 - 30.0**-2)), rel=1e-9)


@pytest.mark.parametrize(
    ("rows", "bound", "label_bound", "spent"),
    [
        (50, 1.0, 1.0, ()),
        (1000, 0.3, 7.0, ()),
        (1000, 0.3, 7.0, (GaussianMechanism(12.0),)),
        pytest.param(50, 1.0, 1.0, (GaussianMechanism(12.0),), marks=pytest.mark.slow),
    ],
)
def test_the_noise_of_coded_rows_keeps_the_target(
    rows: int, bound: float, label_bound: float, spent: tuple[GaussianMechanism, ...]
) -> None:
    target = PrivacyTarget(2.0, 1e-5, label_bound=label_bound, spent=spent)
    noise, label_noise = coded_noise(target, rows, bound)
    ratio, label_ratio = bound**2 / noise, label_bound**2 / label_noise
    assert ratio == pytest.approx(label_ratio, rel=1e-12), "both get half"
    found = epsilon_of([CodedMechanism(rows, ratio + label_ratio), *spent], 1e-5)
    assert 2.0 * 0.999 < found <= 2.0 * (1 + 1e-9)


def test_a_share_of_the_target_is_a_share_of_epsilon_and_of_delta() -> None:
    noise, label_noise = coded_noise(PrivacyTarget(2.0, 1e-5), 100, 1.0, 0.25)
    mechanism = CodedMechanism(100, 1 / noise + 1 / label_noise)
    assert epsilon_of([mechanism], 0.25e-5) == pytest.approx(0.5, rel=1e-6)


def by_enumeration(probability: list[float]) -> int:
    """Return the largest m with P(arrivals >= m) >= 99%, over all subsets of devices."""
    at_least = np.zeros(len(probability) + 1)
    for arrived in itertools.product([False, True], repeat=len(probability)):
        chance = math.prod(p if came else 1 - p for p, came in zip(probability, arrived, strict=True))
        at_least[: sum(arrived) + 1] += chance
    return max(1, int(np.flatnonzero(at_least >= 0.99 - 1e-12)[-1]))


@pytest.mark.parametrize(
    "probability",
    [[0.5] * 8, [0.98] * 10, [0.1, 0.9, 0.99, 1.0, 0.0, 0.7], [1.0] * 4, [0.0] * 4, [0.99], [0.5], [0.995, 0.995]],
)
def test_the_least_number_of_arrivals_agrees_with_an_enumeration_of_all_subsets(probability: list[float]) -> None:
    assert least_arrivals(np.array(probability)) == by_enumeration(probability)


def test_the_least_number_of_arrivals_agrees_with_a_simulation() -> None:
    rng = np.random.default_rng(3)
    probability = rng.uniform(0.6, 1.0, 60)
    arrivals = (rng.random((20_000, 60)) < probability).sum(axis=1)
    least = least_arrivals(probability)
    error = 4 * math.sqrt(0.01 * 0.99 / 20_000)
    assert np.mean(arrivals < least) <= 0.01 + error
    assert np.mean(arrivals < least + 1) > 0.01 - error


def test_a_thousand_devices_do_not_round_the_law_away() -> None:
    """The mean is 980 and the standard deviation 4.43, so the quantile of 1% is 2.33 of those below, continuity aside."""
    assert least_arrivals(np.full(1000, 0.98)) == pytest.approx(980 - 2.326 * math.sqrt(19.6), abs=2)
