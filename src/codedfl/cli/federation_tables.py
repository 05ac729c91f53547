"""A federation on the terminal: events as lines, devices as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.text import Text

from codedfl.cli.tables import new_table
from codedfl.privacy import epsilon_of

SENTENCES = {
    "started": "{scheme} with {devices}",
    "joined": "{device} joined with {samples} rows",
    "declined": "{device} declined: {reason}",
    "failed": "{device} failed: {reason}",
    "refused": "a message of {device} ({what}) was refused: {reason}",
    "uploaded": "{device} uploaded {bytes:,} bytes",
    "no upload": "{device} has not uploaded, and takes part without coded data",
    "phase": "{device} answered in phase {phase}",
    "summed": "the sum over {devices} is complete; no single upload is known",
    "late": "{device} missed the deadline of round {round}",
    "bounded": "the update of {device} was scaled down in round {round}",
    "older checkpoint": "{reason}",
    "resumed": "resumed after round {round}",
    "killed": "{device} was killed",
    "restarted": "{device} is started again",
    "stopped": "stopped: {reason}",
    "completed": "completed after {round} rounds",
}
"""What is printed about each kind of event; others are not shown."""


class EventPrinter:
    """Prints events as they happen, one line each.

    Args:
        console: where to.
    """

    def __init__(self, console: Console) -> None:
        self.console = console

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Print one event."""
        line = sentence(event)
        if line:
            self.console.print(Text(line), soft_wrap=True)


def sentence(event: Mapping[str, Any]) -> str:
    """Return an event in words, empty if it is not worth a line.

    Example:
        >>> sentence({"event": "joined", "device": "north", "samples": 360})
        'north joined with 360 rows'
    """
    if event["event"] == "round":
        score = "" if event.get("score") is None else f", score {event['score']:.4f}"
        arrived = ", ".join(event["arrived"]) or "nobody"
        return f"round {event['round']} of {event['rounds']}: {arrived} in {event['seconds']:.1f} s{score}"
    text = SENTENCES.get(event["event"], "")
    return text.format_map({key: _shown(value) for key, value in event.items()})


def _shown(value: object) -> object:
    return ", ".join(map(str, value)) if isinstance(value, list) else value


def devices_table(summary: Mapping[str, Any]) -> RenderableType:
    """Return a table of the devices of a completed run."""
    score = "not measured" if summary["score"] is None else f"{summary['metric']} {summary['score']:.4f}"
    table = new_table(f"{summary['federation']}: {summary['scheme']}, {summary['rounds']} rounds, {score}")
    for column in ("device", "rows", "arrived", "late", "refused", "noise variance", "note"):
        table.add_column(column, justify="left" if column in ("device", "note") else "right")
    for device in summary["devices"]:
        noise = f"{device['noise_variance']:g}" if device["uploaded"] else "no upload"
        note = "excluded" if device.get("excluded") else ""
        counts = (device["arrivals"], device.get("late", 0), device.get("refused", 0))
        table.add_row(device["device"], f"{device['samples']:,}", *map(str, counts), noise, note)
    return table


def demo_table(result: Mapping[str, Any]) -> RenderableType:
    """Return the outcome of the demonstration, beside the simulator's prediction."""
    summary = {**result, "score": result["accuracy"], "metric": "accuracy"}
    comparison = new_table("test accuracy")
    for column in ("this federation", "simulator, same arrivals", "centralised"):
        comparison.add_column(column, justify="right")
    keys = ("accuracy", "simulated_accuracy", "centralised_accuracy")
    comparison.add_row(*("-" if result[key] is None else f"{100 * result[key]:.2f} %" for key in keys))
    killed = f", {result['killed']} was killed and came back" if result["restarted_in_round"] is not None else ""
    told = Text(
        f"{result['slow']} was slow{killed}; everything took {result['seconds']:.0f} s."
        f" Configuration, keys, ledgers and results: {result['folder']}"
    )
    return Group(devices_table(summary), Text(privacy_sentence(summary["privacy"])), comparison, told)


