"""Fleets and recordings of answers from files, in any of the ways to describe one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from codedfl._device_table import DeviceTable, read_device_table
from codedfl._messages import listing, shown
from codedfl.errors import InputError
from codedfl.fleet._answers import Answers, ArrivalChances, RecordedAnswers, ResponseTimes, impossible_tail
from codedfl.fleet._measured import AnyFleet, MeasuredFleet
from codedfl.fleet._profiles import Fleet, checked_names
from codedfl.typing import FloatArray, IntArray

ANSWER_COLUMNS = ("round", "device", "seconds")

MOST_CELLS = 10**8
"""Rounds times devices of a recording that still fits in memory."""

RATES = ("mac_rate", "uplink_bps")

DESCRIPTIONS: dict[str, tuple[str, ...]] = {
    "transmit_power_dbm": ("mac_rate", "transmit_power_dbm"),
    "arrival_probability": ("arrival_probability",),
    "mean_s": ("mean_s", "p95_s"),
    "p95_s": ("mean_s", "p95_s"),
    "seconds": ANSWER_COLUMNS,
}
"""The columns that describe a fleet, by each column that tells which description it is."""


def is_recording(path: str | Path) -> bool:
    r"""Tell by its columns whether a file says who answered when, in place of the arrivals that `write_trace` writes.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "answers.csv")
        ...     _ = file.write_text("round,device,seconds\n0,a,3.5\n")
        ...     is_recording(file)
        True
    """
    if not Path(path).is_file():
        return False
    return "seconds" in read_device_table(path, (), ANSWER_COLUMNS, field="fleet.trace", others=True).columns


def answers_in(table: DeviceTable, names: tuple[str, ...]) -> RecordedAnswers:
    """Return the answers in a table with `ANSWER_COLUMNS`; without a row, or with empty seconds, a device did not answer.

    Rounds are numbered from any number on. A number without a row is a round in which nobody answered.

    Args:
        table: the table.
        names: the devices of the experiment.

    Raises:
        InputError: a row is wrong or repeated, or there is no answer at all.
    """
    if table.rows == 0:
        raise InputError(f"{table.source} has a header but no row: record at least one answer.")
    position = {name: place for place, name in enumerate(names)}
    device = np.array([position.get(name, -1) for name in table.names("device")], dtype=np.int64)
    if (device < 0).any():
        row = int(np.argmin(device))
        raise table.refusal(row, "device", unknown_device(names))
    number = table.numbers("round", "a whole number, zero or more").astype(np.int64)
    first, rounds = int(number.min()), int(np.ptp(number)) + 1
    if rounds * len(names) > MOST_CELLS:
        raise InputError(
            f"{table.source} has rounds from {first} to {first + rounds - 1}, too many for {len(names)} device(s): number the "
            "rounds one by one."
        )
    values = _seconds(table)
    order = np.lexsort((device, number))
    again = (np.diff(number[order]) == 0) & (np.diff(device[order]) == 0)
    if again.any():
        row = int(order[1:][again][0])
        raise table.refusal(row, "device", f"has more than one row in round {number[row]}: keep one of them")
    seconds = np.full((rounds, len(names)), np.nan)
    seconds[number - first, device] = values
    if np.isnan(seconds).all():
        raise InputError(f"{table.source} has no answer in the column 'seconds': record at least one.")
    return RecordedAnswers(seconds)


def unknown_device(names: tuple[str, ...]) -> str:
    """Return what is wrong with a name that is none of the devices', as the end of a sentence."""
    return f"is not a device of this experiment ({listing(names, 4)}): correct the name or remove the row"


def _seconds(table: DeviceTable) -> FloatArray:
    """Return the column ``seconds``, NaN where it is empty."""
    empty = np.array([_is_empty(cell) for cell in table.columns["seconds"]])
    filled = {
        **table.columns,
        "seconds": [0 if no else cell for no, cell in zip(empty, table.columns["seconds"], strict=True)],
    }
    values = replace(table, columns=filled).numbers("seconds")
    if (values < 0).any():
        raise table.refusal(int(np.argmin(values)), "seconds", "must be zero or more, or empty for no answer")
    return np.where(empty, np.nan, values)


def _is_empty(cell: Any) -> bool:
    return cell is None or cell == "" or (isinstance(cell, float) and math.isnan(cell))


