from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from codedfl.errors import InputError
from codedfl.privacy import Adjacency, PrivacyAccountant, exact_epsilon, mi_dp_bits, renyi_divergence, signal_to_noise

ADJACENCIES = st.sampled_from(["add-remove", "replace", "remove"])


def changed(budget: PrivacyAccountant, **changes: Any) -> PrivacyAccountant:
    """The budget solved again, for what is None in ``changes``."""
    return replace(budget, **changes)


@pytest.mark.slow
@given(
    coded_samples=st.integers(1, 20_000),
    noise_variance=st.floats(0.01, 1e4),
    bits=st.floats(1, 60),
    norm_bound=st.sampled_from([0.1, 1.0, 28.0]),
    label_noise_variance=st.sampled_from([None, 0.5, 100.0]),
    adjacency=ADJACENCIES,
    devices_in_sum=st.sampled_from([None, 1, 20]),
)
def test_any_of_the_four_is_solved_from_the_other_three(
    coded_samples: int,
    noise_variance: float,
    bits: float,
    norm_bound: float,
    label_noise_variance: float | None,
    adjacency: Adjacency,
    devices_in_sum: int | None,
) -> None:
    full = PrivacyAccountant(
        coded_samples=coded_samples,
        noise_variance=noise_variance,
        delta=2.0**-bits,
        norm_bound=norm_bound,
        label_noise_variance=label_noise_variance,
        adjacency=adjacency,
        devices_in_sum=devices_in_sum,
    )
    assume(full.epsilon > 1e-9)  # below, delta alone nearly covers everything
    assert changed(full, epsilon=None).epsilon == full.epsilon
    assert changed(full, delta=None).delta == pytest.approx(full.delta, rel=1e-7)
    labels_dominate = full.signal_to_noise * 0.999 < full.label_signal_to_noise
    if not labels_dominate:
        assert changed(full, noise_variance=None).noise_variance == pytest.approx(noise_variance, rel=1e-6)
    slightly_more = changed(full, epsilon=full.epsilon * (1 + 1e-9), coded_samples=None)
    assert slightly_more.coded_samples == coded_samples
    assert changed(full, epsilon=full.epsilon * (1 - 1e-6), delta=None).delta > full.delta


def test_coded_samples_are_the_most_that_keep_the_budget() -> None:
    found = PrivacyAccountant(noise_variance=50.0, epsilon=2.0, delta=1e-5)
    assert isinstance(found.coded_samples, int)
    kept, lost = (exact_epsilon(1e-5, found.coded_samples + more, 1 / 50.0) for more in (0, 1))
    assert kept <= 2.0 < lost


@pytest.mark.parametrize("missing", ["coded_samples", "noise_variance", "epsilon", "delta"])
@pytest.mark.parametrize("adjacency", ["add-remove", "replace"])
def test_every_unknown_is_solved_for(missing: str, adjacency: Adjacency) -> None:
    full = PrivacyAccountant(coded_samples=10_000, epsilon=1.0, delta=1e-5, adjacency=adjacency)
    again = changed(full, **{missing: None})
    assert getattr(again, missing) == pytest.approx(getattr(full, missing), rel=2e-4)


@pytest.mark.parametrize(("epsilon", "variance"), [(1.0, 267.95), (2.0, 143.14), (4.0, 77.516), (8.0, 42.910)])
def test_noise_for_ten_thousand_coded_samples(epsilon: float, variance: float) -> None:
    for norm_bound in (1.0, 3.0):
        found = PrivacyAccountant(coded_samples=10_000, epsilon=epsilon, delta=1e-5, norm_bound=norm_bound)
        assert found.noise_variance / norm_bound**2 == pytest.approx(variance, rel=5e-5)
        back = PrivacyAccountant(
            coded_samples=10_000, noise_variance=found.noise_variance, delta=1e-5, norm_bound=norm_bound
        )
        assert back.epsilon == pytest.approx(epsilon, rel=1e-9)


