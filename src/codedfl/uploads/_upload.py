"""The contract of an upload: what a device draws from its rows, once and before training, and what the server makes of it.

An upload is one class in one file with both halves. The simulator and a real federation call the same two.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Protocol, Self

import numpy as np
import numpy.typing as npt
from scipy import optimize
from typing_extensions import TypeVar

from codedfl.coding import Rows, require_one_each
from codedfl.errors import InputError
from codedfl.fleet import BITS_PER_NUMBER
from codedfl.parallel import Workers
from codedfl.privacy import (
    GaussianMechanism,
    Mechanism,
    Noise,
    PrivacyTarget,
    Release,
    SeededNoise,
    epsilon_of,
    gaussian_epsilon,
    rounding_delta,
)
from codedfl.setting import Code, Setting
from codedfl.streams import Streams
from codedfl.typing import BoolArray, FloatArray

Array = npt.NDArray[Any]

HeldT = TypeVar("HeldT", default=Any)
"""What the server holds after the upload."""

LARGEST_ENTRY = 1e15
"""Largest absolute value of an entry of coded data that is believed: with it, sums of squares stay finite in float32."""

LARGEST_PRODUCT = LARGEST_ENTRY**2
"""Largest absolute value of what is a sum of products."""

UNIT_ROUNDOFF = 2.0**-53

SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)


class Coverage(Protocol):
    """Which samples coded data has to stand for: the part of a plan of the devices' work that uploads depend on."""

    @property
    def coded_for_all(self) -> bool:
        """Whether the (only) coded batch stands for every sample, with weight 1."""

    def coded_rows(self, coded_samples: int) -> tuple[int, ...]:
        """Return the number of rows of each coded batch, given ``c``."""

    def uncovered(self, device: int, batch: int) -> Rows:
        """Return the samples that a coded batch stands for, weighted by the share that the device itself fails to contribute."""


@dataclass(frozen=True)
class Terms:
    """What everybody knows of an upload before any data is looked at.

    Args:
        dimension: ``d``.
        outputs: ``o``.
        coded_samples: ``c`` of the coded batch.
        clip_norm: ``B``, to which samples are clipped; None for no clipping.
        label_bound: ``B_Y``; None if labels have no bound that is known without the data.
        public: randomness that everybody shares, such as the directions of a sketch.
        target: one (epsilon, delta) that all devices keep; None if each sets its own noise.
    """

    dimension: int
    outputs: int
    coded_samples: int
    clip_norm: float | None
    label_bound: float | None
    public: Streams
    target: PrivacyTarget | None = None

    @classmethod
    def of(cls, setting: Setting, coded_samples: int | None = None) -> Terms:
        """Return the terms of a setting, for a coded batch of ``c`` rows (by default all that the code has)."""
        code, federation = setting.code, setting.federation
        return cls(
            federation.dimension,
            federation.outputs,
            code.coded_samples if coded_samples is None else coded_samples,
            code.clip_norm,
            setting.label_bound,
            code.streams(setting.streams),
            setting.privacy,
        )

    @property
    def sums_only(self) -> bool:
        """Whether the server sees sums over devices alone."""
        return self.target is not None and self.target.sums_only

    def clipped(self, rows: Rows, noise: Noise) -> Iterator[Rows]:
        """Yield rows in the precision that noise asks for, clipped in it, block by block."""
        for block in noise.blocks(rows):
            yield block if self.clip_norm is None else block.clipped(self.clip_norm)


