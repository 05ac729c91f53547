"""The setting in which schemes are compared: the same data, fleet, channel, code and clock for all."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np

from codedfl._validation import require_at_least, require_positive
from codedfl.coding import EncoderName, Gram, Rows, compute_gram
from codedfl.data import Federation
from codedfl.errors import InputError
from codedfl.fleet import (
    AdaptiveBatchArrivals,
    AnyFleet,
    Arrivals,
    Channel,
    CohortArrivals,
    FixedBatchArrivals,
    Timing,
    Workload,
    round_timing,
)
from codedfl.identity import NOT_IDENTITY
from codedfl.parallel import Workers
from codedfl.streams import Streams
from codedfl.training._privacy import PrivacyTarget
from codedfl.typing import BoolArray, FloatArray

LARGEST_GRAM = 16_384
"""Columns up to which a Gram matrix is computed (2 GiB in float64)."""


@dataclass(frozen=True)
class Code:
    """The coded upload before training.

    Args:
        coded_samples: ``c``.
        noise_variance: ``sigma_i^2`` of each device, (N,).
        label_noise_variance: variance of noise on the coded labels of each device, (N,); the paper has none.
        encoder: how the coded data is drawn; see `codedfl.coding.encode_all`.
        clip_norm: ``B``, the norm to which every sample is clipped before encoding; None for no clipping.
        participants: which devices upload coded data, (N,); None for all.
        draw: index of the draw; another index gives other coded data, with everything else the same.
        label_bound: ``B_Y``, to which the norms of a regression's labels were clipped; None for no bound. One-hot labels have
            norm 1 and need none.
    """

    coded_samples: int
    noise_variance: FloatArray
    label_noise_variance: FloatArray
    encoder: EncoderName = "auto"
    clip_norm: float | None = None
    participants: BoolArray | None = None
    draw: int = 0
    label_bound: float | None = None

    def __post_init__(self) -> None:
        require_at_least("coding.coded_samples", self.coded_samples, 1)
        require_at_least("coding.draw", self.draw, 0)
        if self.clip_norm is not None:
            require_positive("coding.clip_norm", self.clip_norm)
        if self.participants is not None and not self.participants.any():
            raise InputError("no device takes part in the coded upload: offer more, or use a scheme without one.")
        for name, values in (
            ("coding.noise_variance", self.noise_variance),
            ("coding.label_noise_variance", self.label_noise_variance),
        ):
            bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
            if bad.size:
                raise InputError(
                    f"{name} = {values[bad[0]]} of device {bad[0] + 1} must be a finite number, zero or more."
                )

    def without_noise(self) -> Code:
        """Return the code with no noise at all."""
        blank = 0 * self.noise_variance
        return replace(self, noise_variance=blank, label_noise_variance=blank)

    @cached_property
    def uploading(self) -> BoolArray:
        """Which devices upload coded data, (N,)."""
        return np.ones(len(self.noise_variance), np.bool_) if self.participants is None else self.participants

    def streams(self, streams: Streams) -> Streams:
        """Return the streams of this draw of the coded data, given those of the setting."""
        return streams.child(f"coded-data-{self.draw}") if self.draw else streams


def asking(everyone: AdaptiveBatchArrivals | FixedBatchArrivals, cohort: int | None) -> Arrivals:
    """Return the arrivals when a random cohort is asked in each round; None asks all devices."""
    return everyone if cohort is None else CohortArrivals(everyone, cohort)


_grams: WeakKeyDictionary[Federation, Gram] = WeakKeyDictionary()


def gram_of(federation: Federation, workers: Workers) -> Gram:
    """Return the second moments ``[X Y]^T [X Y]`` of a federation, computed once however many settings share it."""
    if federation not in _grams:
        _grams[federation] = compute_gram([Rows(federation.features, federation.labels)], workers)
    return _grams[federation]


@dataclass(frozen=True)
class Setting:
    """Everything that does not depend on the scheme.

    Args:
        federation: the data of the devices and the test set.
        fleet: MAC rate and transmit power of each device, or when it answers.
        channel: the wireless channel; of no consequence if answers were measured.
        code: coded samples and noise.
        local_steps: ``tau`` of the schemes that aggregate periodically.
        deadline_s: ``T``.
        server_mac_rate: MAC per second at the server.
        server_batch: ``b_s``; None for the largest that the server can process within the deadline.
        streams: all randomness.
        workers: threads; no result depends on their number.
        cohort: devices asked per round, drawn at random; None for all.
        privacy: what everything that a device sends has to keep; None for no such demand.
    """

    federation: Federation
    fleet: AnyFleet
    channel: Channel
    code: Code
    local_steps: int
    deadline_s: float
    server_mac_rate: float
    server_batch: int | None
    streams: Streams
    workers: Workers = field(default_factory=Workers, metadata=NOT_IDENTITY)
    cohort: int | None = None
    privacy: PrivacyTarget | None = None

    def __post_init__(self) -> None:
        require_at_least("training.local_steps", self.local_steps, 1)
        require_positive("training.deadline_s", self.deadline_s)
        require_positive("fleet.server_mac_rate", self.server_mac_rate)
        devices = self.federation.devices
        if self.cohort is not None and not 1 <= self.cohort <= devices:
            raise InputError(
                f"training.cohort = {self.cohort} must be between 1 and the {devices} device(s) there are."
            )
        for name, count in (
            ("the fleet", self.fleet.devices),
            ("coding.noise_variance", len(self.code.noise_variance)),
            ("coding.label_noise_variance", len(self.code.label_noise_variance)),
            ("the list of participants", len(self.code.uploading)),
        ):
            if count != devices:
                raise InputError(f"{name} describes {count} device(s) but the data has {devices}: they must agree.")

    def __repr__(self) -> str:
        clock = f"{self.local_steps} local step(s) in rounds of {self.deadline_s:g} s, seed {self.streams.seed}"
        return f"Setting({self.federation!r}, {self.code.coded_samples} coded samples, {clock})"

    @property
    def label_bound(self) -> float | None:
        """``B_Y``: 1 for one-hot labels, the bound that a regression's labels were clipped to, None without one."""
        return 1.0 if self.federation.task == "classification" else self.code.label_bound

    def workload(self, local_steps: int | None = None) -> Workload:
        """Return the work of a device in a round of ``local_steps`` (default ``tau``)."""
        return Workload.for_linear_model(
            self.federation.dimension, self.federation.outputs, local_steps or self.local_steps
        )

    def timing(self, local_steps: int | None = None, deadline_s: float | None = None) -> Timing:
        """Return the timing of a round with ``local_steps`` (default ``tau``) within ``deadline_s`` (default ``T``)."""
        return round_timing(self.fleet, self.channel, self.workload(local_steps), deadline_s or self.deadline_s)

    def server_batch_of(self, coded_samples: int) -> int:
        """Return ``b_s`` for a number of coded samples: as given, or the largest that the server has time for."""
        batch = self.server_batch or self.timing().server_batch(self.server_mac_rate, coded_samples)
        return min(batch, coded_samples)

    def rows(self, device: int) -> Rows:
        """Return the samples of one device."""
        return Rows(*self.federation.device(device))

    @property
    def uploading_rows(self) -> list[Rows]:
        """The samples of each device, none of those that upload nothing."""
        return [self.rows(i) if uploads else self.no_rows for i, uploads in enumerate(self.code.uploading)]

    @property
    def no_rows(self) -> Rows:
        """The empty set of rows, encoded by a device that uploads nothing."""
        return Rows(self.federation.features[:0], self.federation.labels[:0])

    @property
    def gram(self) -> Gram:
        """Second moments of the global dataset, computed once for all settings on it."""
        return gram_of(self.federation, self.workers)

    @property
    def known_gram(self) -> Gram | None:
        """The Gram matrix; None if it would be too large to hold."""
        width = self.federation.dimension + self.federation.outputs
        return self.gram if width <= LARGEST_GRAM else None
