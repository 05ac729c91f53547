"""What a completed federation leaves behind: model, learning curve, arrivals and a summary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from codedfl._plain import plain
from codedfl._version import __version__
from codedfl.experiment import statement_of, update_releases
from codedfl.files import csv_text, write_atomically
from codedfl.fleet import write_trace
from codedfl.flower._federation_config import FederationConfig
from codedfl.flower._joining import offered_menu
from codedfl.incentive import Menu
from codedfl.models import Predictor

if TYPE_CHECKING:
    from codedfl.flower._rounds import Rounds

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
    model(config, rounds).save(results / "model.safetensors")
    rows = [["" if point[key] is None else point[key] for key in CURVE] for point in rounds.curve]
    write_atomically(results / "curve.csv", csv_text(CURVE, rows))
    if rounds.arrivals.rounds:
        write_trace(results / "trace.csv", rounds.arrivals.trace(), rounds.roster.names)
    write_atomically(results / "federation.png", picture(config, rounds))
    write_atomically(results / "summary.json", json.dumps(summary(config, rounds), indent=2) + "\n")


def model(config: FederationConfig, rounds: Rounds) -> Predictor:
    """Return the model with its feature map, names and origin."""
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
        logits=getattr(rounds.prepared.device, "softmax", False),
        privacy=privacy(config, rounds),
    )
    center = config.privacy.label_center
    return made.shifted(center) if center != 0 else made


def privacy(config: FederationConfig, rounds: Rounds) -> dict[str, Any]:
    """Return the privacy of everything that devices sent, with the noise that they declared; see `statement_of`.

    A device that was asked counts as one that sent its update, also if that never arrived. The ledger of a device is the
    authority on what it released.
    """
    prepared, asked = rounds.prepared, rounds.arrivals.arrays()["batch_sizes"] > 0
    upload, plan = prepared.scheme.upload, prepared.device
    precision = [plan.precision(k) for k in range(len(asked))]
    everything = [
        (
            *(upload.releases(prepared.setting, plan, i) if upload and prepared.setting.code.uploading[i] else ()),
            *update_releases(int(asked[:, i].sum()), float(np.dot(asked[:, i], precision))),
        )
        for i in range(len(rounds.roster.names))
    ]
    statement = statement_of(everything, config.privacy.delta, "each message", OUTSIDE)
    told: dict[str, Any] = plain(
        {**statement, "devices": dict(zip(rounds.roster.names, statement["devices"], strict=True))}
    )
    return told


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


def summary(config: FederationConfig, rounds: Rounds) -> dict[str, Any]:
    """Return what there is to tell about a run."""
    arrived = rounds.arrivals.arrays()["arrived"].sum(axis=0)
    code, menu = rounds.prepared.setting.code, offered_menu(config)
    devices = [
        {
            "device": name,
            "samples": rounds.roster.samples[i],
            "arrivals": int(arrived[i]),
            "uploaded": bool(rounds.prepared.uploaded) and bool(code.uploading[i]),
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
        "privacy": privacy(config, rounds),
        "devices": devices,
    }


def _paid(menu: Menu | None, item: int, *, uploaded: bool) -> dict[str, float]:
    """Return what a device is owed by the contract: the reward of the item that it picked, if it uploaded."""
    if menu is None:
        return {}
    if item < 0 or not uploaded:
        return {"reward": 0.0}
    return {"reward": float(menu.reward[item]), "mi_dp_bits": float(menu.mi_dp_bits[item])}
