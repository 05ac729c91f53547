from __future__ import annotations

import numpy as np
import pytest

from codedfl.errors import InputError
from codedfl.incentive._contract import design_contract
from codedfl.incentive._contract_for_reward import contract_for_reward, most_payable
from codedfl.incentive._menu import Menu
from codedfl.incentive._traits import DeviceTraits, table_sensitivities
from tests.incentive.losses import PowerLoss


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
    for mu, mi_dp_bits, reward in zip(contract.sensitivity, contract.mi_dp_bits, contract.reward, strict=True):
        item = contract.choose(float(mu))
        assert item is not None
        assert menu.mi_dp_bits[item] == pytest.approx(mi_dp_bits, rel=1e-11)
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
