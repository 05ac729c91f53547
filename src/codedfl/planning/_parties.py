"""What devices and server contribute to a round on average, and how much that varies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codedfl.fleet import Arrivals, inverse_batch_of
from codedfl.setting import Setting
from codedfl.training import DevicePlan, Scheme
from codedfl.typing import FloatArray

SAMPLED_ROUNDS = 64
"""Rounds over which batches are averaged where their law has no closed form."""


@dataclass(frozen=True)
class Attended:
    """Who takes part in a round, on average.

    Args:
        probability: ``p_i`` of a device that is asked, (N,).
        asked: share of the devices asked in a round.
        inverse_batch: ``E[1 / b_i | arrival]``, (N,).
        batch: mean batch of those who arrive; 0 if nobody does.
    """

    probability: FloatArray
    asked: float
    inverse_batch: FloatArray
    batch: float

    @property
    def arrivals(self) -> float:
        """Updates that arrive in a round, on average."""
        return self.asked * float(self.probability.sum())

    @classmethod
    def of(cls, arrivals: Arrivals, samples: FloatArray) -> Attended:
        """Read the law of the arrivals, and sample what has no closed form."""
        probability = np.asarray(arrivals.probability)
        total, inverse, count = np.zeros((3, len(probability)))
        asked = 1.0
        for round in range(SAMPLED_ROUNDS):
            attendance = arrivals.attend(round)
            asked = 1.0 / attendance.weight
            for device, batch in attendance.arrivals():
                total[device] += batch
                inverse[device] += 1.0 / min(batch, samples[device])
                count[device] += 1
        pooled = inverse.sum() / max(count.sum(), 1.0)
        known = inverse_batch_of(arrivals)
        mean = np.where(count > 0, inverse / np.maximum(count, 1), pooled) if known is None else np.nan_to_num(known)
        return cls(probability, asked, mean, float(total.sum() / max(count.sum(), 1.0)))


@dataclass(frozen=True)
class DeviceShare:
    """The devices' part of a round.

    Args:
        weight: ``a_i``, the mean weight of each device's update, (N,).
        second: the mean square of that weight, 0 in rounds that it misses, (N,).
        excess: ``l_i E[1 / b_i] - 1``, the variance of a batch in units of that of one sample of each, (N,).
        shares: ``s_i``, each device's share of all rows, (N,).
        local_steps: ``tau``.
        batches: fixed mini-batches that a round draws one of; 1 for none.
    """

    weight: FloatArray
    second: FloatArray
    excess: FloatArray
    shares: FloatArray
    local_steps: int
    batches: int = 1

    @property
    def mean_weight(self) -> float:
        """``sum_i a_i s_i``."""
        return float(self.weight @ self.shares)

    def moved(self, step: FloatArray) -> FloatArray:
        """Return how much of an error the devices remove in directions with ``eta lambda = step``, (q,).

        With ``H_i = s_i H``: ``sum_i a_i (1 - (1 - s_i eta lambda)^tau)``.
        """
        total = np.zeros_like(step)
        for share, weight in _grouped(self.shares, self.weight):
            total += weight * (1.0 - (1.0 - share * step) ** self.local_steps)
        return total

    @property
    def batch_noise(self) -> float:
        """Variance of the sum of a round's gradients by sampling, in units of ``lambda_j`` times the mean squared residual."""
        return float(self.local_steps * np.sum(self.second * self.excess * self.shares)) + self.batches - 1.0

    @property
    def spread(self) -> FloatArray:
        """Variance of each device's weight, times ``tau^2``, (N,)."""
        return self.local_steps**2 * np.maximum(self.second - self.weight**2, 0.0)

    @classmethod
    def of(cls, scheme: Scheme, plan: DevicePlan, setting: Setting, attended: Attended) -> DeviceShare:
        """Read the devices' part off a scheme: its aggregation and its plan."""
        samples = setting.federation.samples.astype(np.float64)
        shares = samples / samples.sum()
        weight = _mean_weights(scheme, setting, attended.probability)
        each = np.divide(weight, attended.probability, out=np.zeros_like(weight), where=attended.probability > 0)
        second = each**2 * attended.probability / attended.asked
        if not plan.coded_for_all:
            batches = len(plan.coded_rows(setting.code.coded_samples))
            covered = _processed_share(plan, setting, batches)
            return cls(covered * weight, covered**2 * second, 0 * samples, shares, 1, batches)
        excess = np.maximum(samples * attended.inverse_batch - 1.0, 0.0)
        return cls(weight, second, excess, shares, plan.local_steps)


@dataclass(frozen=True)
class ServerShare:
    """The server's part of a round on coded data.

    Args:
        weight: its weight in the update.
        steps: gradient steps.
        multiple: factor on each gradient.
        batch_noise: variance of the sum of a round's gradients by sampling coded rows, in units of that of one row.
    """

    weight: float
    steps: int
    multiple: float
    batch_noise: float

    def moved(self, step: FloatArray) -> FloatArray:
        """Return how much of an error the server removes in directions with ``eta lambda = step``, (q,)."""
        removed: FloatArray = self.weight * (1.0 - (1.0 - self.multiple * step) ** self.steps)
        return removed

    @classmethod
    def of(cls, scheme: Scheme, plan: DevicePlan, setting: Setting) -> ServerShare | None:
        """Read the server's part off a scheme; None without one."""
        if scheme.server is None:
            return None
        weights = scheme.aggregation.mean_weights(np.zeros(setting.federation.devices), setting.code.uploading)
        weight = 1.0 if weights is None else weights[1]
        has_rows = scheme.upload is None or scheme.upload.has_rows
        part = scheme.server.forecast(setting, sum(plan.coded_rows(setting.code.coded_samples)) if has_rows else 0)
        return cls(weight, part.steps, part.multiple, part.steps * weight**2 * part.sampling)


def uncovered_share(plan: DevicePlan, setting: Setting) -> float:
    """Return the share of the data that parity data stands for: squared weights of what is encoded, over all rows."""
    rows = setting.code.coded_samples
    total = 0.0
    for batch in range(len(plan.coded_rows(rows))):
        for device in range(setting.federation.devices):
            part = plan.uncovered(device, batch)
            total += float(len(part)) if part.weights is None else float(np.sum(part.weights**2))
    return total / setting.federation.total_samples


def _processed_share(plan: DevicePlan, setting: Setting, batches: int) -> FloatArray:
    """Return the share of its rows that each device processes when it arrives, (N,)."""
    loads = np.zeros(setting.federation.devices)
    for batch in range(batches):
        for device in range(len(loads)):
            weights = plan.uncovered(device, batch).weights
            loads[device] += 0 if weights is None else int(np.count_nonzero(weights < 1.0))
    return loads / setting.federation.samples


def _mean_weights(scheme: Scheme, setting: Setting, probability: FloatArray) -> FloatArray:
    weights = scheme.aggregation.mean_weights(probability, setting.code.uploading)
    return probability if weights is None else np.asarray(weights[0])


def _grouped(shares: FloatArray, weights: FloatArray) -> list[tuple[float, float]]:
    """Return each distinct share with the sum of its weights: fleets often have devices of equal size."""
    distinct, of = np.unique(np.round(shares, 9), return_inverse=True)
    sums = np.bincount(of.reshape(-1), weights, minlength=len(distinct))
    return list(zip(distinct.tolist(), sums.tolist(), strict=True))
