"""A summary of a comparison that can be written as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from codedfl._version import __version__
from codedfl.files import plain
from codedfl.results._comparison import Comparison
from codedfl.results._notes import notes_on
from codedfl.results._privacy import clipped_share
from codedfl.results._rows import summarise_result
from codedfl.results._verdict import verdict


def summarise(comparison: Comparison) -> dict[str, Any]:
    """Return all results of a comparison as plain numbers, strings, lists and dictionaries."""
    setting, reference = comparison.setting, comparison.evaluator.reference
    federation, metric = setting.federation, comparison.evaluator.metric
    timing, described = setting.timing(), setting.fleet.columns()
    summary: dict[str, Any] = plain(
        {
            "version": __version__,
            "seed": setting.streams.seed,
            "dataset": comparison.config.data.dataset,
            "task": federation.task,
            "metric": metric,
            "samples": federation.total_samples,
            "test_samples": len(federation.test_labels),
            "dimension": federation.dimension,
            "outputs": federation.outputs,
            "coded_samples": setting.code.coded_samples,
            "clip_norm": setting.code.clip_norm,
            "clipped_share": clipped_share(setting),
            "epsilon": setting.privacy.epsilon if setting.privacy else None,
            "delta": comparison.config.privacy.delta,
            "local_steps": setting.local_steps,
            "deadline_s": setting.deadline_s,
            "bandwidth_hz": setting.channel.bandwidth_hz if timing.radio else None,
            "straggler_ratio": timing.straggler_ratio(1),
            "smoothness": setting.gram.smoothness,
            "incentive": _incentive(comparison),
            "centralised": {metric: reference.score, "loss": reference.loss} if reference else None,
            "schemes": [summarise_result(comparison, result) for result in comparison.results],
            "devices": [
                {
                    **asdict(device),
                    **{name: values[i] for name, values in described.items()},
                    "arrival_probability": timing.arrival_probability(1)[i],
                    "uploads": setting.code.uploading[i],
                    "noise_variance": setting.code.noise_variance[i] if setting.code.uploading[i] else None,
                }
                for i, device in enumerate(federation.describe())
            ],
            "verdict": verdict(comparison).sentences,
            "notes": notes_on(comparison),
            "wall_time_s": comparison.wall_time_s,
        }
    )
    return summary


def _incentive(comparison: Comparison) -> dict[str, Any] | None:
    """Return the rewards of the devices and the resulting noise; None without a mechanism."""
    incentive, code = comparison.config.incentive, comparison.setting.code
    if incentive.mechanism == "none":
        return None
    return {
        "mechanism": incentive.mechanism,
        "total_reward": incentive.total_reward,
        "participants": int(np.count_nonzero(code.uploading)),
        "total_noise_variance": float(np.sum(code.noise_variance[code.uploading])),
    }
