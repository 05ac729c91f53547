"""What a device releases: mechanisms with a stated noise, and how equal ones are merged."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import singledispatch
from numbers import Real
from typing import ClassVar

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

    @property
    def mu(self) -> float | None:
        """``sqrt(K) / z`` of full batches, by whose squares they compose; None on samples of the rows."""
        if self.sampling_rate != 1:
            return None
        return math.sqrt(self.count) / self.noise_multiplier if self.noise_multiplier > 0 else math.inf


@dataclass(frozen=True)
class CodedMechanism:
    """A coded upload, as rows or as a factor: ``c`` rows of ``N(0, Sigma)``, ``Sigma = Z^T Z + noise``.

    Args:
        coded_samples: ``c``.
        signal_to_noise: ``r = B^2 / sigma^2 + B_Y^2 / sigma_Y^2``, infinite without noise; see
            :func:`codedfl.privacy.signal_to_noise`.

    Raises:
        InputError: if a number is out of range.

    Example:
        >>> CodedMechanism(coded_samples=100, signal_to_noise=0.1)
        CodedMechanism(coded_samples=100, signal_to_noise=0.1)
    """

    coded_samples: int
    signal_to_noise: float

    mu: ClassVar[None] = None
    """None: the law of its rows has another covariance, not another mean."""

    def __post_init__(self) -> None:
        require_count("coded_samples", self.coded_samples)
        require_signal_to_noise(self.signal_to_noise)


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


@dataclass
class _Tally:
    """What mechanisms add up to; see `Merged`."""

    mus: list[float] = field(default_factory=list)
    sampled: dict[tuple[float, float], int] = field(default_factory=lambda: defaultdict(int))
    coded: dict[float, int] = field(default_factory=lambda: defaultdict(int))


def merge(mechanisms: Sequence[Mechanism]) -> Merged:
    """Merge equal mechanisms and leave out those that reveal nothing."""
    tally = _Tally()
    for mechanism in mechanisms:
        _count(mechanism, tally)
    for ratio, rows in tally.coded.items():
        if rows > MOST:
            raise InputError(f"coded uploads of signal_to_noise = {ratio} have {shown(rows)} rows in all: give fewer.")
    return Merged(
        math.hypot(*sorted(tally.mus)),
        tuple((noise, rate, count) for (noise, rate), count in sorted(tally.sampled.items())),
        tuple(sorted(tally.coded.items())),
    )


@singledispatch
def _count(mechanism: Mechanism, tally: _Tally) -> None:  # noqa: ARG001 (the kinds below fill it)
    """Add a mechanism to a tally: the one place that knows what each kind is to the accountant."""
    raise TypeError(f"{type(mechanism).__name__} is no mechanism that this accountant knows.")


@_count.register
def _(mechanism: GaussianMechanism, tally: _Tally) -> None:
    noise, rate = float(mechanism.noise_multiplier), float(mechanism.sampling_rate)
    if noise == 0:
        tally.mus.append(math.inf)
    elif rate == 1:
        tally.mus.append(math.sqrt(mechanism.count) / noise)
    elif math.isfinite(noise):
        tally.sampled[noise, rate] += int(mechanism.count)


@_count.register
def _(mechanism: CodedMechanism, tally: _Tally) -> None:
    ratio = float(mechanism.signal_to_noise)
    if math.isinf(ratio):
        tally.mus.append(math.inf)
    elif ratio > 0:
        tally.coded[ratio] += int(mechanism.coded_samples)


def require_noise_multiplier(name: str, value: float) -> None:
    """Refuse anything but a number, zero or more; it may be infinite."""
    if isinstance(value, bool) or not isinstance(value, Real) or not value >= 0:
        raise InputError(f"{name} = {shown(value)} must be a number, zero or more.")


def require_sampling_rate(name: str, value: float) -> None:
    """Refuse anything but a number that is more than 0 and at most 1."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < value <= 1:
        raise InputError(f"{name} = {shown(value)} must be more than 0 and at most 1.")


def sketch_sensitivity(norm_bound: float, label_norm_bound: float, *, some_rows: bool) -> tuple[float, float]:
    """Return the most by which one sample changes what a sketch tells about features and about labels, in Frobenius norm.

    A sample ``(x, y)`` changes ``X^T X Omega`` by ``x x^T Omega`` and ``||X||^2`` by ``||x||^2``, together by at most
    ``sqrt(2) B^2``, and ``X^T Y`` by ``x y^T``, at most ``B B_Y``. If a sketch has some of the rows, a sample that is removed may
    have been one of them, and then another takes its place. That changes features by no more than ``sqrt(2) B^2``, since
    ``||x x^T - z z^T||^2 + (||x||^2 - ||z||^2)^2 <= 2 (a^2 + b^2 - a b)`` with ``a, b <= B^2`` the squared norms, but labels by
    up to ``2 B B_Y``. That the choice of rows is secret as well is not counted.

    Args:
        norm_bound: ``B``.
        label_norm_bound: ``B_Y``.
        some_rows: whether the sketch has some of the rows and not all.

    Example:
        >>> sketch_sensitivity(1.0, 1.0, some_rows=True)
        (1.414..., 2.0)
    """
    return math.sqrt(2) * norm_bound**2, (2.0 if some_rows else 1.0) * norm_bound * label_norm_bound
