"""Incentives: what devices are paid to give up noise (Sec. V).

Example:
    >>> from codedfl.incentive import DeviceTraits, contract_for_budget, table_sensitivities
    >>> contract = contract_for_budget(DeviceTraits(table_sensitivities(20)), total_reward=100.0, coded_samples=10_000)
    >>> round(contract.total_noise_variance), contract.verify().holds
    (1312, True)
"""

from codedfl.incentive._budget import contract_for_budget, most_payable, reward_table
from codedfl.incentive._contract import Contract, design_contract
from codedfl.incentive._device_file import read_devices
from codedfl.incentive._gamma import Gamma, PowerLoss, QuarticLoss
from codedfl.incentive._menu import Menu
from codedfl.incentive._rewards import optimal_rewards
from codedfl.incentive._sensitivities import printed_sensitivities, table_sensitivities
from codedfl.incentive._stackelberg import Leader, stackelberg_for_lambda, stackelberg_for_reward
from codedfl.incentive._stackelberg_outcome import StackelbergCheck, StackelbergOutcome
from codedfl.incentive._traits import DeviceTraits
from codedfl.incentive._verification import Verification

__all__ = [
    "Contract",
    "DeviceTraits",
    "Gamma",
    "Leader",
    "Menu",
    "PowerLoss",
    "QuarticLoss",
    "StackelbergCheck",
    "StackelbergOutcome",
    "Verification",
    "contract_for_budget",
    "design_contract",
    "most_payable",
    "optimal_rewards",
    "printed_sensitivities",
    "read_devices",
    "reward_table",
    "stackelberg_for_lambda",
    "stackelberg_for_reward",
    "table_sensitivities",
]
