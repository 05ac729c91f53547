"""The results of one scheme as a row: the shape that every table, page and file of results reads."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from codedfl.results._columns import SHARES, ResultTable, keeping
from codedfl.results._privacy import privacy_of
from codedfl.training import Ledger, RunResult

if TYPE_CHECKING:
    from codedfl.results._comparison import Comparison


def table_of(comparison: Comparison) -> ResultTable:
    """Return the results of a comparison as a table."""
    reference, target = comparison.evaluator.reference, comparison.setting.privacy
    rows = [summarise_result(comparison, result) for result in comparison.results]
    return ResultTable(
        rows,
        comparison.evaluator.metric,
        reference.score if reference else None,
        keeping(rows, target.epsilon if target else None),
    )


def summarise_result(comparison: Comparison, result: RunResult) -> dict[str, Any]:
    """Return the results and costs of one scheme."""
    metric = comparison.evaluator.metric
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
