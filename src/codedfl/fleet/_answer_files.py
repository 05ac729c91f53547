"""Recordings of who answered when, from a file."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from codedfl._device_table import DeviceTable, read_device_table
from codedfl._messages import listing
from codedfl.errors import InputError
from codedfl.fleet._recorded import RecordedAnswers
from codedfl.typing import FloatArray

ANSWER_COLUMNS = ("round", "device", "seconds")

MOST_CELLS = 10**8
"""Rounds times devices of a recording that still fits in memory."""


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
