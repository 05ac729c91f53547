"""Small problems for tests: a few devices with unequal data, powers and noise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from codedfl.data import Federation, Task
from codedfl.fleet import Channel, Fleet
from codedfl.setting import Code, Setting
from codedfl.streams import Streams
from codedfl.training import DeviceUpdate, LearningRate, Payload, PreparedScheme, Round, Run, advance
from codedfl.typing import FloatArray

ALWAYS_DBM = 200.0
NEVER_DBM = -200.0


def make_federation(
    samples: Sequence[int] = (7, 12, 5, 1),
    dimension: int = 3,
    outputs: int = 2,
    *,
    seed: int = 0,
    task: Task = "classification",
    dtype: Any = np.float64,
) -> Federation:
    """Gaussian features, and labels that depend on them with noise."""
    rng = np.random.default_rng(seed)
    total = sum(samples)
    truth = rng.standard_normal((dimension, outputs))

    def draw(rows: int) -> tuple[FloatArray, FloatArray]:
        X = rng.standard_normal((rows, dimension)) / np.sqrt(dimension)
        scores = X @ truth + 0.3 * rng.standard_normal((rows, outputs))
        Y = np.eye(outputs)[scores.argmax(axis=1)] if task == "classification" else scores
        return X.astype(dtype), Y.astype(dtype)

    X, Y = draw(total)
    X_test, Y_test = draw(40)
    return Federation(
        features=X,
        labels=Y,
        offsets=np.concatenate([[0], np.cumsum(samples)]),
        test_features=X_test,
        test_labels=Y_test,
        task=task,
        target_names=tuple(f"t{j}" for j in range(outputs)),
        device_names=tuple(f"device-{i + 1}" for i in range(len(samples))),
    )


def make_setting(
    federation: Federation | None = None,
    *,
    seed: int = 0,
    power_dbm: float | Sequence[float] | None = None,
    coded_samples: int = 20,
    noise_variance: float | Sequence[float] = 0.1,
    label_noise_variance: float = 0.0,
    encoder: Any = "direct",
    local_steps: int = 2,
    server_batch: int | None = 8,
    deadline_s: float = 1.0,
    **changes: Any,
) -> Setting:
    """A setting in which some devices are often late; powers of `ALWAYS_DBM` and `NEVER_DBM` decide for good."""
    federation = federation or make_federation()
    devices = federation.devices
    powers = np.linspace(10.0, 25.0, devices) if power_dbm is None else np.broadcast_to(power_dbm, devices)
    size = federation.dimension * federation.outputs
    # A round of one second lets a device process about ten samples in each step.
    macs = 2.0 * size * local_steps * 10
    return Setting(
        federation=federation,
        fleet=Fleet(federation.device_names, macs * np.linspace(0.8, 1.2, devices), powers),
        channel=Channel(bandwidth_hz=32.0 * size * 2, download_rate_bps=32.0 * size * 100),
        code=Code(
            coded_samples,
            np.broadcast_to(np.asarray(noise_variance, float), devices),
            np.full(devices, label_noise_variance),
            encoder,
        ),
        local_steps=local_steps,
        deadline_s=deadline_s,
        server_mac_rate=10 * macs,
        server_batch=server_batch,
        streams=Streams(seed),
        **changes,
    )


def payloads_of(updates: Iterable[DeviceUpdate]) -> Iterator[tuple[int, Payload]]:
    """Updates as messages that hold nothing else."""
    return ((device, {"update": update}) for device, update in updates)


def global_update(prepared: PreparedScheme, number: int, model: FloatArray, step_size: float) -> FloatArray:
    """The global update ``g(W_k)`` of any round, at any model."""
    run = Run(prepared, LearningRate(step_size), 1, initial_model=model)

    def combined(run: Run, round: Round) -> FloatArray:
        return run.prepared.scheme.aggregation.combine(round, run.model)

    (update,) = advance(number, [run], combined)
    return update
