"""The workload W1 as all peers see it: options, data and checks. Needs NumPy only.

Federated averaging of a linear model: at each local step a device draws a batch B of b of its l rows and takes
W_local -= s * g with g = (l / b) X_B^T (X_B W_local - Y_B); the server applies W -= s * (sum of the devices' accumulated g).
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

STEP = 1e-4


def read_options(description: str, *extra: tuple[str, dict[str, Any]]) -> argparse.Namespace:
    """Read the options that all peers share, and those of one."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--devices", type=int, default=20)
    parser.add_argument("--dimension", type=int, default=2000)
    parser.add_argument("--outputs", type=int, default=10)
    parser.add_argument("--samples", type=int, default=3000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--local-steps", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--full-batch", action="store_true", help="every batch is all the rows: a deterministic check")
    for name, settings in extra:
        parser.add_argument(name, **settings)
    options = parser.parse_args()
    if options.full_batch:
        options.batch, options.rounds = options.samples, 0
    return options


def make_device(options: argparse.Namespace, device: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows X and the targets Y of one device, the same for all peers."""
    rng = np.random.default_rng([options.seed, device])
    scale = np.float32(1 / np.sqrt(options.dimension))
    rows = rng.standard_normal((options.samples, options.dimension), dtype=np.float32) * scale
    targets = rng.standard_normal((options.samples, options.outputs), dtype=np.float32) * scale
    return rows, targets


def draw_batch(full: bool, samples: int, batch: int, rng: np.random.Generator) -> np.ndarray:
    """Return the rows of a batch, drawn with replacement."""
    return np.arange(samples) if full else rng.integers(samples, size=batch)


def gradient(
    rows: np.ndarray, targets: np.ndarray, index: np.ndarray, model: np.ndarray, scale: np.float32
) -> np.ndarray:
    """Return (l / b) X_B^T (X_B W - Y_B)."""
    batch = rows[index]
    return scale * (batch.T @ (batch @ model - targets[index]))


def print_result(
    engine: str,
    version: str,
    options: argparse.Namespace,
    run: Callable[[argparse.Namespace], tuple[Sequence[float], np.ndarray]],
    deviations: Sequence[str],
) -> None:
    """Run the workload and print one line of JSON: the seconds of every timed round, and with a full batch the check.

    ``run`` returns the seconds of every timed round and the model after the first round, which is not timed.
    """
    seconds, first_model = run(options)
    result: dict[str, Any] = {
        "engine": engine,
        "version": version,
        "rounds": len(seconds),
        "seconds_per_round": list(seconds),
        "rounds_per_second": 1 / statistics.median(seconds) if len(seconds) else None,
        "deviations": [*deviations, "first round not timed"],
    }
    if options.full_batch:
        probe = np.random.default_rng(options.seed).standard_normal(first_model.shape)
        result["check"] = float(np.linalg.norm(first_model.astype(np.float64)))
        result["check_inner_product"] = float(np.sum(probe * first_model))
    print(json.dumps(result))
