"""The accountant: the privacy budget of a coded upload, solved for the number that is missing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from codedfl.errors import InputError
from codedfl.privacy._coded import (
    epsilon_from_renyi,
    exact_epsilon,
    largest_signal_to_noise,
    log_delta,
    most_coded_samples,
    renyi_divergence,
    useful_orders,
)
from codedfl.privacy._inputs import (
    Adjacency,
    require_adjacency,
    require_count,
    require_norm_bound,
    require_number,
    require_positive_number,
    require_probability,
)
from codedfl.privacy._mi_dp import mi_dp_bits
from codedfl.typing import FloatArray

_NEIGHBOURS = {
    "add-remove": "one sample more or less",
    "remove": "one sample less",
    "add": "one sample more",
    "replace": "another value of one sample",
}


@dataclass(frozen=True, init=False)
class PrivacyAccountant:
    """A worst-case (epsilon, delta) guarantee for one coded upload. Give three of the first four; it solves for the fourth.

    The guarantee holds for every dataset whose samples have norm ``B`` or less, so clip the samples to ``B`` before encoding.
    It is tight: some dataset uses the whole epsilon (for "replace", a dataset with at least two columns). It covers only the
    coded upload, made once; the updates that devices send during training leak in addition.

    Args:
        coded_samples: ``c``; if missing, the largest number that keeps the budget.
        noise_variance: ``sigma^2`` per device; if missing, the smallest that keeps the budget.
        epsilon: In nats, positive; if missing, the exact value.
        delta: If missing, the exact value.
        norm_bound: ``B``, the bound on the norm of a sample's features.
        label_noise_variance: ``sigma_Y^2`` per device on the coded labels, which the guarantee then covers together with the
            features. None covers the features alone, and only if no label is coded with the same projection; 0 is an upload
            of labels without noise.
        label_norm_bound: ``B_Y``, the bound on the norm of a sample's labels; 1 for one-hot labels.
        adjacency: Which datasets are neighbours.
        devices_in_sum: None if the server sees each upload. If it sees only the sum of the uploads (secure aggregation), the
            number of devices whose noise it cannot remove, that is without those that collude with it. If their noise
            differs, give the mean of their variances as ``noise_variance``.

    Raises:
        InputError: If not exactly three of the four are given, a number is out of range, or nothing keeps the budget.

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
        require_norm_bound("norm_bound", norm_bound)
        require_norm_bound("label_norm_bound", label_norm_bound)
        if devices_in_sum is not None:
            require_count("devices_in_sum", devices_in_sum)
        if label_noise_variance is not None:
            require_number("label_noise_variance", label_noise_variance)
        self._set(
            norm_bound=norm_bound,
            label_noise_variance=label_noise_variance,
            label_norm_bound=label_norm_bound,
            adjacency=adjacency,
            devices_in_sum=devices_in_sum,
        )
        solved = self._solve(coded_samples, noise_variance, epsilon, delta)
        self._set(**dict(zip(("coded_samples", "noise_variance", "epsilon", "delta"), solved, strict=True)))

    @property
    def threat_model(self) -> str:
        """Who sees what."""
        return "server sees each upload" if self.devices_in_sum is None else "server sees the sum only"

    @property
    def covers(self) -> str:
        """What the guarantee covers, and what it does not."""
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
        """Noise variance of the features in what the server sees: the sum over devices if it sees only the sum."""
        return self._effective(self.noise_variance)

    @property
    def signal_to_noise(self) -> float:
        """``r = B^2 / (N sigma^2)``, plus ``B_Y^2 / (N sigma_Y^2)`` if labels are covered; infinite without noise."""
        return self._ratio(self.noise_variance)

    @property
    def label_signal_to_noise(self) -> float:
        """``B_Y^2 / (N sigma_Y^2)``, the share of the labels in ``signal_to_noise``; 0 if labels are not covered."""
        if self.label_noise_variance is None:
            return 0.0
        return signal_to_noise(self.label_norm_bound, self._effective(self.label_noise_variance))

    @property
    def mi_dp_bits(self) -> float:
        """The universal MI-DP budget (``h = 0``) per entry of the coded features within [-1, 1], in bits."""
        return mi_dp_bits(self.coded_samples, self.effective_noise_variance)

    @property
    def epsilon_from_renyi(self) -> float:
        """Epsilon converted from the Renyi curve, as it composes with other mechanisms: never below the exact epsilon."""
        if self.delta >= 1 or self.signal_to_noise == 0:
            return 0.0
        if self.delta == 0 or math.isinf(self.signal_to_noise):
            return math.inf
        orders = useful_orders(self.signal_to_noise)
        return epsilon_from_renyi(orders, self.renyi(orders), self.delta)

    def renyi(self, orders: Sequence[float] | FloatArray | float) -> FloatArray:
        """Return the Renyi divergence at every order; see :func:`codedfl.privacy.renyi_divergence`."""
        return renyi_divergence(orders, self.coded_samples, self.signal_to_noise, self.adjacency)

    def as_dict(self) -> dict[str, int | float | str]:
        """Return the budget as a dictionary for reports; epsilon is infinite without noise.

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

    def _set(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _effective(self, variance: float) -> float:
        return variance * (self.devices_in_sum or 1)

    def _ratio(self, noise_variance: float) -> float:
        return signal_to_noise(self.norm_bound, self._effective(noise_variance)) + self.label_signal_to_noise

    def _solve(
        self, coded_samples: int | None, noise_variance: float | None, epsilon: float | None, delta: float | None
    ) -> tuple[int, float, float, float]:
        """Return all four numbers of the budget, of which exactly one is None."""
        if coded_samples is not None:
            require_count("coded_samples", coded_samples)
        if noise_variance is not None:
            require_number("noise_variance", noise_variance)
        if epsilon is not None:
            require_positive_number("epsilon", epsilon)
        if delta is not None:
            require_probability("delta", delta)
        if coded_samples is None and noise_variance is not None and epsilon is not None and delta is not None:
            return self._solve_coded_samples(noise_variance, epsilon, delta), noise_variance, epsilon, delta
        if noise_variance is None and coded_samples is not None and epsilon is not None and delta is not None:
            return coded_samples, self._solve_noise_variance(coded_samples, epsilon, delta), epsilon, delta
        if coded_samples is not None and noise_variance is not None:
            ratio = self._ratio(noise_variance)
            if epsilon is None and delta is not None:
                return coded_samples, noise_variance, exact_epsilon(delta, coded_samples, ratio, self.adjacency), delta
            if delta is None and epsilon is not None:
                found = math.exp(log_delta(epsilon, coded_samples, ratio, self.adjacency))
                return coded_samples, noise_variance, epsilon, found
        known = {"coded_samples": coded_samples, "noise_variance": noise_variance, "epsilon": epsilon, "delta": delta}
        given = [name for name, value in known.items() if value is not None]
        raise InputError(
            f"{' and '.join(given) if given else 'nothing'} given: give exactly three of {', '.join(known)}, "
            "and the fourth is solved for."
        )

    def _solve_noise_variance(self, coded_samples: int, epsilon: float, delta: float) -> float:
        """Return the smallest noise variance that keeps the budget; refuse a budget that the labels alone exceed."""
        ratio = largest_signal_to_noise(epsilon, delta, coded_samples, self.adjacency)
        labels, devices = self.label_signal_to_noise, self.devices_in_sum or 1
        if ratio == 0:
            raise InputError(f"epsilon = {epsilon} needs more noise than a number can hold: allow a larger epsilon.")
        if labels >= ratio:
            alone = exact_epsilon(delta, coded_samples, labels, self.adjacency)
            least = self.label_norm_bound**2 / (devices * ratio)
            raise InputError(
                f"label_noise_variance = {self.label_noise_variance} cannot keep epsilon = {epsilon}, as the labels alone use "
                f"{alone:.6g} at delta = {delta}: raise it above {least:.6g}, or allow a larger epsilon."
            )
        found = self.norm_bound**2 / (devices * (ratio - labels))
        if not 0 < found < math.inf:
            raise InputError(
                f"epsilon = {epsilon} at norm_bound = {self.norm_bound} needs a noise variance of {found:g} to the precision of "
                "a number: give an epsilon or a bound that is less extreme."
            )
        return found

    def _solve_coded_samples(self, noise_variance: float, epsilon: float, delta: float) -> int:
        """Return the largest number of coded samples that keeps the budget; refuse a budget that one sample exceeds."""
        ratio = self._ratio(noise_variance)
        if ratio == 0:
            raise InputError(
                f"noise_variance = {noise_variance} keeps any epsilon with any number of coded samples: lower it."
            )
        found = most_coded_samples(epsilon, delta, ratio, self.adjacency) if math.isfinite(ratio) else 0
        if found == 0:
            least = exact_epsilon(delta, 1, ratio, self.adjacency)
            if math.isinf(least):
                by_labels = math.isinf(self.label_signal_to_noise)
                cause = self.label_noise_variance if by_labels else noise_variance
                raise InputError(
                    f"{'label_' if by_labels else ''}noise_variance = {cause:g} keeps no epsilon with any number of coded "
                    "samples: raise it."
                )
            raise InputError(
                f"epsilon = {epsilon} cannot be kept, as a single coded sample uses {least:.6g} at delta = {delta}: "
                "allow that much, or raise the noise."
            )
        return found


def signal_to_noise(norm_bound: float, noise_variance: float) -> float:
    """Return ``r = B^2 / sigma^2``, the only number besides ``c`` on which a worst-case guarantee depends.

    A row of the release is ``N(0, Sigma)`` with ``Sigma = Z^T Z + sigma^2 I``. One more sample ``z`` with ``||z|| <= B``
    multiplies the variance along one direction by ``1 + z^T Sigma^-1 z <= 1 + r``, with equality if the other samples are
    orthogonal to ``z``. For features and labels together, add their two ratios.

    Args:
        norm_bound: ``B``, the largest Euclidean norm that a sample may have.
        noise_variance: ``sigma^2``.

    Returns:
        ``r``; infinite without noise.

    Example:
        >>> signal_to_noise(1.0, 0.25)
        4.0
    """
    require_norm_bound("norm_bound", norm_bound)
    require_number("noise_variance", noise_variance)
    amplitude = norm_bound / math.sqrt(noise_variance) if noise_variance > 0 else math.inf
    return amplitude * amplitude