@dataclass(frozen=True)
class ArrayLayout:
    """An array of an upload, as whoever receives it checks it.

    Args:
        dtype: that of every entry.
        shape: the shape.
        largest: the largest absolute value that is believed.
        upper: whether it is an upper triangle with a diagonal of zero or more.
        not_negative: whether it is zero or more, unless it has noise.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    largest: float
    upper: bool = False
    not_negative: bool = False

    @property
    def numbers(self) -> int:
        """Number of entries that have to be sent: those of an upper triangle, or all."""
        return self.shape[0] * (self.shape[0] + 1) // 2 if self.upper else math.prod(self.shape)


Layout = Mapping[str, ArrayLayout]


@dataclass(frozen=True, eq=False)
class Received:
    """What a device uploaded, and what it declared about it.

    Args:
        arrays: those of the layout, by name.
        noise_variance: ``sigma_i^2``.
        label_noise_variance: ``sigma_Y^2``.
        rows: ``|S_i|``, the samples behind the arrays, if those are some of the device's; otherwise 0.
        kind: name of the upload that it is, for whoever keeps it on a disk.
    """

    arrays: Mapping[str, Array]
    noise_variance: float = 0.0
    label_noise_variance: float = 0.0
    rows: int = 0
    kind: str = ""


@dataclass(frozen=True)
class AgreedNoise:
    """The noise that a privacy target prescribes to every device alike.

    Args:
        noise_variance: ``sigma^2``.
        label_noise_variance: ``sigma_Y^2``.
        mechanism: what an upload with it is to whoever sees it.
    """

    noise_variance: float
    label_noise_variance: float
    mechanism: Mechanism


@dataclass(frozen=True)
class UploadCost:
    """The cost of the one-shot upload for each device and the server, with devices in parallel.

    Args:
        bits: what each device sends, (N,).
        encoding_macs: arithmetic on each device to make it, (N,).
        encoding_s: time for ``encoding_macs``, (N,).
        upload_s: time to send ``bits`` at the device's own mean uplink rate, or as measured, (N,).
        server_macs: arithmetic at the server before the first round, such as additions to sum the coded datasets.
        server_s: time for ``server_macs``.
    """

    bits: FloatArray
    encoding_macs: FloatArray
    encoding_s: FloatArray
    upload_s: FloatArray
    server_macs: float
    server_s: float

    @property
    def total_s(self) -> float:
        """Time from the start until the server can begin: the slowest device, then the server."""
        return float(np.max(self.encoding_s + self.upload_s)) + self.server_s

    @classmethod
    def charged(
        cls, setting: Setting, numbers: FloatArray, encoding_macs: FloatArray, server_macs: float
    ) -> UploadCost:
        """Charge numbers sent and arithmetic done, at the rates of the setting.

        Args:
            setting: the fleet and the channel.
            numbers: sent by each device, (N,).
            encoding_macs: arithmetic on each device, (N,).
            server_macs: arithmetic at the server.
        """
        bits = BITS_PER_NUMBER * numbers
        encoding_s, upload_s = setting.timing().preparation_s(bits, encoding_macs, setting.federation.samples)
        return cls(
            bits=bits,
            encoding_macs=encoding_macs,
            encoding_s=encoding_s,
            upload_s=upload_s,
            server_macs=server_macs,
            server_s=server_macs / setting.server_mac_rate,
        )

    def with_server_macs(self, setting: Setting, macs: float) -> UploadCost:
        """Return the cost with more arithmetic at the server before the first round."""
        total = self.server_macs + macs
        return replace(self, server_macs=total, server_s=total / setting.server_mac_rate)


class Upload(ABC, Generic[HeldT]):
    """What devices send once, before training.

    A subclass is a frozen dataclass: `codedfl.identity.identity` decides from its fields which schemes share an upload.
    """

    name: ClassVar[str]
    """Its name on the wire, in vaults and on the disk of a server."""

    purpose: ClassVar[str]
    """The purpose of the stream that a simulation draws it from, by device and coded batch."""

    message: ClassVar[str]
    """What it is, in a list of what a device releases."""

    is_coded: ClassVar[bool]
    """Whether it consists of random combinations of samples."""

    stands_for_data: ClassVar[bool] = False
    """Whether a server takes gradient steps on what it holds, as on samples."""

    has_rows: ClassVar[bool] = False
    """Whether that are rows, from which it can draw batches."""

    can_have_noise: ClassVar[bool] = True
    """Whether a device may add noise; otherwise the server learns exactly what `message` says."""

    tells_of_labels: ClassVar[bool] = True
    """Whether anything in it depends on labels."""

    declares_rows: ClassVar[bool] = False
    """Whether a device says how many of its rows are behind it, as those may be some of them."""

    @property
    @abstractmethod
    def noise(self) -> bool:
        """Whether it has noise unless a device decides otherwise."""

    # The device's half ------------------------------------------------------------------------------------------------

    @abstractmethod
    def layout(self, terms: Terms) -> Layout:
        """Return what a device sends; nothing if it is not to send anything."""

    @abstractmethod
    def draw(self, terms: Terms, rows: Rows, noise: Noise) -> dict[str, Array]:
        """Return what a device sends, drawn from its rows.

        Args:
            terms: what everybody knows.
            rows: the samples of the device, as they are: clipping is part of drawing.
            noise: the noise of this device; drawn from once, and never again for the same data.
        """

    def rows_behind(self, samples: int) -> int:
        """Return how many of a device's rows are behind what it sends."""
        return samples

    # The server's half ------------------------------------------------------------------------------------------------

    @abstractmethod
    def collect(self, terms: Terms, samples: FloatArray, received: Iterable[tuple[int, Received]]) -> HeldT:
        """Return what the server makes of the uploads, which can be read once.

        Args:
            terms: what everybody knows.
            samples: ``l_i`` of all devices, (N,).
            received: index and upload of every device that sent one; a sum over devices counts as that of one of them.
        """

    def simulated(self, setting: Setting, coverage: Coverage) -> HeldT:
        """Return what the server holds in a simulation: what `draw` and `collect` give, or its law by a shortcut."""
        terms, code = Terms.of(setting), setting.code
        noise, label_noise = self.noise_levels(setting, coverage)
        devices = {int(i): setting.rows(int(i)) for i in np.flatnonzero(code.uploading)}
        received = self.drawn(terms, devices, noise, label_noise, code.streams(setting.streams), setting.workers)
        return self.collect(terms, setting.federation.samples.astype(np.float64), received)

    def drawn(
        self,
        terms: Terms,
        devices: Mapping[int, Rows],
        noise_variance: FloatArray,
        label_noise_variance: FloatArray,
        streams: Streams,
        workers: Workers | None = None,
        batch: int = 0,
    ) -> Iterator[tuple[int, Received]]:
        """Draw the upload of every device that has samples or noise, each from a stream of its own.

        Args:
            terms: what everybody knows.
            devices: the samples (and weights) of each device that takes part, by index.
            noise_variance: ``sigma_i^2``, (N,).
            label_noise_variance: ``sigma_Y^2``, (N,).
            streams: the source of all draws.
            workers: threads to spread devices over.
            batch: index of the coded batch, for schemes with several.
        """

        def draw(i: int) -> tuple[int, Received]:
            noise = SeededNoise(streams.at(self.purpose, device=i, round=batch))
            noise = noise.of(float(noise_variance[i]), float(label_noise_variance[i]))
            arrays = self.draw(terms, devices[i], noise)
            rows = self.rows_behind(len(devices[i]))
            return i, Received(arrays, noise.variance, noise.label_variance, rows, self.name)

        require_one_each(len(noise_variance), noise_variance=noise_variance, label_noise_variance=label_noise_variance)
        sending = [i for i, rows in devices.items() if self.sends(len(rows), float(noise_variance[i]))]
        yield from (workers or Workers(1)).map(draw, sending)

    def sends(self, samples: int, noise_variance: float) -> bool:
        """Return whether a device with so many samples sends anything."""
        return samples > 0 or noise_variance > 0

    def rows_held(self, setting: Setting, coverage: Coverage) -> int:  # noqa: ARG002 (for coded data)
        """Return how many rows of coded data the server holds afterwards."""
        return 0

    def noise_in(self, held: HeldT) -> float:  # noqa: ARG002 (for coded data)
        """Return the variance of the noise in every entry of coded data that the server holds; 0 if that is something else."""
        return 0.0

    # What it costs, tells and needs -----------------------------------------------------------------------------------

    @abstractmethod
    def cost(self, setting: Setting, coverage: Coverage) -> UploadCost:
        """Return the cost, without drawing anything."""

    def noise_levels(self, setting: Setting, coverage: Coverage) -> tuple[FloatArray, FloatArray]:  # noqa: ARG002
        """Return the variances that each device adds in a simulation, about features and about labels, both (N,).

        By default those of `agreed_noise`, of which each device adds its share if the server sees the sum alone, or the code's.
        """
        on, terms = setting.code.uploading * float(self.noise), Terms.of(setting)
        agreed = self.agreed_noise(terms)
        if agreed is None:
            return on * setting.code.noise_variance, on * setting.code.label_noise_variance
        shares = max(int(np.count_nonzero(sending(setting))), 1) if terms.sums_only and self.can_be_summed else 1
        return on * agreed.noise_variance / shares, on * agreed.label_noise_variance / shares

    @abstractmethod
    def releases(self, setting: Setting, coverage: Coverage, device: int) -> tuple[Release, ...]:
        """Return what a device sends in a simulation, each with its mechanism to whoever sees it."""

    def releases_of_features(self, setting: Setting, coverage: Coverage, device: int) -> tuple[Release, ...]:
        """Return the same as far as it depends on features; by default all of it, which tells no less."""
        return self.releases(setting, coverage, device)

    def releases_in_sum(self, setting: Setting, coverage: Coverage, device: int) -> tuple[Release, ...]:
        """Return the same as seen in the sum over devices; by default all of it, which tells no less."""
        return self.releases(setting, coverage, device)

    @abstractmethod
    def mechanism(
        self, terms: Terms, noise_variance: float, label_noise_variance: float, samples: int
    ) -> Mechanism | None:
        """Return what an upload with this noise is to whoever sees it: the one answer to "what epsilon?".

        Args:
            terms: what everybody knows.
            noise_variance: ``sigma^2``, of everything about features that is seen.
            label_noise_variance: ``sigma_Y^2``, the same about labels.
            samples: rows of the device.

        Returns:
            The mechanism; None if nothing bounds what one sample changes, or too little noise covers it.
        """

    def epsilon(
        self, terms: Terms, noise_variance: float, label_noise_variance: float, samples: int, delta: float
    ) -> float:
        """Return the epsilon of an upload with this noise at ``delta``, infinite without a bound; see `mechanism`."""
        mechanism = self.mechanism(terms, noise_variance, label_noise_variance, samples)
        return math.inf if mechanism is None else epsilon_of((mechanism,), delta)

    def agreed_noise(self, terms: Terms) -> AgreedNoise | None:  # noqa: ARG002 (for uploads that keep a target)
        """Return the noise of each device against a server that sees each message, as the target of the terms prescribes it.

        None if each device sets its own noise.
        """
        return None

    @abstractmethod
    def sensitivities(self, terms: Terms, samples: int) -> tuple[float, float]:
        """Return the most by which one sample changes what is sent about features and about labels, in norm.

        For coded rows these are the norms of the sample. Infinite where nothing is known.

        Args:
            terms: what everybody knows.
            samples: rows of the device.
        """

    def largest_ratio(self, terms: Terms, epsilon: float, delta: float) -> float:  # noqa: ARG002 (for coded uploads)
        """Return the largest ``a^2 / sigma^2 + b^2 / sigma_Y^2`` that keeps a budget, for the `sensitivities` ``a``, ``b``.

        By default that of a Gaussian mechanism, ``mu^2``.
        """
        # In these very steps: noise is part of the key of an upload, and a device whose vault has no such key draws anew.
        high = 1.0
        while gaussian_epsilon(high, delta) < epsilon:
            high *= 2
        low = high / 2
        while gaussian_epsilon(low, delta) >= epsilon:
            low /= 2
        mu = float(
            optimize.brentq(lambda mu: gaussian_epsilon(mu, delta) - epsilon, low, high, xtol=1e-300, rtol=1e-14)
        )
        return mu**2

    @abstractmethod
    def rounding_delta(
        self, terms: Terms, *, samples: int, noise_variance: float, label_noise_variance: float, epsilon: float
    ) -> float:
        """Return what the arithmetic of a device in front of exact noise adds to the delta of its upload.

        See `codedfl.privacy.rounding_delta`, which takes the error in standard deviations of the noise. In what follows,
        ``u = 2^-53``, and any order of summation is allowed for.

        Args:
            terms: what everybody knows.
            samples: ``l``.
            noise_variance: ``sigma^2``.
            label_noise_variance: ``sigma_Y^2``.
            epsilon: that of the upload with ideal arithmetic.

        Returns:
            The term; 1 where there is no bound at all, as samples are not clipped or have no noise.
        """

    def mi_dp(self, setting: Setting, coverage: Coverage) -> tuple[float | None, str]:  # noqa: ARG002 (for subclasses)
        """Return the paper's bound in bits for one entry of the coded features, the largest over devices, and what it means.

        It is infinite without a bound, and None for what is not coded.
        """
        return (None, "no coded upload") if self.noise else (math.inf, "no bound: exact statistics")

    def coded_rows(self, terms: Terms) -> int:  # noqa: ARG002 (for coded uploads)
        """Return the number of coded rows that tell as much; 0 for what is not coded."""
        return 0

    def sketched(self, dimension: int) -> tuple[int, int]:  # noqa: ARG002 (for sketches)
        """Return the directions and, at most, the rows that devices sketch; zeros if they make no sketch."""
        return 0, 0

    def rank_in(self, dimension: int) -> int:  # noqa: ARG002 (for sketches)
        """Return the number of directions of the sketch that the server holds; 0 if it holds none."""
        return 0

    def settled(self, setting: Setting) -> Self:  # noqa: ARG002 (for uploads with choices left open)
        """Return the upload with everything decided that it derives from the sizes in a setting."""
        return self

    @abstractmethod
    def describe(self) -> str:
        """Return its cell in the table of schemes, such as ``projection + noise``."""

    def in_words(self) -> str:
        """Return what it is, in a plan."""
        return self.describe()

    @property
    @abstractmethod
    def can_be_summed(self) -> bool:
        """Whether the server needs no more than the sum over devices of what they send; otherwise it keeps devices apart."""

    def require_possible(self, setting: Setting, coverage: Coverage) -> None:
        """Refuse a setting in which it cannot be made, before any work.

        Raises:
            InputError: naming the field, its value and the fix.
        """

    def depends_on(self, code: Code) -> Code:
        """Return the code with everything blanked out that this upload does not use."""
        return code if self.noise else code.without_noise()


