from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.errors import InputError
from codedfl.incentive import (
    Contract,
    DeviceTraits,
    Menu,
    contract_for_reward,
    design_contract,
    printed_sensitivities,
    table_sensitivities,
)
from codedfl.incentive._contract import most_payable
from codedfl.privacy import mi_dp_bits, noise_variance_for_mi_dp
from codedfl.typing import FloatArray
from tests.incentive.losses import PowerLoss

TABLE_LAMBDA = {1.8e5: 5878, 8e4: 3937, 5e4: 3119, 9e3: 1329, 3.9e3: 876, 1e3: 444}


def random_traits(seed: int, devices: int, tied: bool = False) -> DeviceTraits:
    rng = np.random.default_rng(seed)
    mu = rng.integers(1, 6, devices) / 2 if tied else rng.uniform(0.2, 5.0, devices)
    return DeviceTraits(mu, 100 * rng.exponential(1.0, devices), 50 * rng.exponential(1.0, devices))


@pytest.mark.parametrize("reward_weight", TABLE_LAMBDA)
def test_table_lambda(reward_weight: float) -> None:
    contract = design_contract(DeviceTraits(table_sensitivities(20)), reward_weight)
    assert int(contract.total_noise_variance) == TABLE_LAMBDA[reward_weight]
    assert contract.menu.items == 20
    assert contract.verify().holds
    printed = design_contract(DeviceTraits(printed_sensitivities(20)), reward_weight)
    assert printed.total_noise_variance == pytest.approx(1.0075 * contract.total_noise_variance, rel=1e-3)


def test_total_rewards_of_table_lambda() -> None:
    """What the lambdas of the table really pay; it prints 70, 80, 90, 100, 110, 120."""
    paid = [design_contract(DeviceTraits(table_sensitivities(20)), weight).total_reward for weight in TABLE_LAMBDA]
    assert paid == pytest.approx([70.5947, 78.3806, 82.9376, 99.7397, 107.9960, 121.4788], abs=1e-4)


def test_budgets_and_noise_agree_with_theorem_2() -> None:
    contract = design_contract(random_traits(1, 40), 1e4, 500)
    for device in range(40):
        h2 = float(contract.traits.interference[device])
        noise, bits = float(contract.noise_variance[device]), float(contract.mi_dp_bits[device])
        assert bits == pytest.approx(mi_dp_bits(500, noise, h2), rel=1e-12)
        assert noise == pytest.approx(noise_variance_for_mi_dp(bits, 500, h2), rel=1e-9)
    assert (contract.noise_variance >= contract.traits.min_noise_variance * (1 - 1e-12)).all()


@given(
    seed=st.integers(0, 2**32),
    devices=st.integers(1, 500),
    tied=st.booleans(),
    log_weight=st.floats(-10, 30),
    coded_samples=st.integers(1, 100_000),
    power=st.floats(1, 4),
)
def test_no_device_gains_by_another_item_or_by_leaving(
    seed: int, devices: int, tied: bool, log_weight: float, coded_samples: int, power: float
) -> None:
    traits = random_traits(seed, devices, tied)
    contract = design_contract(traits, float(np.exp(log_weight)), coded_samples, PowerLoss(power))
    mu = traits.sensitivity
    scale = contract.reward.max()
    assert contract.utility.min() >= -1e-12 * scale
    taken = contract.reward - mu[:, None] * contract.mi_dp_bits
    assert (taken - contract.utility[:, None]).max() <= 1e-12 * scale * devices
    assert contract.utility[np.argmax(mu)] == pytest.approx(0, abs=1e-12 * scale)
    assert (contract.mi_dp_bits > 0).all()
    assert (contract.reward > 0).all()
    checks = contract.verify()
    assert checks.all_pairs
    assert checks.holds, checks
    assert contract.verify(all_pairs_up_to=0).holds


@given(seed=st.integers(0, 2**32), devices=st.integers(1, 80), tied=st.booleans())
def test_the_order_of_devices_does_not_matter(seed: int, devices: int, tied: bool) -> None:
    traits = random_traits(seed, devices, tied)
    contract = design_contract(traits, 2e4, 300)
    shuffle = np.random.default_rng(seed).permutation(devices)
    shuffled = DeviceTraits(
        traits.sensitivity[shuffle], traits.interference[shuffle], traits.min_noise_variance[shuffle]
    )
    other = design_contract(shuffled, 2e4, 300)
    assert other.mi_dp_bits == pytest.approx(contract.mi_dp_bits[shuffle], rel=1e-11)
    assert other.reward == pytest.approx(contract.reward[shuffle], rel=1e-11)
    assert other.noise_variance == pytest.approx(contract.noise_variance[shuffle], rel=1e-8)


