"""Recorded rounds: taken from any arrivals, written to a file, read back and replayed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from codedfl._device_table import Allowed, DeviceTable, read_device_table
from codedfl._messages import shown
from codedfl._validation import require_finite, require_positive
from codedfl.errors import InputError
from codedfl.files import csv_text, write_atomically
from codedfl.fleet._arrivals import Arrivals, given_arrival, read_only
from codedfl.fleet._inputs import counts, float_vector, whole_number
from codedfl.fleet._profiles import checked_names
from codedfl.fleet._round import Attendance
from codedfl.typing import BoolArray, FloatArray, IntArray

COLUMNS = ("round", "device", "batch_size", "arrived", "late_bits", "probability", "duration_s", "rounds")
COHORT_COLUMNS = ("asked", "weight")
ESTIMATE = "estimate"


@dataclass(frozen=True, eq=False)
class TraceArrivals:
    """Replay K recorded rounds of N devices, of which n are asked in each round.

    Args:
        batch_sizes: samples per local step of every device that is asked, (K, n).
        arrived: whose update reached the server in time, (K, n).
        probability: p_i, (N,).
        duration_s: T.
        late_bits: bits sent by devices that missed the deadline, (K, n); None for none.
        devices: the numbers of the devices that are asked, ascending in each round, (K, n); None for all, in order.
        weight: what an update counts for in each round because other devices were not asked, (K,); None for 1.
        estimates: p_i as estimated before each round, where it was estimated as rounds went by, (K, N); None for
            ``probability`` in every round.

    Example:
        >>> trace = TraceArrivals(np.array([[8, 8], [8, 0]]), np.array([[True, False], [True, False]]),
        ...                       probability=np.array([0.9, 0.4]), duration_s=10.0)
        >>> trace.attend(0).arrived
        array([ True, False])
    """

    batch_sizes: IntArray
    arrived: BoolArray
    probability: FloatArray
    duration_s: float
    late_bits: FloatArray | None = None
    devices: IntArray | None = None
    weight: FloatArray | None = None
    estimates: FloatArray | None = None

    def __post_init__(self) -> None:
        require_positive("trace.duration_s", self.duration_s)
        probability = float_vector("trace.probability", self.probability)
        if not ((probability >= 0) & (probability <= 1)).all():
            raise InputError("trace.probability must lie from 0 to 1 for every device.")
        asked = probability.size if self.devices is None else np.shape(self.devices)[-1]
        batch = np.array(counts("trace.batch_sizes", self.batch_sizes, asked))
        arrived = np.array(self.arrived)
        if batch.ndim != 2 or arrived.shape != batch.shape or arrived.dtype != np.bool_:
            raise InputError(
                f"trace.batch_sizes has shape {batch.shape} and trace.arrived is {arrived.dtype} of shape "
                f"{arrived.shape}: give whole numbers and booleans, one row per round and {asked} column(s)."
            )
        if (arrived & (batch == 0)).any():
            first = tuple(int(i) for i in np.argwhere(arrived & (batch == 0))[0])
            raise InputError(
                f"trace.arrived is true at (round, device) = {first}, where trace.batch_sizes = 0 says that the device "
                "sat the round out: correct one of them."
            )
        late = np.zeros(batch.shape) if self.late_bits is None else np.array(self.late_bits, dtype=np.float64)
        weight = np.ones(len(batch)) if self.weight is None else np.array(self.weight, dtype=np.float64)
        if late.shape != batch.shape or weight.shape != batch.shape[:1]:
            raise InputError(
                f"trace.late_bits has shape {late.shape} and trace.weight {weight.shape}: give {batch.shape} and "
                f"{batch.shape[:1]}, as trace.batch_sizes has."
            )
        require_finite("trace.late_bits", late)
        require_finite("trace.weight", weight)
        if (late < 0).any() or (weight <= 0).any():
            raise InputError("trace.late_bits must be zero or more and trace.weight positive in every round.")
        fields = {
            "batch_sizes": batch,
            "arrived": arrived,
            "probability": probability,
            "late_bits": late,
            "weight": weight,
        }
        if self.devices is not None:
            fields["devices"] = _checked_devices(np.array(self.devices), batch.shape, probability.size)
        if self.estimates is not None:
            fields["estimates"] = _checked_estimates(np.array(self.estimates, dtype=np.float64), batch.shape[0], self)
        for name, array in fields.items():
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @classmethod
    def record(cls, arrivals: Arrivals, rounds: int) -> TraceArrivals:
        """Record the first rounds of any arrivals; the replay of each is identical to the original.

        Raises:
            InputError: the rounds ask different numbers of devices.
        """
        seen = [arrivals.attend(round) for round in range(whole_number("rounds", rounds, 1))]
        if len({(a.devices is None, len(a.batch_sizes)) for a in seen}) > 1:
            raise InputError("rounds that ask different numbers of devices cannot be recorded: fix the cohort.")
        chosen = [a.devices for a in seen if a.devices is not None]
        estimates = [a.probability for a in seen if a.probability is not None]
        return cls(
            batch_sizes=np.stack([a.batch_sizes for a in seen]),
            arrived=np.stack([a.arrived for a in seen]),
            probability=arrivals.probability,
            duration_s=arrivals.duration_s,
            late_bits=np.stack([a.late_bits for a in seen]),
            devices=np.stack(chosen) if chosen else None,
            weight=np.array([a.weight for a in seen]),
            estimates=np.stack(estimates) if len(estimates) == len(seen) else None,
        )

    @property
    def rounds(self) -> int:
        """Number of recorded rounds, K."""
        return len(self.batch_sizes)

    @cached_property
    def inverse_batch(self) -> FloatArray:
        """The mean of 1 / b_i over the recorded rounds in which the update arrived, NaN where it never did."""
        asked = np.broadcast_to(
            np.arange(self.probability.size) if self.devices is None else self.devices, self.arrived.shape
        )
        devices, inverse = asked[self.arrived], 1.0 / self.batch_sizes[self.arrived]
        arrivals = np.bincount(devices, minlength=self.probability.size).astype(np.float64)
        total: FloatArray = np.bincount(devices, weights=inverse, minlength=self.probability.size).astype(np.float64)
        return read_only(given_arrival(total, arrivals))

    def attend(self, round: int) -> Attendance:
        """Return a recorded round."""
        if whole_number("round", round, 0) >= self.rounds:
            raise InputError(
                f"round = {round} is beyond the trace, which has {self.rounds} round(s): record more or run fewer."
            )
        # Set by __post_init__.
        assert self.late_bits is not None
        assert self.weight is not None
        return Attendance(
            self.batch_sizes[round],
            self.arrived[round],
            self.late_bits[round],
            None if self.devices is None else self.devices[round],
            float(self.weight[round]),
            None if self.estimates is None else self.estimates[round],
        )


def _checked_devices(devices: IntArray, shape: tuple[int, ...], fleet: int) -> IntArray:
    if devices.shape != shape or devices.dtype.kind not in "iu":
        raise InputError(
            f"trace.devices has shape {devices.shape} and dtype {devices.dtype}: give integers of shape {shape}."
        )
    if (devices < 0).any() or (devices >= fleet).any() or (np.diff(devices, axis=1) <= 0).any():
        raise InputError(f"trace.devices must be numbers from 0 to {fleet - 1}, ascending in each round.")
    return devices.astype(np.int64)


def _checked_estimates(estimates: FloatArray, rounds: int, trace: TraceArrivals) -> FloatArray:
    if trace.devices is not None:
        raise InputError(
            "trace.estimates and trace.devices cannot be given together: all devices are asked, or none estimated."
        )
    expected = (rounds, len(trace.probability))
    if estimates.shape != expected or not ((estimates > 0) & (estimates <= 1)).all():
        raise InputError(
            f"trace.estimates has shape {estimates.shape}: give numbers above 0 and up to 1, of shape {expected}."
        )
    return estimates


def write_trace(path: str | Path, trace: TraceArrivals, names: Sequence[str]) -> None:
    r"""Write a trace to a CSV file with one row per round and device.

    The columns are ``round`` (from 0), ``device`` (its name), ``batch_size``, ``arrived`` (0 or 1), ``late_bits``, and what is
    needed to replay: ``probability`` (of the device), ``duration_s`` and ``rounds`` (of the trace, in every row). If each round
    asks only a cohort, there are two more columns, ``asked`` (0 or 1) and ``weight`` (of the round); then only devices that are
    asked have rows, and a device that is never asked has a single one, in round 0 with ``asked`` 0. If probabilities were
    estimated as rounds went by, a column ``estimate`` has the one in force in the round. Numbers are written so that they
    are read back exactly.

    Args:
        path: the file, replaced if it exists.
        trace: the rounds.
        names: the names of the N devices.

    Example:
        >>> import tempfile
        >>> trace = TraceArrivals(np.array([[8, 4]]), np.array([[True, False]]), np.array([0.9, 0.5]), 10.0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_trace(f"{folder}/trace.csv", trace, ["a", "b"])
        ...     print(Path(folder, "trace.csv").read_text(), end="")
        ...     read_trace(f"{folder}/trace.csv", ["a", "b"]).attend(0).arrived
        round,device,batch_size,arrived,late_bits,probability,duration_s,rounds
        0,a,8,1,0.0,0.9,10.0,1
        0,b,4,0,0.0,0.5,10.0,1
        array([ True, False])
    """
    devices = checked_names(names)
    if len(devices) != trace.probability.size:
        raise InputError(
            f"the trace has {trace.probability.size} device(s) but {len(devices)} name(s): give one for each."
        )
    p = trace.probability.tolist()
    cohort = trace.devices is not None
    rows: list[list[object]] = []

    def add(round: int, device: int, batch: int, arrived: bool, late: float, *more: float) -> None:
        rows.append(
            [round, devices[device], batch, int(arrived), late, p[device], trace.duration_s, trace.rounds, *more]
        )

    for number in range(trace.rounds):
        attendance = trace.attend(number)
        asked = range(len(devices)) if attendance.devices is None else attendance.devices.tolist()
        cells = (attendance.batch_sizes.tolist(), attendance.arrived.tolist(), attendance.late_bits.tolist())
        for device, batch, arrived, late in zip(asked, *cells, strict=True):
            more = (1, attendance.weight) if cohort else ()
            estimate = () if attendance.probability is None else (float(attendance.probability[device]),)
            add(number, device, batch, arrived, late, *more, *estimate)
    if trace.devices is not None:
        for device in np.setdiff1d(np.arange(len(devices)), trace.devices).tolist():
            add(0, device, 0, False, 0.0, 0, trace.attend(0).weight)
    columns = (*COLUMNS, *(COHORT_COLUMNS if cohort else ()), *(() if trace.estimates is None else (ESTIMATE,)))
    write_atomically(path, csv_text(columns, rows))


def read_trace(path: str | Path, names: Sequence[str]) -> TraceArrivals:
    """Read a trace that `write_trace` wrote, or that was put together in the same format; rows may be in any order.

    Args:
        path: a .csv or .parquet file.
        names: the names of the devices of the experiment, in their order.

    Raises:
        InputError: the file is damaged or truncated, or a device, round or value is missing, repeated or wrong; the message
            names the file and the row.
    """
    devices = checked_names(names)
    table = read_device_table(path, COLUMNS, (*COHORT_COLUMNS, ESTIMATE), field="trace")
    if table.rows == 0:
        raise InputError(f"{table.source} has a header but no row: record at least one round.")
    number = table.numbers("round", "a whole number, zero or more").astype(np.int64)
    batch = table.numbers("batch_size", "a whole number, zero or more").astype(np.int64)
    arrived = table.numbers("arrived", "0 or 1") == 1
    rounds = int(_constant(table, "rounds", np.zeros(table.rows, dtype=np.int64))[0])
    duration = float(_constant(table, "duration_s", np.zeros(table.rows, dtype=np.int64))[0])
    device = _device_numbers(table, devices)
    late = table.numbers("late_bits")
    cohort = "asked" in table.columns or "weight" in table.columns
    for column in COHORT_COLUMNS if cohort else ():
        if column not in table.columns:
            raise InputError(f"{table.source} has only one of the columns 'asked' and 'weight': give both or neither.")
    asked = np.flatnonzero(table.numbers("asked", "0 or 1") == 1) if cohort else np.arange(table.rows)
    for bad, column, what in (
        (number >= rounds, "round", f"is beyond the {rounds} round(s) of the trace: correct it or the column 'rounds'"),
        (arrived & (batch == 0), "arrived", "must be 0, as the batch size is 0"),
        (late < 0, "late_bits", "must be zero or more"),
    ):
        if bad.any():
            raise table.refusal(int(np.argmax(bad)), column, what)
    order = asked[np.lexsort((device[asked], number[asked]))]
    shape = (rounds, _rows_per_round(table, number[asked], rounds, None if cohort else len(devices)))
    again = (np.diff(number[order]) == 0) & (np.diff(device[order]) == 0)
    if again.any():
        row = int(order[1:][again][0])
        raise table.refusal(row, "device", f"has more than one row in round {number[row]}: keep one of them")
    return TraceArrivals(
        batch_sizes=batch[order].reshape(shape),
        arrived=arrived[order].reshape(shape),
        probability=_constant(table, "probability", device),
        duration_s=duration,
        late_bits=late[order].reshape(shape),
        devices=device[order].reshape(shape) if cohort else None,
        weight=_constant(table, "weight", number) if cohort else None,
        estimates=table.numbers(ESTIMATE)[order].reshape(shape) if ESTIMATE in table.columns else None,
    )


def _device_numbers(table: DeviceTable, names: tuple[str, ...]) -> IntArray:
    position = {name: i for i, name in enumerate(names)}
    numbers = np.array([position.get(name, -1) for name in table.names("device")], dtype=np.int64)
    if (numbers < 0).any():
        raise table.refusal(
            int(np.argmin(numbers)), "device", "is not a device of this experiment: replay it with its own fleet"
        )
    missing = np.setdiff1d(np.arange(len(names)), numbers)
    if missing.size:
        raise InputError(
            f"{table.source} has no row for device {shown(names[missing[0]])}: add it, or record the trace again."
        )
    return numbers


def _rows_per_round(table: DeviceTable, number: IntArray, rounds: int, expected: int | None) -> int:
    found = np.bincount(number, minlength=rounds)
    rows = int(found[0]) if expected is None else expected
    if (found != rows).any() or rows == 0:
        first = int(np.argmax(found != rows))
        raise InputError(
            f"{table.source} has {found[first]} of {rows} row(s) for round {first} of {rounds}: the file is truncated or rows "
            "are missing, so record the trace again."
        )
    return rows


def _constant(table: DeviceTable, column: str, group: IntArray) -> FloatArray:
    """Return the one value that a column has in every group of rows."""
    allowed: Allowed = "a finite number" if column == "probability" else "a positive finite number"
    values = table.numbers(column, allowed)
    first = np.zeros(int(group.max()) + 1)
    first[group[::-1]] = values[::-1]
    differs = values != first[group]
    if differs.any():
        raise table.refusal(
            int(np.argmax(differs)), column, f"differs from {first[group][differs][0]} in rows before: correct one"
        )
    return first