class GaussianUpload(Upload[HeldT]):
    """An upload whose every number has Gaussian noise added last, by `Noise.added` with its sensitivity and its error.

    Its epsilon then follows from `Upload.sensitivities`, and arithmetic adds no more to delta than the grid of the noise does.
    """

    def mechanism(
        self, terms: Terms, noise_variance: float, label_noise_variance: float, samples: int
    ) -> GaussianMechanism | None:
        """Return a Gaussian mechanism, ``mu^2 = a^2 / sigma^2 + b^2 / sigma_Y^2`` for the sensitivities ``a`` and ``b``."""
        variances = noise_variance, label_noise_variance
        parts = [each for each in zip(self.sensitivities(terms, samples), variances, strict=True) if each[0] > 0]
        if any(change == math.inf or variance == 0 for change, variance in parts):
            return None
        squared = sum(change**2 / variance for change, variance in parts)
        return GaussianMechanism(1 / math.sqrt(squared) if squared else math.inf)

    def rounding_delta(
        self, terms: Terms, *, samples: int, noise_variance: float, label_noise_variance: float, epsilon: float
    ) -> float:
        """Return what the grid adds to delta: noise is raised with the sensitivity for errors in front of it."""
        if self.mechanism(terms, noise_variance, label_noise_variance, samples) is None:
            return 1.0
        return rounding_delta(sum(array.numbers for array in self.layout(terms).values()), 0.0, epsilon)


def require_target(setting: Setting, what: str) -> PrivacyTarget:
    """Return the privacy target of a setting, or refuse a setting without one."""
    if setting.privacy is None:
        raise InputError(
            f"privacy.epsilon = 0 leaves the noise of {what} open: set the epsilon that the run is to keep (--epsilon)."
        )
    return setting.privacy


def clip_norm_of(setting: Setting) -> float:
    """Return ``B``, or refuse a setting without it."""
    if setting.code.clip_norm is None:
        raise InputError('coding.clip_norm = 0 bounds no sample: set a norm, or "auto".')
    return setting.code.clip_norm


def noise_of_sum(setting: Setting) -> float:
    """Return the noise of a sum over all devices that take part, in units of that of one mechanism: nothing of it is missing."""
    sums_only = require_target(setting, "private descent").sums_only
    return 1.0 if sums_only else math.sqrt(np.count_nonzero(sending(setting)))


def sending(setting: Setting) -> BoolArray:
    """Return which devices take part and have samples, (N,)."""
    return setting.code.uploading & (setting.federation.samples > 0)
