"""Presets: values that a named dataset sets, overridden by the user's file and options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PAPER: Mapping[str, Any] = {
    "fleet.transmit_power_dbm": (15.0, 25.0),
    "fleet.straggler_ratio": 0.0,
    "coding.coded_samples": 10_000,
    "coding.noise_variance": 0.25,
    "training.total_time_s": 20_000.0,
    "learning_rate.grid": (0.125, 0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0),
    "learning_rate.tuning_share": 0.1,
}
"""Fleet, code and clock of Sec. VI-A, with a grid of step sizes fine enough for it."""

_IMAGES: Mapping[str, Any] = {
    "features.dimension": 2000,
    "features.gamma": 0.02,
    "training.deadline_s": 10.0,
    **_PAPER,
}

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "mnist": _IMAGES,
    "fashion-mnist": _IMAGES,
    "cifar10-vgg": {"training.deadline_s": 15.0, **_PAPER},
}


def preset_of(dataset: str) -> Mapping[str, Any]:
    """Return the preset of a dataset, values by ``section.key``: the setting of Sec. VI-A; empty for other datasets.

    Example:
        >>> preset_of("mnist")["features.dimension"], preset_of("digits")
        (2000, {})
    """
    return PRESETS.get(dataset, {})
