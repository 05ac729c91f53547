"""Extreme but finite numbers lead to an answer that holds or to one sentence: no traceback, warning or NaN."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from codedfl.errors import InputError
from codedfl.incentive import (
    Contract,
    DeviceTraits,
    StackelbergOutcome,
    contract_for_reward,
    design_contract,
    stackelberg_for_reward,
    stackelberg_for_weight,
)
from tests.support import mostly_slow

Mechanism = Callable[[DeviceTraits, float, int], Contract | StackelbergOutcome]

MECHANISMS: dict[str, Mechanism] = {
    "contract for lambda": design_contract,
    "contract for a reward": contract_for_reward,
    "game for a reward": stackelberg_for_reward,
    "game for a reward, without caps": lambda *given: stackelberg_for_reward(*given, caps=False),
    "game for lambda": stackelberg_for_weight,
    "game for lambda, the paper's leader": lambda *given: stackelberg_for_weight(*given, leader="paper", caps=False),
}

sizes = st.floats(-300, 300).map(lambda exponent: 10.0**exponent) | st.floats(1e-3, 1e3)
inner_sizes = st.floats(-100, 100).map(lambda exponent: 10.0**exponent) | st.floats(1e-3, 1e3)


@st.composite
def devices(draw: st.DrawFn) -> tuple[list[float], list[float], list[float]]:
    count = draw(st.integers(1, 5))
    base = draw(inner_sizes)
    alike = st.lists(st.floats(1, 3).map(lambda factor: min(factor * base, 1e100)), min_size=count, max_size=count)
    variances = st.lists(inner_sizes | st.just(0.0), min_size=count, max_size=count)
    return draw(alike | st.lists(sizes, min_size=count, max_size=count)), draw(variances), draw(variances)


def answer(
    mechanism: str, traits: tuple[list[float], list[float], list[float]], amount: float, coded_samples: int
) -> tuple[Contract | StackelbergOutcome | None, str]:
    try:
        return MECHANISMS[mechanism](DeviceTraits(*traits), amount, coded_samples), ""
    except InputError as error:
        return None, str(error)


@pytest.mark.parametrize("mechanism", mostly_slow(MECHANISMS, *list(MECHANISMS)[:2]))
@given(traits=devices(), amount=sizes, coded_samples=st.sampled_from([1, 10_000, 10**9]))
@example(traits=([42.497, 26.377, 31.178], [0.0] * 3, [3.262456877040422e16] * 3), amount=2.0e9, coded_samples=10**9)
@example(traits=([3.9e199, 0.027], [0.0] * 2, [0.0] * 2), amount=1.0, coded_samples=10)
@example(traits=([3.9e99, 0.027], [0.0] * 2, [0.0] * 2), amount=1.0, coded_samples=10)
@example(traits=([4.2e20, 2.9e20], [0.0] * 2, [0.0] * 2), amount=8.6e-276, coded_samples=10**9)
@example(traits=([4e-85, 3e-85], [1.6e-6, 1.9e97], [1.1e-36] * 2), amount=1e251, coded_samples=1)
@example(traits=([1.0, 1e12, 1.0], [0.0] * 3, [1.0, 1.0, 1e13]), amount=1e11, coded_samples=1)
def test_an_answer_that_holds_or_one_sentence(
    mechanism: str, traits: tuple[list[float], list[float], list[float]], amount: float, coded_samples: int
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result, refusal = answer(mechanism, traits, amount, coded_samples)
        if result is None:
            assert "\n" not in refusal
            assert len(refusal) < 300
            return
        assert result.verify().holds
        assert math.isfinite(result.total_reward)
        assert math.isfinite(result.total_noise_variance)
        assert result.server_utility is None or math.isfinite(result.server_utility)
        for values in (result.mi_dp_bits, result.reward, result.utility):
            assert np.isfinite(values).all()
        assert not np.isnan(result.noise_variance).any()
        if isinstance(result, Contract):
            assert result.choose(1e300) is None
            assert result.choose(1e-300) == 0


def test_a_cap_that_binds_by_rounding_alone() -> None:
    outcome = stackelberg_for_weight(
        DeviceTraits([42.49710165635462, 26.37665763874855, 31.17818950853766], 0.0, 3.262456877040422e16),
        2024970145.778841,
        10**9,
    )
    assert outcome.verify().holds