def privacy_sentence(statement: Mapping[str, Any]) -> str:
    """Return what a federation may claim, in words.

    Example:
        >>> privacy_sentence({"covers": "everything", "epsilon": 2.0, "delta": 1e-5, "threat_model": "each message"})
        'privacy: epsilon = 2 at delta = 1e-05 covers everything that devices sent, against a server that sees each message'
    """
    if statement["covers"] == "nothing":
        return "privacy: no epsilon covers what devices sent"
    what = "everything that devices sent" if statement["covers"] == "everything" else "the uploads, and not the updates"
    return (
        f"privacy: epsilon = {statement['epsilon']:.4g} at delta = {statement['delta']:g} covers {what},"
        f" against a server that sees {statement['threat_model']}"
    )


def status_table(
    devices: Sequence[str], status: Mapping[str, Any] | None, events: Sequence[Mapping[str, Any]]
) -> RenderableType:
    """Return how far a federation is, with a line per device."""
    if status is None:
        return Text("not started: run codedfl federation server on its folder.")
    counts = {name: Counter[str]() for name in devices}
    for event in events:
        if event["event"] == "round":
            for name in event["arrived"]:
                counts[name]["arrived"] += 1
        elif event.get("device") in counts:
            counts[event["device"]][event["event"]] += 1
    rounds = f", round {status['round']} of {status.get('rounds', status['round'])}" if "round" in status else ""
    score = f", score {status['score']:.4f}" if status.get("score") is not None else ""
    table = new_table(f"{status.get('phase', '')}{rounds}{score}")
    kinds = ("joined", "uploaded", "arrived", "late", "declined", "refused", "failed")
    table.add_column("device")
    for kind in kinds:
        table.add_column(kind, justify="right")
    for name in devices:
        table.add_row(name, *(str(counts[name][kind]) for kind in kinds))
    reason = status.get("reason") if status.get("phase") == "stopped" else None
    return Group(table, Text(f"stopped: {reason}")) if reason else table


def ledger_table(entries: Sequence[Mapping[str, Any]], delta: float) -> RenderableType:
    """Return everything that a device released, updates summed up; epsilons of agreed mechanisms are of all in a line."""
    table = new_table("released by this device")
    for column in ("first", "last", "federation", "kind", "count", "bytes", "noise", "epsilon"):
        text = column in ("first", "last", "federation", "kind")
        table.add_column(column, justify="left" if text else "right")
    groups: dict[tuple[object, ...], list[Mapping[str, Any]]] = {}
    for entry in entries:
        told = (None, "composed") if _is_agreed(entry) else (entry["noise_variance"], entry["epsilon"])
        groups.setdefault((entry["federation"], entry["kind"], *told), []).append(entry)
    for (federation, kind, noise, epsilon), group in groups.items():
        if kind == "repeat":  # the same bytes once more reveal nothing new
            epsilon = 0.0
        elif epsilon == "composed":
            epsilon = _composed(group, delta)
        table.add_row(
            str(group[0]["time"]).partition("T")[0],
            str(group[-1]["time"]).partition("T")[0],
            str(federation),
            str(kind),
            str(len(group)),
            f"{sum(entry['size_bytes'] for entry in group):,}",
            "-" if noise is None else f"{noise:g}",
            "no bound" if epsilon is None else f"{epsilon:.4g}",
        )
    private = [entry for entry in entries if _is_agreed(entry) and entry["kind"] != "repeat"]
    if not private:
        return table
    total = f"private uploads and updates together: epsilon = {_composed(private, delta):.6g} at delta = {delta:g}"
    return Group(table, Text(total))


def _is_agreed(entry: Mapping[str, Any]) -> bool:
    """Return whether a line has a mechanism that composes."""
    return entry["mu"] is not None or entry.get("coded") is not None


def _composed(entries: Sequence[Mapping[str, Any]], delta: float) -> float:
    """Return the epsilon of agreed mechanisms together."""
    from codedfl.federation import mechanism_of  # not needed by those who only watch

    mechanisms = (mechanism_of(entry["mu"], entry.get("coded")) for entry in entries)
    return epsilon_of([mechanism for mechanism in mechanisms if mechanism is not None], delta)
