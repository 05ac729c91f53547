"""The folder of a real federation, read into a record."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from codedfl.report._record import (
    Curve,
    Record,
    State,
    last_change,
    numbers,
    read_columns,
    read_events,
    read_json,
    read_toml,
    scores,
)
from codedfl.results import number, seconds

ROUNDS_OF_SILENCE = 4.0
"""Deadlines without news after which a federation counts as unfinished; it writes something in every round."""

LEAST_SILENCE_S = 60.0


def federation_folder(folder: Path) -> Path | None:
    """Return the folder of a federation, given that folder or the one with its results; None if it is neither."""
    if (folder / "federation.toml").is_file():
        return folder
    if folder.name == "results" and (folder.parent / "federation.toml").is_file():
        return folder.parent
    if (folder / "curve.csv").is_file() and "federation" in read_json(folder / "summary.json"):
        return folder
    return None


def read_federation(folder: Path, name: str) -> Record:
    """Return the record of a federation, from what its server writes while it runs and at its end.

    Args:
        folder: the folder of the federation, or a copy of its results.
        name: its name on the page.

    Raises:
        InputError: a file of it is damaged.
    """
    results = folder / "results" if (folder / "federation.toml").is_file() else folder
    state_folder = folder / "server" / "state"
    config, summary = read_toml(folder / "federation.toml"), read_json(results / "summary.json")
    events, status = read_events(state_folder / "events.jsonl"), read_json(state_folder / "status.json")
    names = [device["device"] for device in summary.get("devices", ())] or list(config.get("devices", ()))
    scheme = str(summary.get("scheme") or config.get("scheme", "unknown"))
    task = config.get("data.task", "classification")
    metric = str(summary.get("metric") or ("accuracy" if task == "classification" else "r2"))
    rounds = _rounds(events)
    curve = _curve(results / "curve.csv", rounds, scheme)
    state, told = _state(folder, config, status, summary)
    last = curve.score[-1] if curve.score else None
    return Record(
        name=name,
        path=folder,
        kind="federation",
        state=state,
        told=told,
        title=f"{summary.get('federation') or config.get('name', 'federation')}: {scheme} on {len(names)} devices",
        metric=metric,
        reference=None,
        curves=(curve,) if curve.score else (),
        schemes=[
            {
                "scheme": scheme,
                "title": scheme,
                "status": "completed" if state == "completed" else "running",
                metric: summary.get("score", last),
                "rounds": summary.get("rounds", len(rounds)),
                "simulated_time_s": summary.get("seconds", curve.training_s[-1] if curve.training_s else None),
                "mean_arrivals": summary.get("mean_arrivals") or _mean([len(r["arrived"]) for r in rounds.values()]),
                "bytes_up_coded": sum(e["bytes"] for e in events if e.get("event") == "uploaded" and "bytes" in e),
                **_privacy(summary, names),
            }
        ],
        devices=_devices(names, summary, events, rounds),
        notes=[
            _in_words(event) for event in events if event.get("event") in ("refused", "stopped", "older checkpoint")
        ][-20:],
        facts=_facts(names, rounds, config, summary),
        details={"arrivals": _arrivals(results / "trace.csv", rounds, names, scheme)},
        config=config,
    )


def _rounds(events: Sequence[Mapping[str, Any]]) -> dict[int, Mapping[str, Any]]:
    """Return the event of every completed round; of a round that was trained again, the last one."""
    found = {int(event["round"]): event for event in events if event.get("event") == "round"}
    return dict(sorted(found.items()))


def _curve(path: Path, rounds: Mapping[int, Mapping[str, Any]], scheme: str) -> Curve:
    columns = read_columns(path, ("round", "seconds", "score"))
    if columns is not None:
        clock = numbers(path, columns["seconds"])
        return Curve(scheme, scheme, numbers(path, columns["round"]), clock, clock, scores(path, columns["score"]))
    clock = list(accumulate(float(event.get("seconds", 0.0)) for event in rounds.values()))
    return Curve(scheme, scheme, list(rounds), clock, clock, [event.get("score") for event in rounds.values()])


def _arrivals(
    path: Path, rounds: Mapping[int, Mapping[str, Any]], names: Sequence[str], scheme: str
) -> list[dict[str, Any]]:
    """Return who arrived in which round, in the form of ``details.json``: from the trace, or from the events so far."""
    columns = read_columns(path, ("round", "device", "batch_size", "arrived"))
    if columns is not None:
        numbered = [int(round) for round in numbers(path, columns["round"])]
        seen = {
            (round, device): "1" if arrived == "1" else "-" if asked in ("0", "") else "0"
            for round, device, asked, arrived in zip(
                numbered, columns["device"], columns["batch_size"], columns["arrived"], strict=True
            )
        }
        count = max(numbered, default=-1) + 1
        rows = ["".join(seen.get((round, name), "-") for round in range(count)) for name in names]
    else:
        count = len(rounds)
        rows = ["".join("1" if name in event["arrived"] else "0" for event in rounds.values()) for name in names]
    if not count:
        return []
    return [{"schemes": [scheme], "rounds": count, "every_round": 1, "every_device": 1, "attendance": rows}]


def _privacy(summary: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return the guarantee of a completed federation, its epsilons in the order of the devices as in that of a simulation."""
    if not summary.get("privacy"):
        return {}
    by_name = summary["privacy"].get("devices", {})
    return {"privacy": {**summary["privacy"], "devices": [by_name.get(name) for name in names]}}


