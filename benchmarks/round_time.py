"""Time of a round: the engine against a plain numpy loop over devices."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from codedfl.arrays import FloatArray
from codedfl.data import Federation
from codedfl.fleet import Channel, Fleet
from codedfl.parallel import Workers, available_cores, one_blas_thread
from codedfl.schemes import fedavg
from codedfl.streams import Streams
from codedfl.training import Code, LearningRate, Ledger, Setting

DEVICES, OUTPUTS, STEPS, BATCH = 20, 10, 5, 64
RATE = LearningRate(1e-6)


def make_setting(samples: int, dimension: int) -> Setting:
    """Random data, and a fleet that always arrives."""
    rng = np.random.default_rng(0)
    total = DEVICES * samples
    X = rng.random((total, dimension), dtype=np.float32)
    Y = rng.random((total, OUTPUTS), dtype=np.float32)
    names = tuple(f"device-{i}" for i in range(DEVICES))
    federation = Federation(
        X, Y, np.arange(DEVICES + 1) * samples, X[:10], Y[:10], "regression", tuple("abcdefghij"), names
    )
    return Setting(
        federation=federation,
        fleet=Fleet(names, np.full(DEVICES, 1e12), np.full(DEVICES, 200.0)),
        channel=Channel(bandwidth_hz=1e9, download_rate_bps=1e12),
        code=Code(1, np.zeros(DEVICES), np.zeros(DEVICES)),
        local_steps=STEPS,
        deadline_s=10.0,
        server_mac_rate=1e9,
        server_batch=None,
        streams=Streams(0),
    )


def plain_round(setting: Setting, model: FloatArray, rng: np.random.Generator, step_size: float) -> FloatArray:
    """What one would write first: for every device and step, gather a batch and compute its gradient."""
    total = np.zeros_like(model)
    for i in range(DEVICES):
        X, Y = setting.federation.device(i)
        local = model.copy()
        for _ in range(STEPS):
            rows = rng.integers(0, len(X), BATCH)
            gradient = X[rows].T @ (X[rows] @ local - Y[rows]) * np.float32(len(X) / BATCH)
            local -= np.float32(step_size) * gradient
            total += gradient
    return model - np.float32(step_size) * total


def engine_round(setting: Setting) -> Callable[[int], None]:
    """Return a function that runs one round of the engine, charges included."""
    prepared = fedavg(batch=BATCH).prepare(setting)
    ledger = Ledger.opened(prepared)
    model = np.zeros((setting.federation.dimension, OUTPUTS), np.float32)

    def one(k: int) -> None:
        attendance = prepared.device.arrivals.attend(k)
        prepared.aggregate(k, attendance, model, RATE.at(k))
        ledger.charge(prepared, k, attendance)

    return one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller data and fewer rounds")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    samples, dimension, rounds = (300, 500, 20) if arguments.quick else (3000, 2000, 200)
    setting = make_setting(samples, dimension)
    model = np.zeros((dimension, OUTPUTS), np.float32)
    rng = np.random.default_rng(1)
    with Workers(available_cores()) as workers, one_blas_thread():
        contestants: dict[str, Callable[[int], object]] = {
            "plain numpy": lambda _: plain_round(setting, model, rng, RATE.initial),
            "engine, 1 worker": engine_round(setting),
            f"engine, {workers.count} workers": engine_round(replace(setting, workers=workers)),
        }
        seconds: dict[str, list[float]] = {name: [] for name in contestants}
        for k in range(rounds):  # interleaved, so that a busy machine slows all of them alike
            for name, one in contestants.items():
                start = time.perf_counter()
                one(k)
                seconds[name].append(time.perf_counter() - start)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    plain = medians["plain numpy"]
    if arguments.json:
        print(json.dumps({name: {"ms": 1e3 * value, "ratio": plain / value} for name, value in medians.items()}))
        return
    print(f"{DEVICES} devices x {samples} samples, d = {dimension}, {STEPS} steps, batch {BATCH}, {rounds} rounds each")
    for name, value in medians.items():
        print(f"{name:<20} {1e3 * value:8.2f} ms a round   {plain / value:5.2f} x plain")


if __name__ == "__main__":
    main()
