"""Read measured device profiles from a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from codedfl._device_table import DeviceTable, read_device_table
from codedfl._messages import shown
from codedfl.errors import InputError
from codedfl.fleet._profiles import Fleet, checked_names
from codedfl.typing import IntArray


def read_fleet(path: str | Path, names: Sequence[str]) -> Fleet:
    r"""Read a fleet from a table with the columns ``mac_rate`` and ``transmit_power_dbm``, and optionally ``name``.

    With a ``name`` column the rows may be in any order and are matched to ``names``; without one they are in the order
    of ``names``. Either way there is exactly one row per device. Other columns are ignored.

    Args:
        path: a .csv file (UTF-8) or a .parquet file.
        names: the devices of the experiment.

    Raises:
        InputError: the file cannot be read, or a device, column or number is missing or wrong; rows are counted from 1
            below the header.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "fleet.csv"
        ...     _ = file.write_text("name,mac_rate,transmit_power_dbm\nb,1.5e6,23\na,1.3e6,17\n")
        ...     read_fleet(file, ["a", "b"]).mac_rate
        array([1300000., 1500000.])
    """
    given = checked_names(names)
    columns = ("mac_rate", "transmit_power_dbm")
    table = read_device_table(path, columns, ["name"], field="fleet.file", others=True)
    mac_rate = table.numbers("mac_rate", "a positive finite number")
    power = table.numbers("transmit_power_dbm")
    order = _rows_by_name(table, given) if "name" in table.columns else _rows_in_order(table, given)
    return Fleet(names=given, mac_rate=mac_rate[order], transmit_power_dbm=power[order])


def _rows_in_order(table: DeviceTable, names: tuple[str, ...]) -> IntArray:
    if table.rows != len(names):
        raise InputError(
            f"{table.source} has {table.rows} row(s) for {len(names)} device(s): give one row per device, in order, or add a "
            "column 'name'."
        )
    return np.arange(len(names))


def _rows_by_name(table: DeviceTable, names: tuple[str, ...]) -> IntArray:
    row_of = {name: row for row, name in enumerate(table.unique_names())}
    unknown = row_of.keys() - set(names)
    if unknown:
        row = min(row_of[name] for name in unknown)
        raise table.refusal(row, "name", "is not a device of this experiment: correct the name or remove the row")
    for name in names:
        if name not in row_of:
            raise InputError(f"{table.source} has no row for device {shown(name)}: add one.")
    return np.array([row_of[name] for name in names], dtype=np.int64)
