"""A summary of a comparison that can be written as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from codedfl._version import __version__
from codedfl.experiment._comparison import Comparison
from codedfl.experiment._notes import notes_on
from codedfl.experiment._privacy_summary import clipped_share, privacy_of
from codedfl.experiment._verdict import verdict
from codedfl.files import plain
from codedfl.training import Ledger, RunResult

SHARES = (90, 95)
"""Percentages of the centralised score for which times are reported."""


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


def summarise_result(comparison: Comparison, result: RunResult) -> dict[str, Any]:
    """Return the results and costs of one scheme."""
    result, metric = result, comparison.evaluator.metric
    final, ledger = result.final, result.progress.ledger
    usable = result.status != "diverged"
    return {
        "scheme": result.scheme.name,
        "title": result.scheme.title,
        "status": result.status,
        "message": result.message,
        metric: final.score if usable else None,
        f"last_{metric}": final.last_score if usable else None,
        "loss": final.loss,
        "optimality_gap": final.gap,
        "distance_to_optimum": final.distance,
        "rounds": ledger.rounds,
        "round_duration_s": result.prepared.device.arrivals.duration_s,
        "simulated_time_s": final.simulated_time_s,
        "everything_charged_s": final.everything_charged_s,
        "charged_s": charged_seconds(result),
        **{f"time_to_{share}_s": time_to_share(comparison, result, share) for share in SHARES},
        "mean_arrivals": final.mean_arrivals,
        "arrival_probability": result.prepared.device.arrivals.probability,
        **_costs(ledger),
        **privacy_of(result, comparison.config.privacy.delta),
        "privacy": comparison.privacy(result.scheme.name),
        "step_size": None if result.scheme.tunes_itself else result.learning_rate.initial,
        "step_size_scale": result.scale,
        "step_size_trials": [asdict(trial) for trial in result.choice.trials] if result.choice else None,
        "step_size_at_edge_of_grid": result.choice.at_edge if result.choice else None,
        "wall_time_s": result.progress.wall_time_s,
    }


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


def time_to_share(comparison: Comparison, result: RunResult, share: float) -> float | None:
    """Return the simulated time to ``share`` percent of the centralised score.

    None if the run never reached it, and if there is no centralised score above zero to take a share of.
    """
    reference = comparison.evaluator.reference
    return result.time_to(share / 100 * reference.score) if reference and reference.score > 0 else None


def charged_seconds(result: RunResult) -> dict[str, float]:
    """Split the simulated time into its parts: training, and encoding and upload of the device that finished last."""
    upload = result.prepared.upload_cost
    parts = {"training": result.final.simulated_time_s}
    if upload is None:
        return parts | {"encoding": 0.0, "coded_upload": 0.0, "server_preparation": 0.0}
    slowest = int(np.argmax(upload.encoding_s + upload.upload_s))
    return parts | {
        "encoding": float(upload.encoding_s[slowest]),
        "coded_upload": float(upload.upload_s[slowest]),
        "server_preparation": upload.server_s,
    }


def _costs(ledger: Ledger) -> dict[str, Any]:
    """Return bytes and MACs of every party: totals, and training traffic per device."""
    upload = ledger.upload
    return {
        "bytes_up": ledger.bytes_up,
        "bytes_up_training": float(ledger.bits_up.sum()) / 8,
        "bytes_up_coded": float(ledger.coded_bits.sum()) / 8,
        "bytes_up_late": float(ledger.bits_late.sum()) / 8,
        "bytes_down": float(ledger.bits_down.sum()) / 8,
        "device_macs": float(ledger.device_macs.sum()),
        "encoding_macs": float(upload.encoding_macs.sum()) if upload else 0.0,
        "server_macs": ledger.server_macs,
        "server_preparation_macs": upload.server_macs if upload else 0.0,
        "per_device": {
            "bytes_up_training": ledger.bits_up / 8,
            "bytes_up_coded": ledger.coded_bits / 8,
            "bytes_up_late": ledger.bits_late / 8,
            "bytes_down": ledger.bits_down / 8,
            "macs_training": ledger.device_macs,
            "macs_encoding": upload.encoding_macs if upload else np.zeros_like(ledger.device_macs),
        },
    }
