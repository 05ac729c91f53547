"""Rounds per second: this engine, a plain numpy loop and other simulators, beside the limits of the machine."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from common import STEP_SIZE, copy_gbytes, engine, interleaved, make_setting, median, read_options, report, sgemm_gflops
from peers.environments import PEERS, make_environment

from codedfl.coding import CodedData
from codedfl.native import backend
from codedfl.parallel import Workers, available_cores, one_blas_thread
from codedfl.schemes import fedavg, scfl
from codedfl.setting import Setting
from codedfl.typing import FloatArray

DEVICES, SAMPLES, OUTPUTS, STEPS, BATCH = 20, 3000, 10, 5, 64
CODED, SERVER_BATCH = 10_000, 768
PEER_ROUNDS = {"pfl": 60, "fedjax": 60, "flower": 20}


ROUNDS_AT_ONCE = 16
"""Rounds of one turn: the first after a change of contestant meets cold caches."""


def plain_numpy(setting: Setting, coded: CodedData | None) -> Callable[[int], None]:
    """Return what one would write first, a loop over devices and steps that gathers and multiplies."""
    rng = np.random.default_rng(1)
    federation = setting.federation
    model = np.zeros((federation.dimension, OUTPUTS), np.float32)
    step = np.float32(STEP_SIZE)

    def descend(X: FloatArray, Y: FloatArray, batch: int, scale: float, make_up: float) -> FloatArray:
        local, total = model.copy(), np.zeros_like(model)
        for _ in range(STEPS):
            rows = rng.integers(len(X), size=batch)
            sampled = X[rows]
            gradient = np.float32(scale) * (sampled.T @ (sampled @ local - Y[rows]))
            if make_up:
                gradient -= np.float32(make_up) * local
            local -= step * gradient
            total += gradient
        return total

    def some(_: int) -> None:
        nonlocal model
        for _ in range(ROUNDS_AT_ONCE):
            total = np.zeros_like(model)
            for i in range(DEVICES):
                X, Y = federation.device(i)
                total += descend(X, Y, BATCH, len(X) / BATCH, 0.0)
            if coded:
                server = descend(coded.features, coded.labels, SERVER_BATCH, 1 / SERVER_BATCH, coded.noise_variance)
                total = np.float32(0.5) * (total + server)
            model = model - step * total

    return some


def measure(
    workload: str, dimension: int, with_server: bool, turns: int, samples: int, peak: float
) -> list[dict[str, Any]]:
    """Compare the engine with plain numpy on one workload: a row for each."""
    cores = available_cores()
    with Workers(cores) as workers:
        setting = make_setting(
            devices=DEVICES,
            samples=samples,
            dimension=dimension,
            coded_samples=CODED if with_server else 1,
            server_batch=SERVER_BATCH if with_server else None,
        )
        scheme = scfl(batch=BATCH) if with_server else fedavg(batch=BATCH)
        coded = scheme.prepare(setting).held[0] if with_server else None
        with one_blas_thread():
            seconds = interleaved(
                {
                    "plain numpy": plain_numpy(setting, coded),
                    "codedfl, 1 worker": engine(scheme, setting, ROUNDS_AT_ONCE),
                    f"codedfl, {cores} workers": engine(scheme, replace(setting, workers=workers), ROUNDS_AT_ONCE),
                },
                turns,
            )
    flops = 4 * STEPS * dimension * OUTPUTS * (DEVICES * BATCH + (SERVER_BATCH if with_server else 0))
    limit, plain = peak * 1e9 / flops, median(seconds["plain numpy"])
    return [
        {
            "workload": workload,
            "engine": name,
            "rounds_per_second": ROUNDS_AT_ONCE / median(values),
            "ratio_to_numpy": plain / median(values),
            "fraction_of_limit": ROUNDS_AT_ONCE / median(values) / limit,
        }
        for name, values in seconds.items()
    ]


def measure_peer(peer: str, cache: Path, rounds: int) -> dict[str, Any]:
    """Run a peer on W1 in an environment of its own."""
    folder = Path(__file__).parent / "peers"
    python = make_environment(peer, cache)
    command = [str(python), str(folder / f"peer_{peer}.py"), "--rounds", str(rounds)]
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, **quiet})
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    options = read_options(
        __doc__,
        ("--peers", {"nargs": "*", "choices": PEERS, "default": list(PEERS), "help": "other simulators to measure"}),
        (
            "--cache",
            {"type": Path, "default": Path.home() / ".cache" / "codedfl-benchmarks", "help": "their environments"},
        ),
    )
    cores = available_cores()
    one, peak = sgemm_gflops(1), sgemm_gflops(cores)
    turns, samples = (10, 1000) if options.quick else (30, SAMPLES)
    rows = measure("W1", 2000, False, turns, samples, peak)
    plain, ours = rows[0]["rounds_per_second"], rows[-1]["rounds_per_second"]
    summary: dict[str, Any] = {
        "ours": ours,
        "numpy": plain,
        "ratio": ours / plain,
        "fraction_of_limit": rows[-1]["fraction_of_limit"],
        "backend": backend(),
        "sgemm_gflops_one_core": one,
        "sgemm_gflops": peak,
        "copy_gbytes": copy_gbytes(cores),
    }
    if not options.quick:
        rows += measure("d = 4,096", 4096, False, turns // 2, samples // 2, peak)
        rows += measure("SCFL", 2000, True, turns // 2, samples, peak)
        peers = [measure_peer(peer, options.cache, PEER_ROUNDS[peer]) for peer in options.peers]
        for peer in peers:
            rate = peer["rounds_per_second"]
            name = f"{peer['engine']} {peer['version']}"
            rows.append({"workload": "W1", "engine": name, "rounds_per_second": rate, "ratio_to_numpy": rate / plain})
            summary[f"ours_over_{peer['engine']}"] = ours / rate
        summary["deviations"] = {peer["engine"]: peer["deviations"] for peer in peers}
    report(options, "W1: FedAvg, 20 devices, d = 2,000, o = 10, five steps on 64 of 3,000 rows", rows, summary)


if __name__ == "__main__":
    main()
