"""What a device releases: mechanisms with a stated noise, and how equal ones are merged."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real

from codedfl.errors import InputError
from codedfl.privacy._inputs import MOST, require_count, require_signal_to_noise, shown


@dataclass(frozen=True)
class GaussianMechanism:
    """Releases of a sum over samples plus Gaussian noise, each on its own Poisson sample of the rows.

    One release is ``sum_(i in S) f(x_i) + N(0, (z C)^2 I)`` with ``||f(x)|| <= C``, and each row is in ``S`` with probability
    ``q``, independently of everything else. Full batches (``q = 1``) are Gaussian differential privacy with ``mu = 1 / z``.

    Args:
        noise_multiplier: ``z``, the noise's standard deviation over the sensitivity ``C``; 0 means no noise, which has no
            bound, and infinity reveals nothing.
        count: number of such releases.
        sampling_rate: ``q``, more than 0 and at most 1.

    Raises:
        InputError: if a number is out of range.

    Example:
        >>> GaussianMechanism(noise_multiplier=4.0, count=16)
        GaussianMechanism(noise_multiplier=4.0, count=16, sampling_rate=1.0)
    """

    noise_multiplier: float
    count: int = 1
    sampling_rate: float = 1.0

    def __post_init__(self) -> None:
        require_noise_multiplier("noise_multiplier", self.noise_multiplier)
        require_count("count", self.count)
        require_sampling_rate("sampling_rate", self.sampling_rate)


@dataclass(frozen=True)
class CodedMechanism:
    """Coded uploads, as rows or as a factor: each has ``c`` rows of ``N(0, Sigma)``, ``Sigma = Z^T Z + noise``.

    Args:
        coded_samples: ``c``.
        signal_to_noise: ``r = B^2 / sigma^2 + B_Y^2 / sigma_Y^2``, infinite without noise; see
            :func:`codedfl.privacy.signal_to_noise`.
        count: number of uploads, each with fresh projections and noise.

    Raises:
        InputError: if a number is out of range.

    Example:
        >>> CodedMechanism(coded_samples=100, signal_to_noise=0.1)
        CodedMechanism(coded_samples=100, signal_to_noise=0.1, count=1)
    """

    coded_samples: int
    signal_to_noise: float
    count: int = 1

    def __post_init__(self) -> None:
        require_count("coded_samples", self.coded_samples)
        require_signal_to_noise(self.signal_to_noise)
        require_count("count", self.count)
        if self.coded_samples * self.count > MOST:
            raise InputError(
                f"count = {shown(self.count)} uploads of {shown(self.coded_samples)} coded samples have more than "
                f"{shown(MOST)} rows: give fewer."
            )


Mechanism = GaussianMechanism | CodedMechanism
"""Anything that :func:`codedfl.privacy.epsilon_of` accounts for."""


@dataclass(frozen=True)
class Merged:
    """Mechanisms with equal ones merged, in an order that does not depend on how they were given.

    Args:
        mu: of all full-batch Gaussian mechanisms together, ``sqrt(sum count / z^2)``; infinite if something has no noise.
        sampled: ``(noise multiplier, sampling rate, count)`` of the others.
        coded: ``(signal to noise, rows)``: uploads with the same ratio are one upload of all their rows.
    """

    mu: float
    sampled: tuple[tuple[float, float, int], ...]
    coded: tuple[tuple[float, int], ...]


def merge(mechanisms: Sequence[Mechanism]) -> Merged:
    """Merge equal mechanisms and leave out those that reveal nothing."""
    terms: list[float] = []
    sampled: dict[tuple[float, float], int] = defaultdict(int)
    coded: dict[float, int] = defaultdict(int)
    for mechanism in mechanisms:
        if isinstance(mechanism, CodedMechanism):
            ratio, rows = float(mechanism.signal_to_noise), int(mechanism.coded_samples) * int(mechanism.count)
            if math.isinf(ratio):
                terms.append(math.inf)
            elif ratio > 0:
                coded[ratio] += rows
        else:
            noise, rate = float(mechanism.noise_multiplier), float(mechanism.sampling_rate)
            if noise == 0:
                terms.append(math.inf)
            elif rate == 1:
                terms.append(math.sqrt(mechanism.count) / noise)
            elif math.isfinite(noise):
                sampled[noise, rate] += int(mechanism.count)
    for ratio, rows in coded.items():
        if rows > MOST:
            raise InputError(f"coded uploads of signal_to_noise = {ratio} have {shown(rows)} rows in all: give fewer.")
    return Merged(
        math.hypot(*sorted(terms)),
        tuple((noise, rate, count) for (noise, rate), count in sorted(sampled.items())),
        tuple(sorted(coded.items())),
    )


def require_noise_multiplier(name: str, value: float) -> None:
    """Refuse anything but a number, zero or more; it may be infinite."""
    if isinstance(value, bool) or not isinstance(value, Real) or not value >= 0:
        raise InputError(f"{name} = {shown(value)} must be a number, zero or more.")


def require_sampling_rate(name: str, value: float) -> None:
    """Refuse anything but a number that is more than 0 and at most 1."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < value <= 1:
        raise InputError(f"{name} = {shown(value)} must be more than 0 and at most 1.")
