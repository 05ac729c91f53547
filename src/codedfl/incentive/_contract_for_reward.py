"""The contract that pays a given total reward."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq

from codedfl._validation import require_at_least
from codedfl.errors import InputError
from codedfl.incentive._contract import Contract, design_contract
from codedfl.incentive._gamma import Gamma
from codedfl.incentive._leakage import mi_dp_bits_of
from codedfl.incentive._menu import marginal_rewards
from codedfl.incentive._traits import DeviceTraits, representable, require_representable

_FARTHEST_LOG_WEIGHT = 230.0  # lambda within 1e-100 .. 1e100


def most_payable(traits: DeviceTraits, coded_samples: int = 10_000) -> float:
    """Return the total reward when every device is at its largest budget, the limit for small ``lambda``.

    It is infinite if the least sensitive device has neither interference nor a least noise variance, because its budget then
    has no cap. Devices of equal sensitivity are sorted by their caps, largest first.

    Example:
        >>> most_payable(DeviceTraits([1.0, 2.0], min_noise_variance=1.0), coded_samples=3)
        4.0
        >>> most_payable(DeviceTraits([1.0, 2.0]))
        inf
    """
    require_at_least("coded_samples", coded_samples, 1)
    order = np.lexsort((traits.least_hidden_variance, traits.sensitivity))
    hidden = np.maximum.accumulate(traits.least_hidden_variance[order])
    return float((marginal_rewards(traits.sensitivity[order]) * mi_dp_bits_of(hidden, coded_samples)).sum())


def contract_for_reward(
    traits: DeviceTraits, total_reward: float, coded_samples: int = 10_000, gamma: Gamma | None = None
) -> Contract:
    """Return the contract whose rewards add up to ``total_reward``, and find the matching ``lambda``.

    The total reward decreases continuously in ``lambda``, from :func:`most_payable` towards zero.

    Args:
        traits: The devices, in any order.
        total_reward: ``sum_i r_i``, more than zero and at most what all caps allow.
        coded_samples: ``c >= 1``.
        gamma: The server's utility of a noise variance, ``-sigma^4`` by default.

    Raises:
        InputError: No contract pays that much, or that little.

    Example:
        >>> from codedfl.incentive._traits import table_sensitivities
        >>> contract = contract_for_reward(DeviceTraits(table_sensitivities(20)), total_reward=100.0)
        >>> round(contract.reward_weight), round(contract.total_reward, 6)
        (8765, 100.0)
    """
    with representable():
        return _search(traits, total_reward, coded_samples, gamma)


def _search(traits: DeviceTraits, total_reward: float, coded_samples: int, gamma: Gamma | None) -> Contract:
    most = most_payable(traits, coded_samples)
    if not (math.isfinite(total_reward) and total_reward > 0) or total_reward > most * (1 + 1e-12):
        raise _not_payable(total_reward, 0.0, most)

    def excess(log_weight: float) -> float:
        paid = design_contract(traits, math.exp(log_weight), coded_samples, gamma).total_reward
        require_representable(total_reward / paid)
        return math.log(paid / total_reward)

    start = math.log(coded_samples)
    near, far, step = start, start, 2.0
    gap = excess(start)
    direction = math.copysign(1.0, gap)
    while direction * gap > 1e-13:
        if abs(far - start) > _FARTHEST_LOG_WEIGHT:
            edge = total_reward * math.exp(gap)
            raise _not_payable(total_reward, edge, most) if direction > 0 else _not_payable(total_reward, 0.0, edge)
        near, far, step = far, far + direction * step, 2 * step
        gap = excess(far)
    if abs(gap) <= 1e-13:
        return design_contract(traits, math.exp(far), coded_samples, gamma)
    log_weight = float(brentq(excess, near, far, xtol=1e-14, rtol=1e-14))
    return design_contract(traits, math.exp(log_weight), coded_samples, gamma)


def _not_payable(total_reward: float, least: float, most: float) -> InputError:
    upper = f"at most {most:.6g}" if math.isfinite(most) else "finite"
    return InputError(
        f"total_reward = {total_reward:.6g} cannot be paid by a contract with these devices: "
        f"give more than {least:.6g} and {upper}."
    )
