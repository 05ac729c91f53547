"""What the benchmarks share: random problems, interleaved timing, the limits of the machine, tables and JSON."""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from codedfl._version import __version__
from codedfl.data import Federation
from codedfl.fleet import Channel, Fleet
from codedfl.parallel import Workers, available_cores, one_blas_thread
from codedfl.setting import Code, Setting
from codedfl.streams import Streams
from codedfl.training import LearningRate, Run, Scheme, advance
from codedfl.typing import FloatArray, aligned_empty

STEP_SIZE = 1e-5
"""So small that nothing diverges."""

Rows = Sequence[Mapping[str, Any]]


def read_options(description: str, *extra: tuple[str, dict[str, Any]]) -> argparse.Namespace:
    """Read the options that every benchmark has, and its own."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="small and short: does it still work?")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--out", type=Path, help="write the JSON object to a file as well")
    for name, settings in extra:
        parser.add_argument(name, **settings)
    return parser.parse_args()


def make_setting(
    *,
    devices: int,
    samples: int,
    dimension: int,
    outputs: int = 10,
    local_steps: int = 5,
    coded_samples: int = 1,
    server_batch: int | None = None,
    cohort: int | None = None,
    workers: Workers | None = None,
) -> Setting:
    """Return random data on a fleet that always makes the deadline, so that every round does the same work."""
    rng = np.random.default_rng(0)
    total = devices * samples
    scale = np.float32(1 / np.sqrt(dimension))
    X = aligned_empty((total, dimension), np.float32)  # as the package allocates it
    rng.standard_normal(dtype=np.float32, out=X)
    X *= scale
    Y = rng.standard_normal((total, outputs), dtype=np.float32) * scale
    names = tuple(f"device-{i}" for i in range(devices))
    targets = tuple(f"y{j}" for j in range(outputs))
    return Setting(
        federation=Federation(X, Y, np.arange(devices + 1) * samples, X[:10], Y[:10], "regression", targets, names),
        fleet=Fleet(names, np.full(devices, 1e15), np.full(devices, 200.0)),
        channel=Channel(bandwidth_hz=1e9, download_rate_bps=1e12),
        code=Code(coded_samples, np.full(devices, 0.01), np.zeros(devices)),
        local_steps=local_steps,
        deadline_s=10.0,
        server_mac_rate=1e12,
        server_batch=server_batch,
        streams=Streams(0),
        cohort=cohort,
        workers=workers or Workers(1),
    )


def engine(scheme: Scheme, setting: Setting, rounds: int = 1) -> Callable[[int], None]:
    """Return a function that runs so many rounds with everything that belongs to them but evaluation."""
    run = Run(scheme.prepare(setting), LearningRate(STEP_SIZE), rounds)

    def some(_: int) -> None:
        for _ in range(rounds):
            advance(run.round, [run], Run.apply)

    return some


def interleaved(contestants: Mapping[str, Callable[[int], object]], repeats: int) -> dict[str, list[float]]:
    """Time every contestant in turn, again and again, so that a busy machine slows all of them alike.

    The first turn of each is not counted.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for k in range(repeats + 1):
        for name, one in contestants.items():
            start = time.perf_counter()
            one(k)
            seconds[name].append(time.perf_counter() - start)
    return {name: values[1:] for name, values in seconds.items()}


CASE = ("--case", {"help": "measure one case in this process (used by the script itself)"})
"""The option with which a benchmark calls itself."""


def in_a_process(script: str, case: Mapping[str, Any]) -> dict[str, Any]:
    """Let a benchmark measure one case in a fresh process, whose memory is its own."""
    command = [sys.executable, script, "--case", json.dumps(case)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def median(values: Sequence[float]) -> float:
    """Return the median of times."""
    return statistics.median(values)


def sgemm_gflops(cores: int, size: int = 1024, repeats: int = 8) -> float:
    """Measure the peak of float32 matrix products, one BLAS thread on each of so many cores: the best of a few."""
    matrices = [np.random.default_rng(i).random((3, size, size), dtype=np.float32) for i in range(cores)]

    def multiply(matrix: FloatArray) -> None:
        np.dot(matrix[0], matrix[1], out=matrix[2])

    return cores * 2 * size**3 / _best(multiply, matrices, repeats) / 1e9


def copy_gbytes(cores: int, megabytes: int = 256, repeats: int = 5) -> float:
    """Measure the peak of copying memory, read and written bytes counted, on so many cores: the best of a few."""
    arrays = [np.ones((2, megabytes * 2**18), np.float32) for _ in range(cores)]

    def copy(array: FloatArray) -> None:
        np.copyto(array[1], array[0])

    return cores * 2 * arrays[0][0].nbytes / _best(copy, arrays, repeats) / 1e9


def _best(work: Callable[[FloatArray], None], items: list[FloatArray], repeats: int) -> float:
    """Return the least time in which all items are worked on at once, one thread each."""
    with ThreadPoolExecutor(len(items)) as pool, one_blas_thread():
        times = []
        for _ in range(repeats + 1):
            start = time.perf_counter()
            list(pool.map(work, items))
            times.append(time.perf_counter() - start)
    return min(times[1:])


def machine() -> dict[str, Any]:
    """Say where the numbers come from."""
    return {
        "codedfl": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "processor": _processor(),
        "cores": available_cores(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def report(options: argparse.Namespace, title: str, rows: Rows, summary: Mapping[str, Any]) -> None:
    """Print a table or one JSON object, and write the latter to a file if asked."""
    text = json.dumps({**summary, "rows": list(rows), "machine": machine()}, indent=None if options.json else 2)
    if options.out:
        options.out.write_text(text + "\n")
    if options.json:
        print(text)
        return
    print(title)
    print_table(rows)
    for name, value in summary.items():
        print(f"{name}: {_cell(value)}")


def print_table(rows: Rows) -> None:
    """Print rows with equal keys as columns."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [names] + [[_cell(row.get(name, "")) for name in names] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(names))]
    for row in cells:
        print(
            "  ".join(
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
        )


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
