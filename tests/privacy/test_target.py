from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from codedfl.errors import InputError
from codedfl.privacy import (
    CodedMechanism,
    GaussianMechanism,
    PrivacyTarget,
    coded_noise,
    epsilon_of,
    gaussian_mu,
    least_arrivals,
)


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