def test_units_do_not_matter() -> None:
    traits = random_traits(3, 50)
    contract = design_contract(traits, 1e4, 1000)
    dearer = DeviceTraits(7 * traits.sensitivity, traits.interference, traits.min_noise_variance)
    other = design_contract(dearer, 1e4 / 7, 1000)
    assert other.mi_dp_bits == pytest.approx(contract.mi_dp_bits, rel=1e-11)
    assert other.reward == pytest.approx(7 * contract.reward, rel=1e-11)
    louder = DeviceTraits(traits.sensitivity, 9 * traits.interference, 9 * traits.min_noise_variance)
    other = design_contract(louder, 81 * 1e4, 9000)
    assert other.mi_dp_bits == pytest.approx(contract.mi_dp_bits, rel=1e-11)
    assert other.noise_variance == pytest.approx(9 * contract.noise_variance, rel=1e-9)


def test_identical_devices_get_identical_items() -> None:
    contract = design_contract(DeviceTraits(np.full(7, 1.5), 4.0), 100.0, 50)
    assert contract.menu.items == 1
    assert contract.utility == pytest.approx(np.zeros(7), abs=1e-14)


def test_a_smaller_weight_pays_more_and_buys_less_noise() -> None:
    traits = random_traits(5, 30)
    contracts = [design_contract(traits, weight, 1000) for weight in (1e4, 1e5, 1e6, 1e7)]
    assert (np.diff([contract.total_reward for contract in contracts]) < 0).all()
    assert (np.diff([contract.total_noise_variance for contract in contracts]) > 0).all()


@pytest.mark.parametrize("reward_weight", [1e-90, 1e-20, 1e90])
@pytest.mark.parametrize("interference", [0.0, 100.0])
def test_extreme_weights(reward_weight: float, interference: float) -> None:
    contract = design_contract(DeviceTraits(table_sensitivities(20), interference), reward_weight)
    assert contract.verify().holds


def test_a_hundred_thousand_devices() -> None:
    contract = design_contract(random_traits(8, 100_000), 1e4)
    checks = contract.verify()
    assert not checks.all_pairs
    assert checks.holds, checks
    assert 1 < contract.menu.items < 10_000


def spoiled(contract: Contract, **change: FloatArray) -> Contract:
    return replace(contract, **change)  # type: ignore[arg-type]


def test_verification_notices_what_is_wrong() -> None:
    contract = design_contract(random_traits(9, 60), 1e4, 500)
    assert not spoiled(contract, reward=contract.reward - 1e-3).verify().individually_rational
    first = contract.order[0]
    more = contract.reward.copy()
    more[first] += 0.1
    assert not spoiled(contract, reward=more).verify().incentive_compatible
    assert not spoiled(contract, reward=more).verify(all_pairs_up_to=0).incentive_compatible
    assert not spoiled(contract, mi_dp_bits=contract.mi_dp_bits[::-1]).verify().monotone
    for factor in (0.99, 1.01):
        checks = spoiled(contract, mi_dp_bits=factor * contract.mi_dp_bits).verify()
        assert not checks.optimal
        assert not checks.holds
    unpooled = contract.mi_dp_bits.copy()
    block = contract.order[contract.mi_dp_bits[contract.order] == contract.mi_dp_bits[contract.order[-1]]]
    unpooled[block[-1]] *= 0.999
    assert spoiled(contract, mi_dp_bits=unpooled).verify().optimality_residual > 1e-7


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf")])
def test_a_weight_that_is_not_positive(weight: float) -> None:
    with pytest.raises(InputError, match=r"reward_weight = .* must be a positive finite number"):
        design_contract(DeviceTraits([1.0]), weight)


def test_too_few_coded_samples() -> None:
    with pytest.raises(InputError, match="coded_samples = 0 must be 1 or more"):
        design_contract(DeviceTraits([1.0]), 1.0, 0)