@given(scale=st.floats(1e-3, 1e3), c=st.integers(1, 5000), variance=st.floats(0.1, 1e3))
def test_only_the_ratio_of_norm_and_noise_counts(scale: float, c: int, variance: float) -> None:
    one = PrivacyAccountant(coded_samples=c, noise_variance=variance, delta=1e-6)
    other = PrivacyAccountant(coded_samples=c, noise_variance=variance * scale**2, delta=1e-6, norm_bound=scale)
    assert other.epsilon == pytest.approx(one.epsilon, rel=1e-9)


def test_labels_are_accounted_together_with_features() -> None:
    both = PrivacyAccountant(
        coded_samples=100,
        noise_variance=4.0,
        delta=1e-5,
        norm_bound=2.0,
        label_noise_variance=0.5,
        label_norm_bound=3.0,
    )
    assert both.signal_to_noise == pytest.approx(4 / 4 + 9 / 0.5)
    assert both.epsilon == exact_epsilon(1e-5, 100, 19.0)
    alone = changed(both, label_noise_variance=None, epsilon=None)
    assert alone.epsilon < both.epsilon
    assert "features alone" in alone.covers
    assert "features and labels together" in both.covers


def test_labels_without_noise_have_no_guarantee() -> None:
    bare = PrivacyAccountant(coded_samples=10, noise_variance=1e9, delta=1e-5, label_noise_variance=0.0)
    assert bare.epsilon == math.inf
    assert bare.epsilon_from_renyi == math.inf
    assert PrivacyAccountant(coded_samples=10, noise_variance=1e9, epsilon=9.0, label_noise_variance=0.0).delta == 1
    with pytest.raises(InputError, match=r"^label_noise_variance = 0 keeps no epsilon .*: raise it"):
        PrivacyAccountant(noise_variance=1e9, epsilon=9.0, delta=1e-5, label_noise_variance=0.0)
    with pytest.raises(InputError, match=r"^label_noise_variance = 0.0 cannot keep epsilon = 9.0, .* use inf at"):
        PrivacyAccountant(coded_samples=10, epsilon=9.0, delta=1e-5, label_noise_variance=0.0)


def test_the_sum_hides_behind_the_noise_of_all() -> None:
    each = PrivacyAccountant(coded_samples=1000, noise_variance=20 * 3.0, delta=1e-5, label_noise_variance=20.0)
    summed = PrivacyAccountant(
        coded_samples=1000, noise_variance=3.0, delta=1e-5, label_noise_variance=1.0, devices_in_sum=20
    )
    assert summed.epsilon == pytest.approx(each.epsilon, rel=1e-12)
    assert summed.mi_dp_bits == pytest.approx(each.mi_dp_bits, rel=1e-12)
    assert summed.effective_noise_variance == 60.0
    assert each.threat_model == "server sees each upload"
    assert summed.threat_model == "server sees the sum only"
    assert "20 devices" in summed.covers
    solved = changed(summed, noise_variance=None)
    assert solved.noise_variance == pytest.approx(3.0, rel=1e-9)


def test_unequal_noise_in_a_sum() -> None:
    variances = [0.5, 1.0, 4.5]
    summed = PrivacyAccountant(
        coded_samples=100, noise_variance=float(np.mean(variances)), delta=1e-5, devices_in_sum=3
    )
    assert summed.epsilon == pytest.approx(exact_epsilon(1e-5, 100, 1 / 6.0), rel=1e-12)


def test_other_numbers_of_the_budget() -> None:
    budget = PrivacyAccountant(coded_samples=200, noise_variance=25.0, delta=1e-5, adjacency="replace")
    assert budget.mi_dp_bits == mi_dp_bits(200, 25.0)
    assert (budget.renyi([1.5, 3.0]) == renyi_divergence([1.5, 3.0], 200, signal_to_noise(1.0, 25.0), "replace")).all()
    assert budget.epsilon < budget.epsilon_from_renyi < 1.5 * budget.epsilon
    assert np.isinf(budget.renyi(26.0))


