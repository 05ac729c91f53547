from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codedfl.errors import InputError
from codedfl.incentive import (
    DeviceTraits,
    Gamma,
    QuarticLoss,
    design_contract,
    optimal_rewards,
    printed_sensitivities,
    read_devices,
    table_sensitivities,
)
from codedfl.incentive._menu import marginal_rewards
from codedfl.typing import FloatArray
from tests.incentive.losses import PowerLoss


@pytest.mark.parametrize(
    ("sensitivity", "interference", "min_noise_variance", "message"),
    [
        ([], 0.0, 0.0, r"sensitivity has shape \(0,\)"),
        (1.0, 0.0, 0.0, r"sensitivity has shape \(\)"),
        ([1.0, 0.0], 0.0, 0.0, r"sensitivity\[1\] = 0.0 must be a positive finite number"),
        ([-1.0], 0.0, 0.0, r"sensitivity\[0\] = -1.0"),
        ([float("nan")], 0.0, 0.0, r"sensitivity\[0\] = nan"),
        (["a"], 0.0, 0.0, "must be numbers"),
        ([1.0, 2.0], [1.0, 2.0, 3.0], 0.0, r"interference has shape \(3,\): give one number, or 2"),
        ([1.0, 2.0], [1.0, -2.0], 0.0, r"interference\[1\] = -2.0 must be a finite number, zero or more"),
        ([1.0, 2.0], 0.0, float("inf"), r"min_noise_variance\[0\] = inf"),
    ],
)
def test_bad_traits(
    sensitivity: npt.ArrayLike, interference: npt.ArrayLike, min_noise_variance: npt.ArrayLike, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        DeviceTraits(sensitivity, interference, min_noise_variance)


def test_traits_are_a_copy() -> None:
    mu = np.array([1.0, 2.0])
    traits = DeviceTraits(mu, 3.0)
    mu[0] = 9.0
    assert traits.sensitivity.tolist() == [1.0, 2.0]
    assert traits.interference.tolist() == [3.0, 3.0]
    assert traits.devices == 2
    with pytest.raises(ValueError, match="read-only"):
        traits.sensitivity[0] = 1.0


def test_sensitivities() -> None:
    assert printed_sensitivities(20)[[0, -1]] == pytest.approx([1.02, 1.4])
    assert table_sensitivities(20)[[0, -1]] == pytest.approx([1.0, 1.38])
    with pytest.raises(InputError, match="devices = 0"):
        table_sensitivities(0)
    with pytest.raises(InputError, match="devices = 0"):
        printed_sensitivities(0)


def test_rewards_are_the_recursion_of_theorem_3() -> None:
    rng = np.random.default_rng(0)
    mu, mi_dp_bits = np.sort(rng.uniform(1, 2, 30)), np.sort(rng.uniform(1, 9, 30))[::-1]
    rewards = optimal_rewards(mu, mi_dp_bits)
    assert rewards[-1] == mu[-1] * mi_dp_bits[-1]
    for i in range(29):
        assert rewards[i] == pytest.approx(rewards[i + 1] - mu[i] * mi_dp_bits[i + 1] + mu[i] * mi_dp_bits[i])
    assert rewards.sum() == pytest.approx(float(marginal_rewards(mu) @ mi_dp_bits))
    place = np.arange(1, 31)
    assert marginal_rewards(mu) == pytest.approx(place * mu - (place - 1) * np.append(0.0, mu[:-1]))
    with pytest.raises(InputError, match="mi_dp_bits must not increase"):
        optimal_rewards(mu, mi_dp_bits[::-1])


@pytest.mark.parametrize("gamma", [QuarticLoss(), PowerLoss(1.0), PowerLoss(2.5, 3.0)])
def test_slopes_are_derivatives(gamma: Gamma) -> None:
    at, step = np.array([0.5, 2.0, 30.0]), 1e-6
    assert gamma.slope(at) == pytest.approx((gamma.value(at + step) - gamma.value(at - step)) / (2 * step), rel=1e-6)


class Hinge:
    """No loss up to a noise variance of 100, then linear."""

    def value(self, noise_variance: FloatArray) -> FloatArray:
        return np.where(noise_variance > 100.0, 100.0 - noise_variance, 0.0)

    def slope(self, noise_variance: FloatArray) -> FloatArray:
        return np.where(noise_variance > 100.0, -1.0, 0.0)


class Indifferent:
    def value(self, noise_variance: FloatArray) -> FloatArray:
        return np.zeros_like(noise_variance)

    def slope(self, noise_variance: FloatArray) -> FloatArray:
        return np.zeros_like(noise_variance)


def test_a_utility_with_a_kink() -> None:
    contract = design_contract(DeviceTraits([1.0, 1.2]), 1e-3, 1000, Hinge())
    assert contract.noise_variance == pytest.approx([100.0, 100.0], rel=1e-12)


def test_a_utility_that_never_falls() -> None:
    with pytest.raises(InputError, match="does not fall with the noise variance"):
        design_contract(DeviceTraits([1.0, 1.2]), 1.0, 1000, Indifferent())


def test_everything_but_sensitivity_is_optional(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("sensitivity\n2\n1\n")
    names, traits = read_devices(tmp_path / "a.csv")
    assert names == ("device-1", "device-2")
    assert traits.sensitivity.tolist() == [2, 1]
    assert traits.interference.tolist() == traits.min_noise_variance.tolist() == [0, 0]


def test_columns_in_any_order(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("min_noise_variance,name,sensitivity,h2\n0.5,x,2,3\n")
    names, traits = read_devices(tmp_path / "a.csv")
    assert (names, traits.least_hidden_variance.tolist()) == (("x",), [3.5])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("name\na\n", "has no column 'sensitivity'"),
        ("sensitivity\n", "one row per device"),
        ("sensitivity,colour\n1,2\n", "'colour'"),
        ("sensitivity\nnan\n", "row 1"),
        ("sensitivity,name\n1,a\n2,a\n", "row 2: 'a' has a row already"),
        ("sensitivity,h2\n1,-1\n", "interference"),
    ],
)
def test_a_bad_file_is_refused_in_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(InputError) as caught:
        read_devices(tmp_path / "a.csv")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=60) | st.text(max_size=60).map(lambda text: f"sensitivity\n{text}".encode()))
def test_whatever_is_in_the_file_is_devices_or_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    try:
        names, traits = read_devices(tmp_path / "a.csv")
    except InputError:
        return
    assert len(names) == traits.devices > 0
