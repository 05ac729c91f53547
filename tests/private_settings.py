"""Small problems with a privacy target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from codedfl.data import Task
from codedfl.fleet import Attendance
from codedfl.privacy import PrivacyTarget, ThreatModel
from codedfl.setting import Setting
from codedfl.typing import FloatArray, IntArray
from tests.problems import make_federation, make_setting

THREAT_MODELS: tuple[ThreatModel, ...] = ("each-message", "sums-only")

PLENTY = 1e9
"""An epsilon at which noise is of no account."""


def private_setting(
    epsilon: float = 2.0,
    threat_model: ThreatModel = "each-message",
    *,
    samples: Sequence[int] = (7, 12, 5, 1),
    dimension: int = 3,
    task: Task = "classification",
    label_bound: float = 1.0,
    clip_norm: float | None = 1.0,
    dtype: Any = float,
    delta: float = 1e-5,
    **changes: Any,
) -> Setting:
    """Return a small setting that is to keep an epsilon."""
    target = PrivacyTarget(epsilon, delta, threat_model, label_bound)
    setting = make_setting(make_federation(samples, dimension, task=task, dtype=dtype), privacy=target, **changes)
    return replace(setting, code=replace(setting.code, clip_norm=clip_norm, label_bound=label_bound))


@dataclass(frozen=True)
class Everybody:
    """Arrivals of all devices in every round, with all their rows."""

    samples: IntArray
    duration_s: float = 1e6

    @property
    def probability(self) -> FloatArray:
        """One for each."""
        return np.ones(len(self.samples))

    def attend(self, round: int) -> Attendance:  # noqa: ARG002
        """Return the same attendance in every round."""
        return Attendance(self.samples, np.ones(len(self.samples), np.bool_), np.zeros(len(self.samples)))