def read_fleet(
    path: str | Path, names: Sequence[str], *, name_column: str = "name", field: str = "fleet.file"
) -> AnyFleet:
    r"""Read a fleet from a table that describes it in one of four ways.

    - ``mac_rate`` and ``transmit_power_dbm``, one row per device: the radio model.
    - ``arrival_probability``, one row per device: the chance to make the deadline.
    - ``mean_s`` and ``p95_s``, one row per device: time until an answer, its mean and 95th percentile.
    - ``round``, ``device`` and ``seconds``, one row per answer: a recording; a device without a row did not answer.

    The second and third way allow ``batch_size``, the rows per local step that a device had when it was measured, and
    ``mac_rate`` with ``uplink_bps``, which make the charge of uploads before training exact.

    With a column ``name`` (or ``device``) rows may be in any order and are matched to ``names``; without one they are in the
    order of ``names``. Either way there is exactly one row per device. Other columns are ignored.

    Args:
        path: a .csv or .tsv file (UTF-8) or a .parquet file.
        names: the devices of the experiment.
        name_column: another column that names devices, such as the one of the data.
        field: the configuration field that the path was given in, for messages.

    Raises:
        InputError: the file cannot be read, or a device, column or number is missing or wrong; rows are counted from 1
            below the header.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "fleet.csv"
        ...     _ = file.write_text("name,mean_s,p95_s\nb,20,45\na,30,50\n")
        ...     fleet = read_fleet(file, ["a", "b"])
        >>> fleet.columns()["mean_s"]
        array([30., 20.])
    """
    devices = checked_names(names)
    name_columns = tuple(dict.fromkeys(("name", "device", *([name_column] if name_column else []))))
    known = dict.fromkeys(("batch_size", *RATES, "round", *(c for each in DESCRIPTIONS.values() for c in each)))
    table = read_device_table(path, (), tuple(dict.fromkeys((*name_columns, *known))), field=field, others=True)
    columns = _description(table)
    if columns == ANSWER_COLUMNS:
        return MeasuredFleet(devices, answers_in(table, devices))
    named = next((column for column in name_columns if column in table.columns), None)
    order = _rows_in_order(table, devices) if named is None else _rows_by_name(table, named, devices)
    if "transmit_power_dbm" in columns:
        mac_rate, power = table.numbers("mac_rate", "a positive finite number"), table.numbers("transmit_power_dbm")
        return Fleet(names=devices, mac_rate=mac_rate[order], transmit_power_dbm=power[order])
    return _measured(table, columns, devices, order)


def _description(table: DeviceTable) -> tuple[str, ...]:
    """Return the columns that describe the fleet, all of which are there; refuse two descriptions and none."""
    found = list(dict.fromkeys(columns for tell, columns in DESCRIPTIONS.items() if tell in table.columns))
    ways = list(dict.fromkeys(DESCRIPTIONS.values()))
    if not found and "mac_rate" in table.columns:
        found = [("mac_rate", "transmit_power_dbm")]
    if not found:
        raise InputError(
            f"{table.source} has no columns that describe devices: name the columns in the first line, separated by commas, one "
            f"of {'; '.join(' and '.join(map(shown, way)) for way in ways)}."
        )
    if len(found) > 1:
        twice = " and by ".join(listing(column for column in way if column in table.columns) for way in found)
        raise InputError(f"{table.source} describes devices by {twice}: keep one description and remove the other.")
    for column in found[0]:
        if column not in table.columns:
            raise InputError(
                f"{table.source} has no column {shown(column)}, which belongs to "
                f"{listing(shown(other) for other in found[0] if other in table.columns)}: add it."
            )
    return found[0]


def _measured(table: DeviceTable, columns: tuple[str, ...], names: tuple[str, ...], order: IntArray) -> MeasuredFleet:
    answers: Answers
    if "arrival_probability" in columns:
        answers = ArrivalChances(table.numbers("arrival_probability", "a number from 0 to 1")[order])
    else:
        mean, p95 = (table.numbers(column, "a positive finite number") for column in columns)
        for row, pair in enumerate(zip(mean.tolist(), p95.tolist(), strict=True)):
            if problem := impossible_tail(*pair):
                raise table.refusal(row, "p95_s", problem)
        answers = ResponseTimes(mean[order], p95[order])
    batch = None
    if "batch_size" in table.columns:
        batch = table.numbers("batch_size", "a whole number, zero or more").astype(np.int64)
        if (batch < 1).any():
            raise table.refusal(int(np.argmin(batch)), "batch_size", "must be 1 or more")
    rates = [column for column in RATES if column in table.columns]
    if len(rates) == 1:
        raise InputError(
            f"{table.source} has a column {shown(rates[0])} but none {shown(RATES[1 - RATES.index(rates[0])])}: give both, to "
            "charge uploads by them, or neither."
        )
    mac_rate, uplink = (
        (table.numbers(column, "a positive finite number")[order] for column in RATES) if rates else (None, None)
    )
    return MeasuredFleet(names, answers, None if batch is None else batch[order], mac_rate, uplink)


def _rows_in_order(table: DeviceTable, names: tuple[str, ...]) -> IntArray:
    if table.rows != len(names):
        raise InputError(
            f"{table.source} has {table.rows} row(s) for {len(names)} device(s): give one row per device, in order, or add a "
            "column 'name'."
        )
    return np.arange(len(names))


def _rows_by_name(table: DeviceTable, column: str, names: tuple[str, ...]) -> IntArray:
    row_of = {name: row for row, name in enumerate(table.unique_names(column))}
    unknown = row_of.keys() - set(names)
    if unknown:
        row = min(row_of[name] for name in unknown)
        raise table.refusal(row, column, unknown_device(names))
    for name in names:
        if name not in row_of:
            raise InputError(f"{table.source} has no row for device {shown(name)}: add one.")
    return np.array([row_of[name] for name in names], dtype=np.int64)
