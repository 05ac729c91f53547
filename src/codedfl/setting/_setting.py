"""The setting in which schemes are compared: the same data, fleet, channel, code and clock for all."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from weakref import WeakKeyDictionary

from codedfl._validation import require_at_least, require_positive
from codedfl.coding import Gram, Rows, compute_gram
from codedfl.data import Federation
from codedfl.errors import InputError
from codedfl.fleet import BITS_PER_NUMBER, AnyFleet, Channel, Timing, Workload, round_timing
from codedfl.identity import NOT_IDENTITY
from codedfl.losses import SQUARE, Loss
from codedfl.parallel import Workers
from codedfl.privacy import PrivacyTarget
from codedfl.setting._code import Code
from codedfl.streams import Streams

LARGEST_GRAM = 16_384
"""Columns up to which a Gram matrix is computed (2 GiB in float64)."""


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
        loss: what devices take their steps on.
        traffic: numbers that a device receives and sends in a round; None for a model and an update.
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
    loss: Loss = SQUARE
    traffic: tuple[int, int] | None = None

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
        usual = Workload.for_linear_model(
            self.federation.dimension, self.federation.outputs, local_steps or self.local_steps
        )
        if self.traffic is None:
            return usual
        down, up = self.traffic
        return replace(usual, payload_bits=BITS_PER_NUMBER * up, download_bits=BITS_PER_NUMBER * down)

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
