"""The folder of a simulated run, read into a record."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from codedfl.report._record import (
    Curve,
    Record,
    State,
    last_change,
    numbers,
    read_columns,
    read_json,
    read_toml,
    scores,
)
from codedfl.results import is_number, number, score, share

SILENCE_S = 120.0
"""Seconds without a change after which a run without results counts as unfinished rather than in progress."""

CURVE = ("round", "simulated_time_s", "everything_charged_s", "score", "mean_arrivals", "bytes_up")


def is_run(folder: Path) -> bool:
    """Return whether a folder is that of a run; `codedfl audit` and others leave a config.toml as well."""
    return (folder / "config.toml").is_file() and (folder / "curves").is_dir()


def read_run(folder: Path, name: str) -> Record:
    """Return the record of a run, finished or not.

    Raises:
        InputError: a file of it is damaged.
    """
    summary, details = read_json(folder / "summary.json"), read_json(folder / "details.json")
    config = read_toml(folder / "config.toml")
    titles = {each["scheme"]: each["title"] for each in (*details.get("schemes", ()), *summary.get("schemes", ()))}
    metric = str(summary.get("metric") or details.get("metric") or "accuracy")
    columns = _curves(folder, list(config.get("schemes", ())))
    state, told = _state(folder, summary, config)
    schemes = summary.get("schemes") if state in ("completed", "interrupted") else None
    central = summary.get("centralised") or {}
    return Record(
        name=name,
        path=folder,
        kind="run",
        state=state,
        told=told,
        title=_title(summary, details, config),
        metric=metric,
        reference=central.get(metric, details.get("centralised")),
        curves=tuple(
            Curve(
                scheme,
                titles.get(scheme, scheme),
                found["round"],
                found["simulated_time_s"],
                found["everything_charged_s"],
                found["score"],
            )
            for scheme, found in columns.items()
        ),
        schemes=schemes or _so_far(columns, titles, metric, config, details),
        devices=_devices(summary, details),
        verdict=_sentences(summary.get("verdict")),
        notes=_sentences(summary.get("notes")),
        facts=_facts(summary, details, metric),
        details=details,
        config=config,
        environment=read_json(folder / "versions.json"),
    )


def _curves(folder: Path, order: list[str]) -> dict[str, dict[str, Any]]:
    """Return the columns of every scheme's curve, in the order of the configuration."""
    paths = {path.stem: path for path in sorted((folder / "curves").glob("*.csv"))}
    together = folder / "curves.csv"
    curves: dict[str, dict[str, Any]] = {}
    if not paths and (found := read_columns(together, ("scheme", *CURVE))):
        for scheme in dict.fromkeys(found["scheme"]):
            chosen = [i for i, other in enumerate(found["scheme"]) if other == scheme]
            curves[scheme] = _parsed(together, {key: [found[key][i] for i in chosen] for key in CURVE})
    for scheme, path in paths.items():
        columns = read_columns(path, CURVE)
        if columns and columns["round"]:
            curves[scheme] = _parsed(path, columns)
    known = [scheme for scheme in order if scheme in curves]
    return {scheme: curves[scheme] for scheme in (*known, *(set(curves) - set(known)))}


def _parsed(path: Path, columns: Mapping[str, list[str]]) -> dict[str, Any]:
    parsed: dict[str, Any] = {key: numbers(path, texts) for key, texts in columns.items() if key != "score"}
    return parsed | {"score": scores(path, columns["score"])}


def _state(folder: Path, summary: Mapping[str, Any], config: Mapping[str, Any]) -> tuple[State, str]:
    curves = list((folder / "curves").glob("*.csv"))
    files = [*curves, *(folder / name for name in ("details.json", "step_sizes.json", "config.toml"))]
    newest, written = max(map(last_change, files)), last_change(folder / "summary.json")
    # A run that was interrupted and goes on again changes its curves after its summary.
    if summary and newest <= written:
        ran = summary.get("schemes", ())
        if len(ran) < len(config.get("schemes", ())) or any(each.get("status") == "interrupted" for each in ran):
            return "interrupted", f"Interrupted: codedfl run --resume --out {folder} continues it."
        return "completed", ""
    if not curves and not (folder / "details.json").is_file():
        return "waiting", "Not begun. A sweep trains several runs at once, and writes them when they are done."
    silent_s = time.time() - newest
    if silent_s <= SILENCE_S:
        now = "the numbers are those of the last evaluation" if curves else "the first scheme has yet to begin training"
        return "going", f"In progress: {now}."
    return (
        "silent",
        f"Unfinished, without news for {number(silent_s / 60)} minutes: it was killed, or takes long steps.",
    )


def _title(summary: Mapping[str, Any], details: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    dataset = Path(str(summary.get("dataset") or config.get("data.dataset", "run"))).name
    devices = len(details.get("devices") or summary.get("devices") or ())
    schemes = len(config.get("schemes", ()))
    parts = [f"{schemes} scheme{'s' * (schemes != 1)}", *([f"{devices} devices"] if devices else [])]
    return f"{dataset}: {' on '.join(parts)}"


def _so_far(
    columns: Mapping[str, Mapping[str, Any]],
    titles: Mapping[str, str],
    metric: str,
    config: Mapping[str, Any],
    details: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Return what the curves tell about a run without results."""
    planned = {each["scheme"]: int(each["rounds"]) for each in details.get("schemes", ())}
    schemes = []
    for scheme in (*columns, *(name for name in config.get("schemes", ()) if name not in columns)):
        known: dict[str, Any] = {"scheme": scheme, "title": titles.get(scheme, scheme), "status": "waiting"}
        if scheme in columns:
            last = {key: values[-1] for key, values in columns[scheme].items()}
            done, total = int(last["round"]), planned.get(scheme, 0)
            status = "trained" if 0 < total <= done or scheme != list(columns)[-1] else "training"
            known |= {
                **last,
                metric: last["score"],
                "rounds": f"{done} of {total}" if total else done,
                "status": status,
            }
        schemes.append(known)
    return schemes


def _devices(summary: Mapping[str, Any], details: Mapping[str, Any]) -> list[dict[str, Any]]:
    if summary.get("devices"):
        return [{**device, "device": device["name"]} for device in summary["devices"]]
    return [{"device": name} for name in details.get("devices", ())]


def _facts(summary: Mapping[str, Any], details: Mapping[str, Any], metric: str) -> dict[str, str]:
    known = {**details, **summary}
    devices, central = known.get("devices", ()), (summary.get("centralised") or {}).get(metric)
    facts = {
        "devices": str(len(devices)) if devices else "",
        "training samples": number(known.get("samples")),
        "test samples": number(known.get("test_samples")),
        "features": number(known.get("dimension")),
        "late in a round": share(known.get("straggler_ratio")),
        f"centralised {label(metric)}": score(central if central is not None else details.get("centralised"), metric),
        "real time": f"{number(known['wall_time_s'])} s" if is_number(known.get("wall_time_s")) else "",
    }
    return {name: value for name, value in facts.items() if value and value != number(None)}


def label(metric: str) -> str:
    """Return the name of a metric as people write it."""
    return "R²" if metric == "r2" else metric


def _sentences(found: Any) -> list[str]:
    if isinstance(found, Mapping):
        found = found.get("sentences")
    return [found] if isinstance(found, str) else [str(each) for each in found or ()]
