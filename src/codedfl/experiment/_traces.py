"""Traces of a comparison: the arrivals in every round, recorded for another run to replay."""

from __future__ import annotations

from pathlib import Path

from codedfl.errors import InputError
from codedfl.fleet import TraceArrivals, write_trace
from codedfl.identity import identity
from codedfl.results import Comparison


def record_trace(comparison: Comparison, path: str | Path) -> None:
    """Write the attendance of every round of a comparison.

    Schemes that ask devices for the same batches have the same arrivals, which make one CSV file. Where schemes differ (a fixed
    batch, a load allocation), ``path`` becomes a folder with one file per scheme, ``<scheme>.csv``.

    Args:
        comparison: the finished comparison.
        path: the file or folder, for ``fleet.trace``.

    Raises:
        InputError: if no scheme asks devices for anything, or the path cannot be written.
    """
    path = Path(path)
    asking = [result for result in comparison.results if result.prepared.device.broadcasts]
    if not asking:
        raise InputError("no scheme of this comparison asks devices for updates, so there is no trace to record.")
    names = comparison.setting.federation.device_names
    shared = len({identity(result.prepared.device.arrivals) for result in asking}) == 1
    try:
        for result in asking[:1] if shared else asking:
            trace = TraceArrivals.record(result.prepared.device.arrivals, max(r.final.round for r in asking))
            if not shared:
                path.mkdir(parents=True, exist_ok=True)
            write_trace(path if shared else path / f"{result.scheme.name}.csv", trace, names)
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}): give another path.") from error
