"""Incentives: rewards for devices that add less noise (Sec. V).

Example:
    >>> from codedfl.incentive import DeviceTraits, contract_for_reward, table_sensitivities
    >>> contract = contract_for_reward(DeviceTraits(table_sensitivities(20)), total_reward=100.0, coded_samples=10_000)
    >>> round(contract.total_noise_variance), contract.verify().holds
    (1312, True)
"""

from codedfl.incentive._contract import Contract, contract_for_reward, design_contract
from codedfl.incentive._game import StackelbergCheck, StackelbergOutcome
from codedfl.incentive._menu import Menu, optimal_rewards
from codedfl.incentive._stackelberg import Leader, stackelberg_for_reward, stackelberg_for_weight
from codedfl.incentive._traits import DeviceTraits, printed_sensitivities, read_devices, table_sensitivities
from codedfl.incentive._utility import Gamma, QuarticLoss
from codedfl.incentive._verification import Verification

__all__ = [
    "Contract",
    "DeviceTraits",
    "Gamma",
    "Leader",
    "Menu",
    "QuarticLoss",
    "StackelbergCheck",
    "StackelbergOutcome",
    "Verification",
    "contract_for_reward",
    "design_contract",
    "optimal_rewards",
    "printed_sensitivities",
    "read_devices",
    "stackelberg_for_reward",
    "stackelberg_for_weight",
    "table_sensitivities",
]
