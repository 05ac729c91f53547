"""Extreme but finite input: a right answer or one sentence; never a traceback, a warning (they are errors here) or NaN."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from codedfl.errors import InputError
from codedfl.privacy import (
    Adjacency,
    AuditedUpload,
    PrivacyAccountant,
    audit_device,
    epsilon_from_renyi,
    exact_epsilon,
    log_delta,
    mi_dp_bits,
    noise_variance_for_mi_dp,
    renyi_divergence,
    useful_orders,
)
from codedfl.privacy._coded import largest_signal_to_noise
from codedfl.privacy._inputs import MOST

ADJACENCIES = st.sampled_from(["add-remove", "remove", "add", "replace"])
MAGNITUDES = st.floats(-300, 300).map(lambda exponent: 10.0**exponent)
COUNTS = st.one_of(st.integers(1, 10**4), st.integers(0, 40).map(lambda bits: 2**bits))
DELTAS = st.one_of(st.floats(-300, -0.1).map(lambda exponent: 10.0**exponent), st.just(0.999999))


@pytest.mark.slow
@given(
    numbers=st.fixed_dictionaries(
        {"coded_samples": COUNTS, "noise_variance": MAGNITUDES, "epsilon": MAGNITUDES, "delta": DELTAS}
    ),
    missing=st.sampled_from(["coded_samples", "noise_variance", "epsilon", "delta"]),
    norm_bound=MAGNITUDES,
    label_noise_variance=st.one_of(st.none(), MAGNITUDES),
    adjacency=ADJACENCIES,
    devices_in_sum=st.sampled_from([None, 20, MOST]),
)
def test_the_accountant_answers_or_refuses(numbers: dict[str, Any], missing: str, **rest: Any) -> None:
    numbers[missing] = None
    refusal = ""
    try:
        budget = PrivacyAccountant(**numbers, **rest)
        values = [*budget.as_dict().values(), budget.epsilon_from_renyi, *budget.renyi([1.0, 2.0])]
    except InputError as error:
        refusal = str(error)
    if refusal:
        assert refusal.endswith(".")
        assert len(refusal) < 250
        return
    assert not any(isinstance(value, float) and math.isnan(value) for value in values)
    assert budget.epsilon >= 0
    assert 0 <= budget.delta <= 1
    assert budget.noise_variance > 0
    assert budget.coded_samples >= 1


@given(epsilon=MAGNITUDES, factor=st.floats(1.001, 1e6), c=COUNTS, ratio=MAGNITUDES, adjacency=ADJACENCIES)
def test_delta_falls_with_epsilon_and_grows_with_the_ratio(
    epsilon: float, factor: float, c: int, ratio: float, adjacency: Adjacency
) -> None:
    value = log_delta(epsilon, c, ratio, adjacency)
    slack = 1e-9 * max(1.0, abs(value)) if value > -math.inf else 0.0
    assert value <= 0
    assert log_delta(epsilon * factor, c, ratio, adjacency) <= value + slack
    assert log_delta(epsilon, c, ratio * factor, adjacency) >= value - slack


@pytest.mark.slow
@given(delta=DELTAS, c=COUNTS, ratio=st.floats(-280, 180).map(lambda e: 10.0**e), adjacency=ADJACENCIES)
def test_the_exact_epsilon_leads_back_to_its_ratio(delta: float, c: int, ratio: float, adjacency: Adjacency) -> None:
    epsilon = exact_epsilon(delta, c, ratio, adjacency)
    if epsilon > 1e-9 * min(1.0, ratio * math.sqrt(c)):  # below, epsilon hardly depends on the ratio
        above, below = (log_delta(epsilon * factor, c, ratio, adjacency) for factor in (1 - 1e-9, 1 + 1e-9))
        assert below - 1e-9 <= math.log(delta) <= above + 1e-9
        assert largest_signal_to_noise(epsilon, delta, c, adjacency) == pytest.approx(ratio, rel=1e-6)


@pytest.mark.parametrize("c", [1, 7, 10_000, 10**9])
@pytest.mark.parametrize("ratio", [1e6, 1e20, 1e100, 1e190])
def test_epsilon_with_hardly_any_noise_is_a_quantile_of_the_loss(c: int, ratio: float) -> None:
    """``loss = r/2 chi2_c - c/2 ln(1 + r)``, and ``e^-loss`` no longer counts."""
    for delta in (1e-5, 0.5, 0.9):
        expected = ratio / 2 * stats.chi2.isf(delta, c) - c / 2 * math.log1p(ratio)
        assert exact_epsilon(delta, c, ratio) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("ratio", [1e-12, 1e-100, 1e-280])
def test_epsilon_scales_with_a_small_ratio(ratio: float) -> None:
    """To first order the loss is ``r`` times a chi-square, so that epsilon at ``delta = r x`` is proportional to ``r``."""
    for c in (1, 1000):
        expected = exact_epsilon(1e-9 * 1e-2, c, 1e-9) / 1e-9
        assert exact_epsilon(ratio * 1e-2, c, ratio) / ratio == pytest.approx(expected, rel=1e-6)


def test_values_beyond_the_range_of_a_float_are_infinite_or_zero() -> None:
    assert exact_epsilon(1e-5, 1, 1e300) == math.inf
    assert exact_epsilon(0.5, 10, 5e-324) == 0
    assert log_delta(1e300, MOST, 1e-300) == -math.inf
    assert largest_signal_to_noise(1e6, 1e-5, 1, "add") == 1e200
    assert PrivacyAccountant(coded_samples=3, noise_variance=1e300, epsilon=1.0, norm_bound=1e-150).delta == 0
    assert PrivacyAccountant(coded_samples=3, noise_variance=1e-300, delta=0.1, norm_bound=1e150).epsilon == math.inf


@given(c=COUNTS, variance=MAGNITUDES, interference=MAGNITUDES)
def test_bits_and_noise_of_any_size(c: int, variance: float, interference: float) -> None:
    bits = mi_dp_bits(c, variance, interference)
    assert 0 < bits < 1100
    assert mi_dp_bits(c, noise_variance_for_mi_dp(mi_dp_bits(c, variance), c)) == pytest.approx(
        mi_dp_bits(c, variance), rel=1e-9
    )


@pytest.mark.parametrize("bits", [1e-300, 1e4, 1e300])
def test_a_noise_variance_beyond_the_range_of_a_float_is_refused(bits: float) -> None:
    with pytest.raises(InputError, match=r"needs a noise variance of (inf|0) to the precision of a number"):
        noise_variance_for_mi_dp(bits, MOST)


@given(c=COUNTS, ratio=MAGNITUDES, order=MAGNITUDES, delta=DELTAS, adjacency=ADJACENCIES)
def test_renyi_of_any_size(c: int, ratio: float, order: float, delta: float, adjacency: Adjacency) -> None:
    assert renyi_divergence([1.0, 1.0 + order], c, ratio, adjacency).min() >= 0
    orders = useful_orders(ratio)
    assert epsilon_from_renyi(orders, renyi_divergence(orders, c, ratio, adjacency), delta) >= 0


@pytest.mark.parametrize(("scale", "noise"), [(1.0, 1e300), (1.0, 1e-300), (1e200, 1.0), (1e-200, 1.0), (1e-200, 0.0)])
def test_an_audit_of_extreme_data_answers_or_refuses(scale: float, noise: float) -> None:
    X, Y = scale * np.random.default_rng(0).uniform(-1, 1, (30, 4)), np.eye(2)[[0, 1] * 15]
    upload = AuditedUpload(50, noise, noise, None, noise, noise)
    refusal = ""
    try:
        audit = audit_device("phone", X, Y, upload, classification=True, rng=np.random.default_rng(1))
        values = [
            audit.epsilon,
            audit.epsilon_features,
            audit.mi_dp.printed,
            audit.mi_dp.corrected,
            audit.mi_dp.universal,
        ]
    except InputError as error:
        refusal = str(error)
    if refusal:
        assert "1e" in refusal
        assert len(refusal) < 200
    else:
        assert min(values) >= 0


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"delta": None, "epsilon": 0.0}, "epsilon = 0.0 must be a positive finite number."),
        ({"delta": None, "epsilon": 0}, "epsilon = 0 must be a positive finite number."),
        ({"coded_samples": True}, "coded_samples = True must be a whole number, 1 or more."),
        ({"devices_in_sum": True}, "devices_in_sum = True must be a whole number, 1 or more."),
        ({"noise_variance": True}, "noise_variance = True must be a number."),
        ({"noise_variance": np.True_}, "noise_variance = np.True_ must be a number."),
        ({"label_noise_variance": False}, "label_noise_variance = False must be a number."),
        ({"norm_bound": True}, "norm_bound = True must be a number."),
        ({"delta": True}, "delta = True must be a number."),
        ({"noise_variance": "1"}, "noise_variance = '1' must be a number."),
        ({"coded_samples": 2.5}, "coded_samples = 2.5 must be a whole number, 1 or more."),
        ({"coded_samples": 10**300}, f"coded_samples = 1e+300 must lie between 1 and {MOST}."),
        ({"coded_samples": -(10**5000)}, f"coded_samples = -1e+5000 must lie between 1 and {MOST}."),
        ({"devices_in_sum": MOST + 1}, f"devices_in_sum = {MOST + 1} must lie between 1 and {MOST}."),
        ({"noise_variance": 10**5000}, "noise_variance = 1e+5000 must be a number of magnitude 1e+300 or less."),
        ({"norm_bound": 1e200}, "norm_bound = 1e+200 must lie between 1e-150 and 1e+150: rescale the data."),
        (
            {"label_norm_bound": 1e-200},
            "label_norm_bound = 1e-200 must lie between 1e-150 and 1e+150: rescale the data.",
        ),
    ],
)
def test_meaningless_numbers_are_refused_in_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    arguments: dict[str, Any] = {"coded_samples": 10, "noise_variance": 1.0, "delta": 1e-5, **changes}
    with pytest.raises(InputError) as caught:
        PrivacyAccountant(**arguments)
    assert str(caught.value) == sentence


def test_budgets_in_closed_form_allow_more_coded_samples() -> None:
    assert mi_dp_bits(10**300, 1e-300) == pytest.approx(300 / math.log10(2), rel=1e-12)
    with pytest.raises(InputError, match=r"^coded_samples = 1e\+400 must lie between 1 and 1e\+300\.$"):
        mi_dp_bits(10**400, 1.0)


def test_messages_do_not_repeat_long_input() -> None:
    arguments: dict[str, Any] = {"coded_samples": 10, "noise_variance": 1.0, "delta": 1e-5}
    for changes in ({"adjacency": "x" * 10_000}, {"noise_variance": "9" * 10_000}):
        with pytest.raises(InputError) as caught:
            PrivacyAccountant(**arguments | changes)
        assert len(str(caught.value)) < 200
    with pytest.raises(InputError) as caught:
        renyi_divergence([0.5] * 10_000, 10, 1.0)
    assert len(str(caught.value)) < 200