def test_table_for_the_total_rewards_of_the_paper() -> None:
    rewards = [70.0, 80.0, 90.0, 100.0, 110.0, 120.0]
    table = [contract_for_reward(DeviceTraits(table_sensitivities(20)), reward) for reward in rewards]
    assert [row.total_reward for row in table] == pytest.approx(rewards, rel=1e-12)
    weights = np.array([row.reward_weight for row in table])
    assert weights == pytest.approx([191_601, 67_672, 24_250, 8_765, 3_185, 1_161], rel=1e-3)
    assert all(row.verify().holds for row in table)


@pytest.mark.slow
def test_the_weight_is_found_again() -> None:
    rng = np.random.default_rng(2)
    for power in (1.0, 2.0, 3.0):
        traits = DeviceTraits(rng.uniform(1, 3, 30), rng.uniform(1, 9, 30), rng.uniform(0, 9, 30))
        contract = design_contract(traits, 1e4, 200, PowerLoss(power))
        again = contract_for_reward(traits, contract.total_reward, 200, PowerLoss(power))
        assert again.reward_weight == pytest.approx(1e4, rel=1e-9)
        assert again.mi_dp_bits == pytest.approx(contract.mi_dp_bits, rel=1e-9)


@pytest.mark.parametrize("share", [1e-12, 1e-3, 0.5, 0.999, 1.0])
def test_every_payable_reward_is_paid(share: float) -> None:
    traits = DeviceTraits([2.0, 1.0, 1.0, 3.0], [4.0, 1.0, 9.0, 0.0], [1.0, 0.0, 2.0, 0.0])
    most = most_payable(traits, 100)
    contract = contract_for_reward(traits, share * most, 100)
    assert contract.total_reward == pytest.approx(share * most, rel=1e-12)
    assert contract.verify().holds


def test_all_caps_bind_at_the_most_payable() -> None:
    traits = DeviceTraits([1.0, 1.1], min_noise_variance=[5.0, 6.0])
    contract = contract_for_reward(traits, most_payable(traits, 100), 100)
    assert contract.noise_variance == pytest.approx([5.0, 6.0])


@pytest.mark.parametrize("reward", [0.0, -5.0, 1e4, float("nan"), float("inf")])
def test_a_reward_that_cannot_be_paid(reward: float) -> None:
    traits = DeviceTraits([1.0, 1.1], min_noise_variance=5.0)
    with pytest.raises(InputError, match=r"total_reward = .* cannot be paid .* give more than 0 and at most 4\.83"):
        contract_for_reward(traits, reward, 100)


def test_a_reward_out_of_reach_without_caps() -> None:
    traits = DeviceTraits([1.0, 1.1])
    assert most_payable(traits) == np.inf
    with pytest.raises(InputError, match="give more than 0 and at most"):
        contract_for_reward(traits, 1e6)
    with pytest.raises(InputError, match="give more than 0 and finite"):
        contract_for_reward(traits, -1.0)
    with pytest.raises(InputError, match=r"give more than .*e-\d+ and finite"):
        contract_for_reward(traits, 1e-200)


def test_every_device_picks_its_own_item() -> None:
    rng = np.random.default_rng(6)
    contract = design_contract(DeviceTraits(rng.uniform(1, 2, 60), rng.uniform(0, 200, 60)), 1e4, 1000)
    menu = contract.menu
    assert 1 < menu.items < 60
    assert (np.diff(menu.mi_dp_bits) < 0).all()
    assert (np.diff(menu.reward) < 0).all()
    for mu, bits, reward in zip(contract.sensitivity, contract.mi_dp_bits, contract.reward, strict=True):
        item = contract.choose(float(mu))
        assert item is not None
        assert menu.mi_dp_bits[item] == pytest.approx(bits, rel=1e-11)
        assert menu.reward[item] == pytest.approx(reward, rel=1e-11)


def test_devices_that_the_contract_was_not_written_for() -> None:
    contract = design_contract(DeviceTraits([1.0, 1.2, 1.4]), 9e3)
    assert [contract.choose(mu) for mu in (0.01, 1.0, 1.1, 1.3, 1.4, 1.41, 50.0)] == [0, 0, 1, 2, 2, None, None]
    menu = contract.menu
    assert menu.choose(1.0, largest_mi_dp_bits=float(menu.mi_dp_bits[1])) == 1
    assert menu.choose(1.0, largest_mi_dp_bits=0.1) is None
    with pytest.raises(InputError, match="sensitivity = 0"):
        menu.choose(0.0)


def test_menu_of_one_item() -> None:
    assert Menu(np.array([2.0]), np.array([3.0])).choose(1.5) == 0