def _devices(
    names: Sequence[str],
    summary: Mapping[str, Any],
    events: Sequence[Mapping[str, Any]],
    rounds: Mapping[int, Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Return what is known about each device: at the end from the summary, before that from the events."""
    if summary.get("devices"):
        return list(summary["devices"])
    found: dict[str, dict[str, Any]] = {name: {"device": name} for name in names}
    for event in events:
        device = found.get(str(event.get("device")))
        if device is None:
            continue
        if event["event"] == "joined":
            device["samples"] = event.get("samples")
        elif event["event"] == "uploaded":
            device["uploaded"] = True
        elif event["event"] in ("late", "refused"):
            device[event["event"]] = device.get(event["event"], 0) + 1
    for name, device in found.items():
        device["arrivals"] = sum(name in event["arrived"] for event in rounds.values())
    return list(found.values())


def _state(
    folder: Path, config: Mapping[str, Any], status: Mapping[str, Any], summary: Mapping[str, Any]
) -> tuple[State, str]:
    phase = status.get("phase")
    if phase == "completed" or (summary and not status):
        return "completed", ""
    if phase == "stopped":
        return "interrupted", f"Stopped: codedfl federation resume {folder} continues it. {status.get('reason', '')}"
    if not status:
        return "waiting", "The server has not been started yet."
    silent_s = time.time() - last_change(folder / "server" / "state" / "status.json")
    patience_s = max(LEAST_SILENCE_S, ROUNDS_OF_SILENCE * float(config.get("training.deadline_s", 0.0)))
    if phase in ("joining", "uploading"):
        patience_s += float(config.get(f"training.{'join' if phase == 'joining' else 'upload'}_s", 0.0))
    if silent_s > patience_s:
        return "silent", f"Unfinished, without news for {number(silent_s / 60)} minutes."
    progress = {
        "joining": f"{status.get('joined', 0)} of {status.get('devices', '?')} devices have joined",
        "uploading": f"{status.get('uploaded', 0)} of {status.get('devices', '?')} uploads have arrived",
        "training": f"round {status.get('round', 0)} of {status.get('rounds', '?')} is complete",
    }
    return "going", f"In progress: {progress.get(str(phase), str(phase))}."


def _facts(
    names: Sequence[str], rounds: Mapping[int, Any], config: Mapping[str, Any], summary: Mapping[str, Any]
) -> dict[str, str]:
    planned = config.get("training.rounds")
    done = summary.get("rounds", len(rounds))
    facts = {
        "devices": str(len(names)),
        "rounds": f"{done} of {planned}" if planned else str(done),
        "deadline": seconds(config.get("training.deadline_s")),
        "columns": number(len(config.get("data.columns", ())) or None),
    }
    return {name: value for name, value in facts.items() if value != number(None)}


def _in_words(event: Mapping[str, Any]) -> str:
    about = f" {event['device']}" if "device" in event else ""
    return f"{event['event']}{about}: {event.get('reason', '')}"


def _mean(values: Sequence[int]) -> float | None:
    return sum(values) / len(values) if values else None
