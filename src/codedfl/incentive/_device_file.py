"""Read devices and their privacy sensitivities from a file."""

from __future__ import annotations

from pathlib import Path

from codedfl._device_table import read_device_table
from codedfl.errors import InputError
from codedfl.incentive._traits import DeviceTraits


def read_devices(path: str | Path) -> tuple[tuple[str, ...], DeviceTraits]:
    r"""Read the names and traits of devices, one row per device.

    Args:
        path: a .csv (UTF-8) or .parquet file with the column ``sensitivity`` and optionally ``name``, ``h2`` (interference
            ``h_i^2``, 0 by default) and ``min_noise_variance`` (0 by default). Rows may be in any order of sensitivity.

    Returns:
        The names, ``device-1`` and so on where the file has none, and the traits, in the order of the file.

    Raises:
        InputError: the file cannot be read, a column is unknown or missing, or a value is out of range.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "devices.csv"
        ...     _ = file.write_text("name,sensitivity\nphone,1.5\nwatch,2\n")
        ...     names, traits = read_devices(file)
        >>> names, traits.sensitivity.tolist()
        (('phone', 'watch'), [1.5, 2.0])
    """
    table = read_device_table(path, ["sensitivity"], ["name", "h2", "min_noise_variance"])
    if table.rows == 0:
        raise InputError(f"{table.source} has a header but no row: give one row per device.")
    others = {"h2": "interference", "min_noise_variance": "min_noise_variance"}
    traits = DeviceTraits(
        table.numbers("sensitivity"),
        **{trait: table.numbers(column) for column, trait in others.items() if column in table.columns},
    )
    if "name" in table.columns:
        return table.unique_names(), traits
    return tuple(f"device-{row + 1}" for row in range(table.rows)), traits
