"""Time of a sweep: noise levels times schemes in lock-step, against the same runs one by one."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from codedfl import native
from codedfl.coding import CodedData
from codedfl.data import Federation
from codedfl.fleet import Channel, Fleet
from codedfl.parallel import Workers
from codedfl.schemes import dp_cfl, fedavg, scfl
from codedfl.setting import Code, Setting
from codedfl.streams import Streams
from codedfl.training import Callback, Evaluator, LearningRate, PreparedScheme, Run, RunProgress, Scheme, train_together

DEVICES, OUTPUTS, STEPS, WORKERS = 20, 10, 5, 2
RATE = LearningRate(1e-9)


def make_setting(options: argparse.Namespace, workers: Workers) -> Setting:
    """Random data, and a fleet that always arrives."""
    rng = np.random.default_rng(0)
    total = DEVICES * options.samples
    X = rng.random((total, options.dimension), dtype=np.float32)
    Y = rng.random((total, OUTPUTS), dtype=np.float32)
    names = tuple(f"device-{i}" for i in range(DEVICES))
    federation = Federation(
        X, Y, np.arange(DEVICES + 1) * options.samples, X[:10], Y[:10], "regression", tuple("abcdefghij"), names
    )
    return Setting(
        federation=federation,
        fleet=Fleet(names, np.full(DEVICES, 1e12), np.full(DEVICES, 200.0)),
        channel=Channel(bandwidth_hz=1e9, download_rate_bps=1e12),
        code=Code(options.coded_samples, np.zeros(DEVICES), np.zeros(DEVICES)),
        local_steps=STEPS,
        deadline_s=10.0,
        server_mac_rate=1e9,
        server_batch=options.server_batch,
        streams=Streams(0),
        workers=workers,
    )


class NoLoss(Evaluator):
    """Says zero: evaluations are not what is measured, and the Gram matrix of random data takes long."""

    def losses(self, *models: object) -> tuple[float, ...]:
        return (0.0,) * len(models)

    def gaps(self, *models: object) -> tuple[float, ...]:
        return (0.0,) * len(models)

    def distance(self, model: object) -> float:  # noqa: ARG002
        return 0.0

    def scores(self, *models: object) -> tuple[float, ...]:
        return (0.0,) * len(models)


def prepare(scheme: Scheme, setting: Setting, coded: CodedData) -> PreparedScheme:
    """Prepare a scheme on coded data that is there already: encoding is not what is measured."""
    return scheme.prepared(setting, scheme.plan(setting), (coded,), None)


def prepare_all(options: argparse.Namespace, setting: Setting) -> list[PreparedScheme]:
    """Prepare the three schemes at every noise level."""
    rng = np.random.default_rng(1)
    prepared = []
    for level in range(options.noise_levels):
        # What it says does not change how long a step on it takes.
        features = rng.standard_normal((options.coded_samples, options.dimension), dtype=np.float32)
        labels = rng.standard_normal((options.coded_samples, OUTPUTS), dtype=np.float32)
        variance = 0.1 * 2**level
        coded = CodedData(features, labels, variance)
        noisy = replace(setting, code=replace(setting.code, noise_variance=np.full(DEVICES, variance / DEVICES)))
        schemes = (scfl(batch=options.batch), dp_cfl(), fedavg(batch=options.batch))
        prepared += [prepare(scheme, noisy, coded) for scheme in schemes]
    return prepared


class Stopwatch(Callback):
    """Notes when the first round began, and when each ended."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_start(self, progress: RunProgress, rounds: int) -> None:  # noqa: ARG002
        self.ends.append(time.perf_counter())

    def on_round(self, progress: RunProgress) -> None:  # noqa: ARG002
        self.ends.append(time.perf_counter())


def seconds_a_round(schemes: Sequence[PreparedScheme], evaluator: Evaluator, rounds: int) -> float:
    """Train schemes in lock-step and return how long a round of all of them took."""
    watch = Stopwatch()
    runs = [Run(prepared, RATE, rounds, evaluator, evaluate_every=rounds) for prepared in schemes]
    runs[-1].callbacks = [watch]  # the last to be called in a round
    train_together(runs)
    return (watch.ends[-1] - watch.ends[0]) / rounds


def measure(options: argparse.Namespace) -> dict[str, float]:
    """Return medians over the repeats, in which everything takes its turn, so that a busy machine slows all alike."""
    with Workers(WORKERS) as workers:
        setting = make_setting(options, workers)
        runs, evaluator = prepare_all(options, setting), NoLoss(setting)
        # FedAvg knows nothing of noise, so that a sweep trains it once.
        distinct = runs[:3] + [run for run in runs[3:] if run.held and run.server]
        samples: dict[str, list[float]] = {"lock_step": [], "one_by_one": [], "one_by_one_fedavg_once": []}
        for repeat in range(options.repeats + 1):
            together = seconds_a_round(distinct, evaluator, options.rounds)
            alone = {id(run): seconds_a_round([run], evaluator, options.rounds) for run in runs}
            if repeat == 0:  # warms up
                continue
            samples["lock_step"].append(together)
            samples["one_by_one"].append(sum(alone.values()))
            samples["one_by_one_fedavg_once"].append(sum(alone[id(run)] for run in distinct))
    medians = {f"{name}_s_a_round": statistics.median(values) for name, values in samples.items()}
    return {
        **medians,
        "ratio": medians["one_by_one_s_a_round"] / medians["lock_step_s_a_round"],
        "ratio_fedavg_once": medians["one_by_one_fedavg_once_s_a_round"] / medians["lock_step_s_a_round"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller data and fewer rounds")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--out", type=Path, help="file to write the JSON object to as well")
    for name, text in (
        ("noise-levels", "noise levels, 8 unless given"),
        ("samples", "samples of each device"),
        ("dimension", "features d"),
        ("batch", "about so many samples in a step of a device"),
        ("coded-samples", "coded samples c"),
        ("server-batch", "about so many coded samples in a step of the server"),
        ("rounds", "rounds of a repeat"),
        ("repeats", "how often everything is measured"),
    ):
        parser.add_argument(f"--{name}", type=int, help=text)
    options = parser.parse_args()
    defaults = {"noise_levels": 8, "batch": 64, "coded_samples": 2000, "server_batch": 256, "repeats": 5}
    defaults |= {"samples": 300, "dimension": 500, "rounds": 2} if options.quick else {}
    defaults = {"samples": 3000, "dimension": 2000, "rounds": 4} | defaults
    for name, value in defaults.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    sizes = {name: getattr(options, name) for name in defaults} | {"workers": WORKERS}
    measured = {**sizes, "compiled_kernel": native.available(), **measure(options)}
    if options.out:
        options.out.write_text(json.dumps(measured, indent=2) + "\n", encoding="utf-8")
    if options.json:
        print(json.dumps(measured))
        return
    print(
        f"{options.noise_levels} noise levels x (SCFL, DP-CFL, FedAvg): {DEVICES} devices, d = {options.dimension}, "
        f"{STEPS} steps, batch {options.batch}, c = {options.coded_samples}, server batch {options.server_batch}, "
        f"{WORKERS} workers, compiled kernel {'on' if native.available() else 'off'}"
    )
    for name in ("lock_step", "one_by_one", "one_by_one_fedavg_once"):
        print(f"{name.replace('_', ' '):<24} {1e3 * measured[f'{name}_s_a_round']:9.1f} ms a round of all runs")
    print(
        f"lock-step is {measured['ratio']:.2f} times as fast as one by one, and {measured['ratio_fedavg_once']:.2f} times if"
        " FedAvg is trained once there too"
    )


if __name__ == "__main__":
    main()
