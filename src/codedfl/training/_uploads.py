"""The coded upload before training, and its cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codedfl.coding import CodedData, encode_all
from codedfl.fleet import BITS_PER_NUMBER
from codedfl.training._devices import DevicePlan
from codedfl.training._setting import Setting
from codedfl.typing import FloatArray


@dataclass(frozen=True)
class UploadCost:
    """The cost of the one-shot upload for each device and the server, with devices in parallel.

    Args:
        bits: coded features and labels sent by each device, (N,).
        encoding_macs: arithmetic of the direct encoder on each device, (N,).
        encoding_s: time for ``encoding_macs``, (N,).
        upload_s: time to send ``bits`` at the device's own mean uplink rate, (N,).
        server_macs: additions at the server to sum the coded datasets.
        server_s: time for ``server_macs``.
    """

    bits: FloatArray
    encoding_macs: FloatArray
    encoding_s: FloatArray
    upload_s: FloatArray
    server_macs: float
    server_s: float

    @property
    def total_s(self) -> float:
        """Time from the start until the server can begin: the slowest device, then the server."""
        return float(np.max(self.encoding_s + self.upload_s)) + self.server_s

    @classmethod
    def of(cls, setting: Setting, coded_rows: int, samples_coded_with: FloatArray) -> UploadCost:
        """Charge an upload of ``coded_rows`` rows.

        Args:
            setting: the fleet and the channel.
            coded_rows: rows that each device sends, if it sends any.
            samples_coded_with: for each device, the sum over its samples of the rows they are projected to, (N,).
        """
        federation, fleet = setting.federation, setting.fleet
        width = federation.dimension + federation.outputs
        uploading = setting.code.uploading
        bits = uploading * float(BITS_PER_NUMBER * coded_rows * width)
        encoding_macs = samples_coded_with * width
        server_macs = float(np.count_nonzero(uploading) * coded_rows * width)
        return cls(
            bits=bits,
            encoding_macs=encoding_macs,
            encoding_s=encoding_macs / fleet.mac_rate,
            upload_s=bits / setting.channel.mean_uplink_rate_bps(fleet.transmit_power_dbm),
            server_macs=server_macs,
            server_s=server_macs / setting.server_mac_rate,
        )


@dataclass(frozen=True)
class CodedUpload:
    """Coded data: a projection of the samples that devices may fail to cover, plus noise.

    Args:
        noise: whether the setting's noise is added. The original CFL-FB and CodedFedL add none.
    """

    noise: bool = True

    def prepare(self, setting: Setting, plan: DevicePlan) -> tuple[tuple[CodedData, ...], UploadCost]:
        """Encode on all devices and sum at the server, for every coded batch of the plan."""
        code, devices = setting.code, range(setting.federation.devices)
        on = code.uploading * (1.0 if self.noise else 0.0)
        as_they_are = plan.coded_for_all and code.clip_norm is None and code.uploading.all()
        known_gram = setting.known_gram if as_they_are and code.encoder != "direct" else None
        coded = []
        samples_coded_with = np.zeros(len(devices))
        batches = plan.coded_rows(code.coded_samples)
        for batch, rows in enumerate(batches):
            uncovered = [plan.uncovered(i, batch) if code.uploading[i] else setting.no_rows for i in devices]
            samples_coded_with += rows * np.array([len(part) for part in uncovered])
            coded.append(
                encode_all(
                    uncovered,
                    rows,
                    noise_variance=on * code.noise_variance,
                    label_noise_variance=on * code.label_noise_variance,
                    streams=code.streams(setting.streams),
                    batch=batch,
                    encoder=code.encoder,
                    clip_norm=code.clip_norm,
                    gram=known_gram,
                    workers=setting.workers,
                )
            )
        return tuple(coded), UploadCost.of(setting, sum(batches), samples_coded_with)
