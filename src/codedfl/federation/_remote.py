"""The setting of a server whose devices keep their rows to themselves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codedfl.data import Federation
from codedfl.errors import InputError
from codedfl.federation._federation_config import FederationConfig
from codedfl.fleet import Channel, Fleet
from codedfl.setting import Code, Setting
from codedfl.streams import Streams
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
