"""The ledger: seconds, bits and MACs charged to every party."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from codedfl.fleet import Attendance
from codedfl.training.protocol._scheme import PreparedScheme
from codedfl.typing import FloatArray, ShortRepr
from codedfl.uploads import UploadCost


@dataclass(repr=False)
class Ledger(ShortRepr):
    """Running totals of one scheme.

    Args:
        bits_up: received from each device during training, (N,).
        bits_late: sent by each device but cut off by the deadline, (N,).
        bits_down: received by each device in all rounds, (N,).
        device_macs: training arithmetic on each device, (N,).
        server_macs: training arithmetic at the server.
        aggregation_s: time that the server took between deadlines and the rounds that followed.
        arrivals: updates that arrived, over all rounds.
        rounds: rounds charged.
        updates: updates that each device computed and sent, late ones included, (N,).
        precision: for each device, the sum of ``1 / z^2`` over its updates, ``z`` being the noise multiplier of an update; 0 for
            updates in the clear, (N,).
        upload: the one-shot coded upload, or None.
    """

    bits_up: FloatArray
    bits_late: FloatArray
    bits_down: FloatArray
    device_macs: FloatArray
    server_macs: float = 0.0
    aggregation_s: float = 0.0
    arrivals: int = 0
    rounds: int = 0
    updates: FloatArray = field(default_factory=lambda: np.zeros(0))
    precision: FloatArray = field(default_factory=lambda: np.zeros(0))
    upload: UploadCost | None = field(default=None)

    @classmethod
    def opened(cls, prepared: PreparedScheme) -> Ledger:
        """Open the ledger of a scheme with its upload charged."""
        up, late, down, macs, updates, precision = np.zeros((6, prepared.setting.federation.devices))
        return cls(up, late, down, macs, updates=updates, precision=precision, upload=prepared.upload_cost)

    def charge(self, prepared: PreparedScheme, round: int, attendance: Attendance) -> None:
        """Charge one round."""
        workload = prepared.setting.workload(prepared.device.local_steps)
        self.rounds += 1
        self.arrivals += int(attendance.arrived.sum())
        asked = slice(None) if attendance.devices is None else attendance.devices
        self.bits_up[asked] += workload.payload_bits * attendance.arrived
        self.bits_late[asked] += attendance.late_bits
        self.bits_down[asked] += workload.bits_down * prepared.device.broadcasts
        self.device_macs[asked] += workload.macs_per_sample * workload.local_steps * attendance.batch_sizes
        self.updates[asked] += attendance.batch_sizes > 0
        self.precision[asked] += (attendance.batch_sizes > 0) * prepared.device.precision(round)
        aggregation_macs = prepared.scheme.aggregation_macs(prepared.setting)
        self.server_macs += aggregation_macs
        self.aggregation_s += aggregation_macs / prepared.setting.server_mac_rate
        if prepared.server:
            self.server_macs += workload.macs_per_sample * prepared.server.samples_processed(round)

    @property
    def preparation_s(self) -> float:
        """Simulated time before the first round: encoding, coded upload and summation at the server."""
        return self.upload.total_s if self.upload else 0.0

    @property
    def coded_bits(self) -> FloatArray:
        """Bits of the coded upload of each device, (N,)."""
        return self.upload.bits if self.upload else np.zeros_like(self.bits_up)

    @property
    def bytes_up(self) -> float:
        """Bytes received by the server from all devices, including the coded upload."""
        return float(np.sum(self.bits_up) + np.sum(self.coded_bits)) / 8