def test_report() -> None:
    report = PrivacyAccountant(coded_samples=10_000, noise_variance=0.25, delta=1e-5).as_dict()
    assert report == {
        "coded_samples": 10_000,
        "noise_variance": 0.25,
        "epsilon": pytest.approx(13_181.1, abs=0.05),
        "delta": 1e-5,
        "norm_bound": 1.0,
        "mi_dp_bits": pytest.approx(7.64, abs=0.005),
        "threat_model": "server sees each upload",
        "adjacency": "add-remove",
        "covers": (
            "one sample more or less of norm 1 or less, for the coded features alone (no labels may be coded with them), "
            "in one device's upload, made once; the updates sent during training are not covered"
        ),
    }


def test_without_noise() -> None:
    bare = PrivacyAccountant(coded_samples=10, noise_variance=0.0, delta=1e-5)
    assert bare.epsilon == bare.mi_dp_bits == bare.epsilon_from_renyi == math.inf
    certain = PrivacyAccountant(coded_samples=10, noise_variance=0.0, epsilon=3.0)
    assert (certain.delta, certain.epsilon_from_renyi) == (1.0, 0.0)
    with pytest.raises(InputError, match=r"^noise_variance = 0 keeps no epsilon with any number of coded samples"):
        PrivacyAccountant(noise_variance=0.0, epsilon=3.0, delta=1e-5)


def test_a_delta_too_small_for_a_float_is_zero() -> None:
    certain = PrivacyAccountant(coded_samples=10, noise_variance=1.0, epsilon=1e5)
    assert (certain.delta, certain.epsilon_from_renyi) == (0.0, math.inf)


def test_a_budget_is_frozen() -> None:
    budget = PrivacyAccountant(coded_samples=10, noise_variance=1.0, delta=1e-5)
    with pytest.raises(FrozenInstanceError):
        budget.epsilon = 0.1  # type: ignore[misc]
    assert budget == PrivacyAccountant(coded_samples=10, noise_variance=1.0, delta=1e-5)
    assert repr(budget).startswith("PrivacyAccountant(coded_samples=10, noise_variance=1.0, epsilon=")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": 1.0}, "coded_samples and noise_variance and epsilon and delta given: give exactly three of"),
        (
            {"delta": None},
            "coded_samples and noise_variance given: give exactly three of coded_samples, noise_variance, ",
        ),
        ({"coded_samples": None, "noise_variance": None}, "delta given: give exactly three"),
        ({"coded_samples": None, "noise_variance": None, "delta": None}, "nothing given: give exactly three"),
        ({"coded_samples": 0}, "coded_samples = 0 must be 1 or more"),
        ({"noise_variance": -1.0}, "noise_variance = -1.0 must be"),
        ({"noise_variance": math.inf}, "noise_variance = inf must be"),
        ({"delta": 0.0}, "delta = 0.0 must lie between 0 and 1"),
        ({"delta": None, "epsilon": math.inf}, "epsilon = inf must be"),
        ({"norm_bound": 0.0}, "norm_bound = 0.0 must be"),
        ({"label_norm_bound": math.nan}, "label_norm_bound = nan must be"),
        ({"label_noise_variance": -2.0}, "label_noise_variance = -2.0 must be"),
        ({"devices_in_sum": 0}, "devices_in_sum = 0 must be 1 or more"),
        ({"devices_in_sum": -1}, "devices_in_sum = -1 must be 1 or more"),
        ({"adjacency": "swap"}, "adjacency = 'swap' must be one of"),
        (
            {"coded_samples": None, "epsilon": 0.5},
            "epsilon = 0.5 cannot be kept, as a single coded sample uses 8.7255 at delta = 1e-05: allow that much",
        ),
        (
            {"noise_variance": None, "epsilon": 1.0, "label_noise_variance": 2.0},
            "label_noise_variance = 2.0 cannot keep epsilon = 1.0, as the labels alone use .* raise it above 12.8192",
        ),
    ],
)
def test_bad_budgets_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        PrivacyAccountant(**({"coded_samples": 10, "noise_variance": 1.0, "delta": 1e-5} | changes))  # type: ignore[arg-type]
