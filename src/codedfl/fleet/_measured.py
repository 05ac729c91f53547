"""A fleet that is known by its answers, and the rounds of any fleet."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from codedfl._validation import require_positive
from codedfl.errors import InputError
from codedfl.fleet._answers import Answers
from codedfl.fleet._inputs import count_vector, counts, float_vector
from codedfl.fleet._profiles import Fleet, checked_names
from codedfl.fleet._radio import Channel, RoundTiming
from codedfl.fleet._round import Attendance, ServerTiming, Workload
from codedfl.streams import Streams
from codedfl.typing import FloatArray, IntArray, ShortRepr

JUST_ABOVE = 1.0 + 1e-9


@dataclass(frozen=True, eq=False, repr=False)
class MeasuredFleet(ShortRepr):
    """N devices of which it is known when they answer, but not how fast they compute or how strongly they transmit.

    Args:
        names: one unique name per device.
        answers: `ArrivalChances`, `ResponseTimes` or `RecordedAnswers`.
        batch_size: rows per local step that a device had in the measured time, (N,); None for all of its rows.
        mac_rate: multiply-accumulate operations per second, (N,); None if not known.
        uplink_bps: bits per second from a device to the server, (N,); None if not known.

    Example:
        >>> from codedfl.fleet import ArrivalChances
        >>> fleet = MeasuredFleet(("clinic", "ward"), ArrivalChances(np.array([0.9, 0.5])))
        >>> fleet.usual_batch(np.array([300, 120]))
        array([300, 120])
    """

    names: tuple[str, ...]
    answers: Answers
    batch_size: IntArray | None = None
    mac_rate: FloatArray | None = None
    uplink_bps: FloatArray | None = None

    radio: ClassVar[Literal[False]] = False
    """Whether its answers follow from the radio model, and devices can adapt to the channel."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", checked_names(self.names))
        if self.answers.devices != self.devices:
            raise InputError(
                f"the answers are those of {self.answers.devices} device(s), but the fleet has {self.devices} name(s): give one "
                "for each."
            )
        if self.batch_size is not None:
            batch = count_vector("fleet.batch_size", self.batch_size, self.devices)
            if (batch < 1).any():
                raise InputError("fleet.batch_size must be 1 or more for every device.")
            object.__setattr__(self, "batch_size", batch)
        if (self.mac_rate is None) != (self.uplink_bps is None):
            raise InputError("fleet.mac_rate and fleet.uplink_bps charge uploads together: give both or neither.")
        for name in ("mac_rate", "uplink_bps") if self.mac_rate is not None else ():
            values = float_vector(f"fleet.{name}", getattr(self, name))
            if values.size != self.devices or not (values > 0).all():
                raise InputError(f"fleet.{name} must be a positive number for each of the {self.devices} device(s).")
            object.__setattr__(self, name, values)

    @property
    def devices(self) -> int:
        """The number of devices, N."""
        return len(self.names)

    def among(self, devices: IntArray) -> MeasuredFleet:
        """Return the fleet of the devices with these indices."""
        names = tuple(self.names[i] for i in devices.tolist())
        batch = None if self.batch_size is None else self.batch_size[devices]
        mac_rate, uplink = (None if rate is None else rate[devices] for rate in (self.mac_rate, self.uplink_bps))
        return MeasuredFleet(names, self.answers.among(devices), batch, mac_rate, uplink)

    def usual_batch(self, samples: IntArray) -> IntArray:
        """Return the rows per local step of a device that answers: ``batch_size``, at most and by default all its rows."""
        return samples if self.batch_size is None else np.minimum(self.batch_size, samples)

    def columns(self) -> dict[str, FloatArray]:
        """Return what is known about every device, by the name of its column in a file, (N,) each."""
        known = {"batch_size": self.batch_size, "mac_rate": self.mac_rate, "uplink_bps": self.uplink_bps}
        own = {name: np.asarray(values, np.float64) for name, values in known.items() if values is not None}
        return own | self.answers.columns()

    @property
    def recorded_rounds(self) -> int | None:
        """How many rounds were recorded; None if the answers are drawn."""
        return self.answers.rounds


