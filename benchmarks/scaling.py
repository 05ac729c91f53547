"""Scaling: time of a round and memory against devices, cohort, features and coded samples."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from common import CASE, engine, in_a_process, interleaved, make_setting, median, read_options, report

from codedfl.experiment._build import LARGE_DIMENSION
from codedfl.parallel import Workers, available_cores, one_blas_thread
from codedfl.schemes import fedavg, scfl


def cases(quick: bool) -> dict[str, list[dict[str, Any]]]:
    """Return what is varied: everything else stays as in the first entry."""
    many, d, c = (
        ((20, 100, 1000), (64, 128, 256), (100, 300, 1000))
        if quick
        else (
            (20, 100, 1000, 10_000, 100_000),
            (256, 512, 1024, 2048, 4096, 8192),
            (1000, 3000, 10_000, 30_000, 100_000),
        )
    )
    small = {"samples": 10, "dimension": 100, "batch": 5}
    large = {"devices": 20, "samples": 200 if quick else 1000, "batch": 64}
    cohorts = (5, 20, 80) if quick else (10, 30, 100, 300, 1000)
    return {
        "devices": [{**small, "devices": n, "cohort": min(n, 100)} for n in many],
        "cohort": [{**small, "devices": many[-1] if quick else 10_000, "cohort": n} for n in cohorts],
        "dimension": [{**large, "dimension": size} for size in d],
        "coded_samples": [{**large, "dimension": 64 if quick else 512, "coded_samples": size} for size in c],
    }


def measure(rounds: int, batch: int, **problem: Any) -> dict[str, float]:
    """Time rounds of FedAvg, or of SCFL where there are coded samples; run in a process of its own."""
    begun = time.perf_counter()
    # Threads cost more than they bring on small problems; the command line decides in the same way.
    with Workers(available_cores() if problem["dimension"] >= LARGE_DIMENSION else 1) as workers, one_blas_thread():
        coded = problem.pop("coded_samples", None)
        before = resident_megabytes()
        setting = make_setting(
            **problem, coded_samples=coded or 1, server_batch=min(coded, 256) if coded else None, workers=workers
        )
        one = engine(scfl(batch=batch) if coded else fedavg(batch=batch), setting)
        probability_s = timed(lambda: setting.timing().arrival_probability(1))
        seconds = [timed(lambda k=k: one(k)) for k in range(rounds)]
        gc.collect()
        federation = setting.federation
        data = (federation.features.nbytes + federation.labels.nbytes) / 1e6
        held = resident_megabytes() - before
    return {
        "milliseconds_a_round": 1e3 * median(seconds[3:]),
        "data_megabytes": data,
        "other_bytes_a_device": 1e6 * (held - data) / problem["devices"],
        "arrival_probabilities_ms": 1e3 * probability_s,
        "setup_seconds": time.perf_counter() - begun - sum(seconds),
    }


def fleet_ratio(largest: int, rounds: int) -> float:
    """Return how much longer a round of the largest fleet takes than one of 100 devices, with cohorts of 100, in turns."""
    fleets = {
        str(devices): make_setting(devices=devices, samples=10, dimension=100, cohort=100) for devices in (100, largest)
    }
    with one_blas_thread():
        seconds = interleaved({name: engine(fedavg(batch=5), setting) for name, setting in fleets.items()}, rounds)
    return median(seconds[str(largest)]) / median(seconds["100"])


def timed(work: Any) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def resident_megabytes() -> float:
    """Return the memory that the process holds now, without files that it has mapped."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024 * 1.048576


def exponent(values: Sequence[float], times: Sequence[float]) -> float:
    """Fit ``time ~ value^a`` by least squares in logarithms."""
    return float(np.polyfit(np.log(values), np.log(times), 1)[0])


def main() -> None:
    options = read_options(__doc__, CASE)
    if options.case:
        print(json.dumps(measure(**json.loads(options.case))))
        return
    rows: list[dict[str, Any]] = []
    summary: dict[str, Any] = {}
    for varied, problems in cases(options.quick).items():
        values, times = [], []
        for problem in problems:
            measured = in_a_process(__file__, {**problem, "rounds": 20 if options.quick else 60})
            rows.append({"varied": varied, "value": problem[varied], **measured})
            values.append(problem[varied])
            times.append(measured["milliseconds_a_round"])
        summary[f"exponent_{varied}"] = exponent(values, times)
        if varied == "devices":
            summary["largest_fleet_over_100_devices"] = fleet_ratio(values[-1], 50 if options.quick else 300)
    report(options, "time of a round", rows, summary)


if __name__ == "__main__":
    main()
