"""The contract that buys noise reduction from devices (Sec. V)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.optimize import brentq

from codedfl._validation import require_at_least, require_positive
from codedfl.errors import InputError
from codedfl.incentive._menu import Menu, distinct_items, marginal_rewards, optimal_rewards
from codedfl.incentive._pooling import PooledTerms, pool, separate_maximisers
from codedfl.incentive._traits import DeviceTraits, representable, require_representable
from codedfl.incentive._utility import Gamma, QuarticLoss, mi_dp_bits_of
from codedfl.incentive._verification import Verification, verify_items
from codedfl.typing import FloatArray, IntArray, ShortRepr

_FARTHEST_LOG_WEIGHT = 230.0  # lambda within 1e-100 .. 1e100


@dataclass(frozen=True, eq=False, repr=False)
class Contract(ShortRepr):
    """One item ``(bits_i, r_i)`` per device, in the caller's order.

    Args:
        traits: The devices that it was designed for.
        coded_samples: ``c``.
        reward_weight: ``lambda``, what a unit of reward costs the server in units of ``gamma``.
        gamma: The server's utility of a device's noise variance.
        order: The devices from the least to the most sensitive.
        mi_dp_bits: ``bits_i``, the MI-DP of each device in bits (``epsilon_i`` in the paper).
        noise_variance: ``sigma_i^2 = q_i^-1(bits_i)``.
        reward: ``r_i``.
    """

    traits: DeviceTraits
    coded_samples: int
    reward_weight: float
    gamma: Gamma
    order: IntArray
    mi_dp_bits: FloatArray
    noise_variance: FloatArray
    reward: FloatArray

    participants: ClassVar[None] = None
    """Which devices take part; None for all of them, as every device picks an item."""

    @property
    def sensitivity(self) -> FloatArray:
        """``mu_i`` of each device."""
        return self.traits.sensitivity

    @property
    def utility(self) -> FloatArray:
        """``U_i = r_i - mu_i bits_i`` of each device."""
        return self.reward - self.sensitivity * self.mi_dp_bits

    @property
    def total_reward(self) -> float:
        """``sum_i r_i``."""
        return float(self.reward.sum())

    @property
    def total_noise_variance(self) -> float:
        """``sum_i sigma_i^2``, the noise variance of the global coded dataset."""
        return float(self.noise_variance.sum())

    @property
    def server_utility(self) -> float:
        """``U_S = sum_i Gamma(sigma_i^2) - lambda sum_i r_i``."""
        return float(self.gamma.value(self.noise_variance).sum()) - self.reward_weight * self.total_reward

    @property
    def menu(self) -> Menu:
        """The distinct items, from the largest budget to the least."""
        return distinct_items(self.mi_dp_bits, self.reward)

    def choose(self, sensitivity: float) -> int | None:
        """Return the index in :attr:`menu` of the item that a device of any sensitivity picks; None if it picks none."""
        return self.menu.choose(sensitivity)

    def verify(self, all_pairs_up_to: int = 4000) -> Verification:
        """Check the contract from its items alone, independently of the solver.

        Args:
            all_pairs_up_to: Compare each device with every item up to this many devices. Beyond that, compare it only
                with the items of its neighbours in sensitivity: for monotone items, that implies the rest.
        """
        order = self.order
        return verify_items(
            PooledTerms(
                self.reward_weight * marginal_rewards(self.sensitivity[order]),
                self.traits.interference[order],
                self.coded_samples,
                self.gamma,
            ),
            sensitivity=self.sensitivity[order],
            least_hidden_variance=self.traits.least_hidden_variance[order],
            mi_dp_bits=self.mi_dp_bits[order],
            reward=self.reward[order],
            all_pairs=self.traits.devices <= all_pairs_up_to,
        )


def design_contract(
    traits: DeviceTraits, reward_weight: float, coded_samples: int = 10_000, gamma: Gamma | None = None
) -> Contract:
    """Return the best contract for the server among those that devices accept and answer truthfully.

    Problem (P1): maximise ``sum_i Gamma(sigma_i^2) - lambda sum_i r_i`` subject to no device doing better with
    another's item (IC) or with none (IR), with budgets ``0 < bits_i <= q_i(sigma_min,i^2)``. Given the rewards of
    Theorem 3 it is (P2), solved exactly by pooling. A smaller ``lambda`` pays more. Devices of equal sensitivity may
    have budgets in any order; the best order is that of their individually optimal budgets.

    Args:
        traits: The devices, in any order.
        reward_weight: ``lambda > 0``.
        coded_samples: ``c >= 1``.
        gamma: The server's utility of a noise variance, ``-sigma^4`` by default.

    Returns:
        The contract, in the order of ``traits``.

    Raises:
        InputError: ``reward_weight`` is not positive, ``coded_samples`` is below 1, or ``gamma`` never falls.

    Example:
        >>> contract = design_contract(DeviceTraits([1.2, 1.0, 1.1]), reward_weight=9000.0)
        >>> contract.noise_variance.round(2).tolist()
        [67.19, 56.81, 62.22]
        >>> contract.verify().holds
        True
    """
    require_positive("reward_weight", reward_weight)
    require_at_least("coded_samples", coded_samples, 1)
    chosen: Gamma = QuarticLoss() if gamma is None else gamma
    with representable():
        contract = _design(traits, reward_weight, coded_samples, chosen)
        require_representable(
            contract.noise_variance, contract.reward, 1 / contract.mi_dp_bits, contract.server_utility
        )
    return contract


def _design(traits: DeviceTraits, reward_weight: float, coded_samples: int, gamma: Gamma) -> Contract:
    order = _chain(traits, reward_weight, coded_samples, gamma)
    sensitivity, interference = traits.sensitivity[order], traits.interference[order]
    price = reward_weight * marginal_rewards(sensitivity)
    terms = PooledTerms(price, interference, coded_samples, gamma)
    hidden = pool(terms, separate_maximisers(terms), traits.least_hidden_variance[order])
    mi_dp_bits = mi_dp_bits_of(hidden, coded_samples)
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    return Contract(
        traits=traits,
        coded_samples=coded_samples,
        reward_weight=reward_weight,
        gamma=gamma,
        order=order,
        mi_dp_bits=mi_dp_bits[place],
        noise_variance=(hidden - interference)[place],
        reward=optimal_rewards(sensitivity, mi_dp_bits)[place],
    )


def _chain(traits: DeviceTraits, reward_weight: float, coded_samples: int, gamma: Gamma) -> IntArray:
    """Return the order of the devices by sensitivity, with ties broken by the individually optimal variance."""
    order = np.argsort(traits.sensitivity, kind="stable")
    if (np.diff(traits.sensitivity[order]) > 0).all():
        return order
    terms = PooledTerms(reward_weight * traits.sensitivity, traits.interference, coded_samples, gamma)
    alone = np.maximum(separate_maximisers(terms), traits.least_hidden_variance)
    return np.lexsort((alone, traits.sensitivity))


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
        >>> from codedfl.incentive import table_sensitivities
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