@dataclass(frozen=True, repr=False)
class MeasuredTiming(ShortRepr, ServerTiming):
    """A round of a measured fleet: the time until an answer is that of the whole round, whatever it is made of.

    A device that is given more rows than in the measurement takes proportionally longer; fewer rows or local steps do not make
    it faster. A chance to make the deadline (`ArrivalChances`) holds for any work.

    Args:
        fleet: the devices.
        workload: what a device does in a round.
        deadline_s: T.

    Example:
        >>> from codedfl.fleet import ResponseTimes
        >>> fleet = MeasuredFleet(("a", "b"), ResponseTimes(np.array([20.0, 40.0]), np.array([45.0, 60.0])))
        >>> timing = MeasuredTiming(fleet, Workload.for_linear_model(50, 2, 5), deadline_s=45.0)
        >>> timing.arrival_probability(1).round(3)
        array([0.95 , 0.717])
    """

    fleet: MeasuredFleet
    workload: Workload
    deadline_s: float

    radio: ClassVar[Literal[False]] = False
    """Whether times follow from the radio model."""

    def __post_init__(self) -> None:
        require_positive("deadline_s", self.deadline_s)

    def among(self, devices: IntArray) -> MeasuredTiming:
        """Return the round of the devices with these indices."""
        return replace(self, fleet=self.fleet.among(devices))

    def arrival_probability(self, batch: npt.ArrayLike) -> FloatArray:
        """Return p_i(b), and 0 for a batch of 0."""
        size = counts("batch", batch, self.fleet.devices)
        return np.where(size > 0, self.fleet.answers.probability(self.deadline_s, self._work(size)), 0.0)

    def expected_batch(self, samples: IntArray) -> FloatArray:
        """Return E[b_k^i], the mean of what a device contributes to a round: its usual batch, 0 in rounds that it misses."""
        usual = self.fleet.usual_batch(samples)
        return usual * self.arrival_probability(usual)

    def straggler_ratio(self, batch: npt.ArrayLike) -> float:
        """Return the mean of 1 - p_i(b_i), the share of devices that miss the deadline on average."""
        return float(np.mean(1.0 - self.arrival_probability(batch)))

    def attend(self, batch_sizes: IntArray, streams: Streams, round: int) -> Attendance:
        """Return who arrives with these batches. A late answer is sent in full; who does not answer does nothing."""
        in_time, answers = self.fleet.answers.attend(self.deadline_s, self._work(batch_sizes), streams, round)
        arrived = in_time & (batch_sizes > 0)
        late = answers & ~arrived & (batch_sizes > 0)
        return Attendance(np.where(answers, batch_sizes, 0), arrived, late * float(self.workload.payload_bits))

    def preparation_s(self, bits: FloatArray, macs: FloatArray, samples: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the time for arithmetic before training and for sending what it made, (N,) each.

        Without the two rates of the devices this is an upper bound: if the work is j times the arithmetic of a round and k times
        its upload, it takes at most max(j, k) times a round. The larger of the two is charged, the other is contained in it.

        Args:
            bits: sent by each device, (N,).
            macs: arithmetic on each device, (N,).
            samples: l_i, (N,).
        """
        fleet = self.fleet
        if fleet.mac_rate is not None and fleet.uplink_bps is not None:
            return macs / fleet.mac_rate, bits / fleet.uplink_bps
        rows = np.maximum(fleet.usual_batch(samples), 1)
        arithmetic = macs / (self.workload.local_steps * self.workload.macs_per_sample * rows)
        upload = bits / self.workload.payload_bits
        computes = arithmetic > upload
        return np.where(computes, arithmetic, 0.0) * self.answer_s, np.where(computes, 0.0, upload) * self.answer_s

    def computing_s(self, macs: FloatArray, updates: FloatArray) -> FloatArray:
        """Return the time that each device took for arithmetic, (N,); all of its time to answer, if its rate is not known."""
        return updates * self.answer_s if self.fleet.mac_rate is None else macs / self.fleet.mac_rate

    def receiving_s(self, bits: float) -> FloatArray:
        """Return the time in which each device downloads something, (N,): at its uplink rate, else no slower than in a round."""
        if self.fleet.uplink_bps is not None:
            return bits / self.fleet.uplink_bps
        return bits / self.workload.payload_bits * self.answer_s

    @property
    def answer_s(self) -> FloatArray:
        """The mean time of a round's work, (N,); T where only a chance to make the deadline is known."""
        mean = self.fleet.answers.mean_s
        return np.full(self.fleet.devices, self.deadline_s) if mean is None else mean

    def shortest_s(self, batch: npt.ArrayLike) -> float:  # noqa: ARG002 (of the radio model)
        """Return a deadline that hardly anybody makes; T if arrivals are known for T alone."""
        return self.deadline_s if self.fixed_deadline else self.fleet.answers.shortest_s * JUST_ABOVE

    def longest_s(self, batch: npt.ArrayLike) -> float:
        """Return a deadline beyond which no more devices arrive, or infinity; T if arrivals are known for T alone."""
        if self.fixed_deadline:
            return self.deadline_s
        work = self._work(counts("batch", batch, self.fleet.devices))
        return self.fleet.answers.longest_s * float(np.max(work)) * JUST_ABOVE

    @property
    def fixed_deadline(self) -> bool:
        """Whether arrivals are known for this deadline alone."""
        return self.fleet.answers.mean_s is None

    def _work(self, batch: IntArray) -> FloatArray:
        """Return the work of a batch in units of the measured one, 1 or more."""
        if self.fleet.batch_size is None:
            return np.ones(np.shape(batch))
        return np.maximum(batch / self.fleet.batch_size, 1.0)


AnyFleet = Fleet | MeasuredFleet
Timing = RoundTiming | MeasuredTiming


def round_timing(fleet: AnyFleet, channel: Channel, workload: Workload, deadline_s: float) -> Timing:
    """Return the times of a round: by the radio model, or for a measured fleet as measured, whatever the channel.

    Example:
        >>> import numpy as np
        >>> from codedfl.fleet import ArrivalChances
        >>> fleet = MeasuredFleet(("a", "b"), ArrivalChances(np.array([0.9, 0.4])))
        >>> round_timing(fleet, Channel(), Workload.for_linear_model(50, 2, 5), 10.0).straggler_ratio(1)
        0.35
    """
    if fleet.radio:
        return RoundTiming(fleet, channel, workload, deadline_s)
    return MeasuredTiming(fleet, workload, deadline_s)
