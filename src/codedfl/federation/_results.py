"""What a completed federation leaves behind: model, learning curve, arrivals and a summary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from codedfl._version import __version__
from codedfl.federation._federation_config import FederationConfig
from codedfl.federation._joining import offered_menu
from codedfl.federation._requests import UploadTask
from codedfl.files import csv_text, plain, write_atomically
from codedfl.fleet import write_trace
from codedfl.incentive import Menu
from codedfl.models import Predictor
from codedfl.privacy import Guarantee, RoundingDelta, guarantee_of, rounding_delta, update_releases
from codedfl.typing import IntArray

if TYPE_CHECKING:
    from codedfl.federation._rounds import Rounds

OUTSIDE = (
    "how many samples each device has is taken to be public",
    "noise is as the devices declared it",
    "how long devices take to answer",
    "the constants of federation.toml, such as means and scales of columns, must come from public data",
)

CURVE = ("round", "seconds", "score", "mean_arrivals")


def results_folder(folder: Path) -> Path:
    """Return the folder of the results of a federation."""
    return folder / "results"


def write_results(folder: Path, config: FederationConfig, rounds: Rounds) -> None:
    """Write ``model.safetensors``, ``curve.csv``, ``trace.csv``, ``federation.png`` and ``summary.json``, each atomically.

    The trace is in the format of `codedfl run --trace`, so the simulator can replay who arrived.
    """
    results = results_folder(folder)
    results.mkdir(parents=True, exist_ok=True)
    privacy = plain(guarantee(config, rounds).as_dict(rounds.roster.names))
    model(config, rounds, privacy).save(results / "model.safetensors")
    rows = [["" if point[key] is None else point[key] for key in CURVE] for point in rounds.curve]
    write_atomically(results / "curve.csv", csv_text(CURVE, rows))
    if rounds.arrivals.rounds:
        write_trace(results / "trace.csv", rounds.arrivals.trace(), rounds.roster.names)
    write_atomically(results / "federation.png", picture(config, rounds))
    write_atomically(results / "summary.json", json.dumps(summary(config, rounds, privacy), indent=2) + "\n")


def model(config: FederationConfig, rounds: Rounds, privacy: dict[str, Any]) -> Predictor:
    """Return the model with its feature map, names, origin and the guarantee of its run."""
    data = config.data
    made = Predictor(
        config.map(),
        rounds.model,
        data.task,
        data.classes or data.target,
        input_names=data.columns,
        target_columns=data.target,
        provenance={
            "codedfl": __version__,
            "federation": config.name,
            "scheme": config.scheme,
            "rounds": rounds.state.round,
            "metric": metric_of(config),
            "score": rounds.curve[-1]["score"],
        },
        logits=rounds.prepared.loss.logits,
        privacy=privacy,
    )
    center = config.privacy.label_center
    return made.shifted(center) if center != 0 else made


def guarantee(config: FederationConfig, rounds: Rounds) -> Guarantee:
    """Return what may be claimed about everything that devices sent, with the noise that they declared.

    A device that was asked counts as one that sent its update, also if that never arrived. The ledger of a device is the
    authority on what it released.
    """
    prepared, asked = rounds.prepared, rounds.arrivals.arrays()["batch_sizes"] > 0
    upload, plan, setting = prepared.scheme.upload, prepared.device, prepared.setting
    precision = [plan.precision(k) for k in range(len(asked))]
    everything = [
        (
            *(upload.releases(setting, plan, i) if upload and setting.code.uploading[i] else ()),
            *update_releases(int(asked[:, i].sum()), float(np.dot(asked[:, i], precision))),
        )
        for i in range(len(rounds.roster.names))
    ]
    private_updates = (asked * np.array(precision)[:, None] > 0).sum(axis=0)
    return guarantee_of(
        everything, config.privacy.delta, outside=OUTSIDE, rounding_delta=_rounding(config, rounds, private_updates)
    )


def _rounding(config: FederationConfig, rounds: Rounds, private_updates: IntArray) -> RoundingDelta:
    """Return what the arithmetic of each device adds to its delta: that of its upload, and of each private update."""
    task, code = UploadTask.of(config), rounds.prepared.setting.code

    def rounding_delta_of(device: int, epsilon: float) -> float:
        total = int(private_updates[device]) * rounding_delta(config.dimension * config.outputs, 0.0, epsilon)
        if task is not None and code.uploading[device]:
            total += task.upload.rounding_delta(
                task.terms,
                samples=rounds.roster.samples[device],
                noise_variance=float(code.noise_variance[device]),
                label_noise_variance=float(code.label_noise_variance[device]),
                epsilon=epsilon,
            )
        return total

    return rounding_delta_of


def picture(config: FederationConfig, rounds: Rounds) -> bytes:
    """Return the learning curve and the arrivals as a PNG file."""
    from codedfl.plotting import draw_federation  # takes a second, at the end of a run

    seen = rounds.arrivals.arrays()
    return draw_federation(
        [point["round"] for point in rounds.curve],
        [point["score"] for point in rounds.curve],
        metric_of(config),
        rounds.roster.names,
        seen["batch_sizes"] > 0,
        seen["arrived"].astype(np.bool_),
    )


def metric_of(config: FederationConfig) -> str:
    """Return what the score of a federation is."""
    return "accuracy" if config.data.task == "classification" else "r2"


def summary(config: FederationConfig, rounds: Rounds, privacy: dict[str, Any]) -> dict[str, Any]:
    """Return what there is to tell about a run."""
    arrived = rounds.arrivals.arrays()["arrived"].sum(axis=0)
    code, menu = rounds.prepared.setting.code, offered_menu(config)
    devices = [
        {
            "device": name,
            "samples": rounds.roster.samples[i],
            "arrivals": int(arrived[i]),
            "uploaded": rounds.prepared.scheme.upload is not None and bool(code.uploading[i]),
            "noise_variance": float(code.noise_variance[i]),
            **_paid(menu, rounds.roster.items[i], uploaded=bool(code.uploading[i])),
            **{key: value for key, value in rounds.standing.to_dict().get(name, {}).items() if key != "accepted"},
        }
        for i, name in enumerate(rounds.roster.names)
    ]
    return {
        "federation": config.name,
        "scheme": config.scheme,
        "rounds": rounds.state.round,
        "seconds": round(rounds.trained_s, 3),
        "metric": metric_of(config),
        "score": rounds.curve[-1]["score"],
        "mean_arrivals": float(arrived.sum()) / max(rounds.arrivals.rounds, 1),
        "privacy": privacy,
        "devices": devices,
    }


def _paid(menu: Menu | None, item: int, *, uploaded: bool) -> dict[str, float]:
    """Return what a device is owed by the contract: the reward of the item that it picked, if it uploaded."""
    if menu is None:
        return {}
    if item < 0 or not uploaded:
        return {"reward": 0.0}
    return {"reward": float(menu.reward[item]), "mi_dp_bits": float(menu.mi_dp_bits[item])}
