"""Settings of a federation: that of a server whose devices keep their rows, and of a simulator that has them all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from codedfl.coding import Rows, clipped_labels
from codedfl.data import Federation
from codedfl.errors import InputError
from codedfl.federation._federation_config import FederationConfig
from codedfl.fleet import Channel, Fleet, TraceArrivals
from codedfl.setting import Code, Setting
from codedfl.streams import Streams
from codedfl.training import LearningRate, RunResult, train
from codedfl.typing import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class RemoteFederation(Federation):
    """A federation seen from the server: how many rows each device has, and the server's own test rows.

    ``features`` and ``labels`` have no rows; their columns give the dimensions.

    Args:
        sizes: ``l_i``, (N,).
    """

    sizes: IntArray

    def __post_init__(self) -> None:
        if len(self.sizes) != len(self.device_names) or np.min(self.sizes, initial=0) < 0:
            raise InputError(
                f"sizes has {len(self.sizes)} values for {len(self.device_names)} devices: give one for each."
            )

    @property
    def samples(self) -> IntArray:
        """``l_i`` as each device said, (N,)."""
        return self.sizes

    @property
    def total_samples(self) -> int:
        """Number of rows m of all devices."""
        return int(self.sizes.sum())

    def device(self, i: int) -> tuple[FloatArray, FloatArray]:
        """Refuse: a device's rows never leave it."""
        raise LookupError(f"the rows of device {self.device_names[i]} are on the device alone")


def remote_setting(
    config: FederationConfig,
    names: tuple[str, ...],
    samples: IntArray,
    noise_variance: FloatArray,
    label_noise_variance: FloatArray,
    participants: BoolArray,
    test: tuple[FloatArray, FloatArray] | None,
    streams: Streams,
) -> Setting:
    """Return the setting in which the server runs the scheme, with what the devices declared.

    Args:
        config: the federation.
        names: the devices that joined.
        samples: ``l_i``, (N,).
        noise_variance: ``sigma_i^2`` as declared, (N,).
        label_noise_variance: the same of the labels, (N,).
        participants: who uploaded, (N,).
        test: features and targets of the server's test rows; None without any.
        streams: the server's randomness.
    """
    no_features = np.zeros((0, config.dimension), np.float32)
    no_labels = np.zeros((0, config.outputs), np.float32)
    federation = RemoteFederation(
        features=no_features,
        labels=no_labels,
        offsets=np.append(0, np.cumsum(samples)),
        test_features=no_features if test is None else test[0],
        test_labels=no_labels if test is None else test[1],
        task=config.data.task,
        target_names=config.data.classes or config.data.target,
        device_names=names,
        sizes=samples,
    )
    code = Code(
        config.coding.coded_samples,
        noise_variance,
        label_noise_variance,
        clip_norm=config.clip_norm,
        label_bound=config.label_norm,
        participants=participants if participants.any() else None,
    )
    return network_setting(config, federation, code, streams)


def network_setting(config: FederationConfig, federation: Federation, code: Code, streams: Streams) -> Setting:
    """Return a setting for data and code whose arrivals are observed, on a network or in a trace."""
    devices = federation.devices
    return Setting(
        federation=federation,
        # Nothing is drawn from a model of devices and channel.
        fleet=Fleet(federation.device_names, np.ones(devices), np.zeros(devices)),
        channel=Channel(),
        code=code,
        local_steps=config.training.local_steps,
        deadline_s=config.training.deadline_s,
        server_mac_rate=1e12,
        server_batch=config.training.server_batch,
        streams=streams,
        privacy=config.target,
    )


def pooled_setting(config: FederationConfig, rows: Mapping[str, Rows], test: Rows, seed: int = 0) -> Setting:
    """Return the setting of a simulation of a federation whose rows are all at hand.

    Args:
        config: the federation.
        rows: the mapped rows of each device, in the order of the federation.
        test: the mapped test rows.
        seed: seed of all draws.
    """
    names, devices = tuple(rows), len(rows)
    federation = Federation(
        np.concatenate([own.features for own in rows.values()]),
        np.concatenate([own.labels for own in rows.values()]),
        np.append(0, np.cumsum([len(own) for own in rows.values()])),
        np.asarray(test.features),
        np.asarray(test.labels),
        config.data.task,
        config.data.classes or config.data.target,
        names,
    )
    if config.privacy.label_bound > 0:
        federation = replace(federation, labels=clipped_labels(federation.labels, config.privacy.label_bound))
    coding = config.coding
    code = Code(
        coding.coded_samples,
        np.full(devices, coding.noise_variance),
        np.full(devices, coding.label_noise_variance),
        encoder="direct",
        clip_norm=config.clip_norm,
        label_bound=config.label_norm,
    )
    return network_setting(config, federation, code, Streams(seed))


def replay(config: FederationConfig, setting: Setting, trace: TraceArrivals | None) -> RunResult:
    """Train in the simulator with the arrivals of a real federation; None if it had no rounds."""
    scheme = config.algorithm
    rate = LearningRate(1.0)
    if not scheme.tunes_itself:
        smoothness = scheme.loss_for(setting.federation.task).smoothness(setting.gram)
        rate = LearningRate.relative(config.training.learning_rate, smoothness)
    rounds = 0 if trace is None else trace.rounds
    return train(scheme.prepare(setting, arrivals=trace), rate, rounds, evaluate_every=max(rounds, 1))
