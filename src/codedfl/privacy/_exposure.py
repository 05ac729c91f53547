"""How far one sample can stand out of the noise of a coded upload."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from codedfl._validation import require_at_least, require_non_negative, require_positive
from codedfl.errors import InputError


def signal_to_noise(norm_bound: float, noise_variance: float) -> float:
    """Return ``r = B^2 / sigma^2``, all that a worst-case guarantee depends on besides ``c``.

    A row of the release is ``N(0, Sigma)`` with ``Sigma = Z^T Z + sigma^2 I``. One more sample ``z`` with ``||z|| <= B``
    multiplies the variance along one direction by ``1 + z^T Sigma^-1 z <= 1 + r``; the bound is met when the other samples
    are orthogonal to ``z``. For features and labels together, add their two ratios.

    Args:
        norm_bound: ``B``, the largest Euclidean norm that a sample may have.
        noise_variance: ``sigma^2``.

    Returns:
        ``r``; infinite without noise.

    Example:
        >>> signal_to_noise(1.0, 0.25)
        4.0
    """
    require_positive("norm_bound", norm_bound)
    require_non_negative("noise_variance", noise_variance)
    return (norm_bound / math.sqrt(noise_variance)) ** 2 if noise_variance > 0 else math.inf


def equal_noise_variance(noise_variances: Sequence[float]) -> float:
    """Return the variance that, the same on every device, adds up to the same noise in the sum of uploads: the mean.

    Example:
        >>> equal_noise_variance([0.5, 1.0, 1.5])
        1.0
    """
    if not len(noise_variances):
        raise InputError("noise_variances is empty: give the variance of at least one device.")
    for device, variance in enumerate(noise_variances):
        require_non_negative(f"noise_variances[{device}]", variance)
    return math.fsum(noise_variances) / len(noise_variances)


@dataclass(frozen=True)
class Exposure:
    """What a worst-case sample looks like, and how many devices' noise hides it.

    Attributes:
        norm_bound: ``B``, of the features.
        label_noise_variance: ``sigma_Y^2`` of one device, or None if labels are not covered.
        label_norm_bound: ``B_Y``.
        devices: ``N``, devices whose noise adds up in what the server sees.

    Example:
        >>> Exposure(label_noise_variance=2.0, devices=10).signal_to_noise(0.25)
        0.45
    """

    norm_bound: float = 1.0
    label_noise_variance: float | None = None
    label_norm_bound: float = 1.0
    devices: int = 1

    def __post_init__(self) -> None:
        require_positive("norm_bound", self.norm_bound)
        require_positive("label_norm_bound", self.label_norm_bound)
        require_at_least("devices", self.devices, 1)
        if self.label_noise_variance is not None:
            require_non_negative("label_noise_variance", self.label_noise_variance)

    @property
    def of_labels(self) -> float:
        """``B_Y^2 / (N sigma_Y^2)``, the labels' share of the signal to noise ratio."""
        if self.label_noise_variance is None:
            return 0.0
        return signal_to_noise(self.label_norm_bound, self.devices * self.label_noise_variance)

    def signal_to_noise(self, noise_variance: float) -> float:
        """Return ``r = B^2 / (N sigma^2) + B_Y^2 / (N sigma_Y^2)`` for a device's ``noise_variance``."""
        return signal_to_noise(self.norm_bound, self.devices * noise_variance) + self.of_labels

    def noise_variance(self, signal_to_noise: float) -> float:
        """Return the ``noise_variance`` of a device that gives ``signal_to_noise``, which must exceed the labels' share."""
        return self.norm_bound**2 / (self.devices * (signal_to_noise - self.of_labels))
