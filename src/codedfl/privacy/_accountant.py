"""The accountant: a privacy budget of a coded upload that fills in what is missing from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

from codedfl._validation import require_at_least
from codedfl.privacy._adjacency import Adjacency, require_adjacency
from codedfl.privacy._budget import solve_budget
from codedfl.privacy._exposure import Exposure
from codedfl.privacy._mi_dp import mi_dp_bits
from codedfl.privacy._renyi import epsilon_from_renyi, renyi_divergence, useful_orders
from codedfl.typing import FloatArray

_NEIGHBOURS = {
    "add-remove": "one sample more or less",
    "remove": "one sample less",
    "add": "one sample more",
    "replace": "another value of one sample",
}


@dataclass(frozen=True, init=False)
class PrivacyAccountant:
    """A worst-case (epsilon, delta) guarantee for one coded upload. Give three of the first four; the missing one is solved for.

    The guarantee holds for every dataset whose samples have norm ``B`` or less, so clip them to it before encoding. It is
    exact: some dataset needs all of epsilon (for "replace", one with at least two columns). It covers the coded upload alone,
    made once; the updates that devices send during training leak on top of it.

    Args:
        coded_samples: ``c``; if missing, the largest that keeps the budget.
        noise_variance: ``sigma^2`` of one device; if missing, the least that keeps the budget.
        epsilon: In nats; if missing, exact.
        delta: If missing, exact.
        norm_bound: ``B``, of a sample's features.
        label_noise_variance: ``sigma_Y^2`` of one device on coded labels, which are then covered together with the features.
            None covers the features alone, and only as long as no label is coded with the same projection; 0 is an upload of
            labels without noise.
        label_norm_bound: ``B_Y``, of a sample's labels; 1 for one-hot labels.
        adjacency: Which datasets are neighbours.
        devices_in_sum: None if the server sees each upload. If it sees only the sum of uploads (secure aggregation), how many
            devices add noise that it cannot take out again: leave out those that collude with it. For unequal noise, see
            :func:`~codedfl.privacy._exposure.equal_noise_variance`.

    Example:
        >>> PrivacyAccountant(coded_samples=10_000, noise_variance=0.25, delta=1e-5).epsilon
        13181.1038...
        >>> round(PrivacyAccountant(coded_samples=10_000, epsilon=1.0, delta=1e-5).noise_variance, 2)
        267.95
        >>> round(PrivacyAccountant(coded_samples=10_000, epsilon=1.0, delta=1e-5, devices_in_sum=20).noise_variance, 2)
        13.4
    """

    coded_samples: int
    noise_variance: float
    epsilon: float
    delta: float
    norm_bound: float
    label_noise_variance: float | None
    label_norm_bound: float
    adjacency: Adjacency
    devices_in_sum: int | None

    def __init__(
        self,
        *,
        coded_samples: int | None = None,
        noise_variance: float | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        norm_bound: float = 1.0,
        label_noise_variance: float | None = None,
        label_norm_bound: float = 1.0,
        adjacency: Adjacency = "add-remove",
        devices_in_sum: int | None = None,
    ) -> None:
        require_adjacency(adjacency)
        if devices_in_sum is not None:
            require_at_least("devices_in_sum", devices_in_sum, 1)
        exposure = Exposure(norm_bound, label_noise_variance, label_norm_bound, devices_in_sum or 1)
        solved = solve_budget(exposure, adjacency, coded_samples, noise_variance, epsilon, delta)
        settings = (norm_bound, label_noise_variance, label_norm_bound, adjacency, devices_in_sum)
        for field, value in zip(fields(self), (*solved, *settings), strict=True):
            object.__setattr__(self, field.name, value)

    @property
    def threat_model(self) -> str:
        """Who sees what, in words: what the numbers are about."""
        return "server sees each upload" if self.devices_in_sum is None else "server sees the sum only"

    @property
    def covers(self) -> str:
        """What the guarantee covers and what it does not, in a sentence."""
        what = "coded features alone (no labels may be coded with them)"
        if self.label_noise_variance is not None:
            what = "coded features and labels together"
        where = "one device's upload, made once"
        if self.devices_in_sum is not None:
            where = f"the sum of uploads with the noise of {self.devices_in_sum} devices that do not help the server, made once"
        return (
            f"{_NEIGHBOURS[self.adjacency]} of norm {self.norm_bound:g} or less, for the {what}, in {where}; "
            "the updates sent during training are not covered"
        )

    @property
    def effective_noise_variance(self) -> float:
        """Variance of the noise in what the server sees of the features: the sum over devices if it sees the sum."""
        return self.noise_variance * (self.devices_in_sum or 1)

    @property
    def signal_to_noise(self) -> float:
        """``r = B^2 / sigma^2``, plus ``B_Y^2 / sigma_Y^2`` if labels are covered; infinite without noise."""
        exposure = Exposure(self.norm_bound, self.label_noise_variance, self.label_norm_bound, self.devices_in_sum or 1)
        return exposure.signal_to_noise(self.noise_variance)

    @property
    def mi_dp_bits(self) -> float:
        """The universal MI-DP budget of one entry within [-1, 1] of the coded features, in bits; needs no data (``h = 0``)."""
        return mi_dp_bits(self.coded_samples, self.effective_noise_variance)

    @property
    def epsilon_from_renyi(self) -> float:
        """Epsilon by way of the Renyi curve, as it would compose with other mechanisms: never below the exact one."""
        if self.delta >= 1:
            return 0.0
        if self.delta == 0 or math.isinf(self.signal_to_noise):
            return math.inf
        orders = useful_orders(self.signal_to_noise)
        return epsilon_from_renyi(orders, self.renyi(orders), self.delta)

    def renyi(self, orders: Sequence[float] | FloatArray | float) -> FloatArray:
        """Return the Renyi divergence for every order; see :func:`codedfl.privacy._renyi.renyi_divergence`."""
        return renyi_divergence(orders, self.coded_samples, self.signal_to_noise, self.adjacency)

    def as_dict(self) -> dict[str, int | float | str]:
        """Return the budget by name, for a report; epsilon is infinite without noise.

        Example:
            >>> PrivacyAccountant(coded_samples=3, noise_variance=1.0, epsilon=2.0).as_dict()["mi_dp_bits"]
            1.0
        """
        return {
            "coded_samples": self.coded_samples,
            "noise_variance": self.noise_variance,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "norm_bound": self.norm_bound,
            "mi_dp_bits": self.mi_dp_bits,
            "threat_model": self.threat_model,
            "adjacency": self.adjacency,
            "covers": self.covers,
        }
