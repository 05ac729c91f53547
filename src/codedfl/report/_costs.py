"""Seconds, bytes and arithmetic, by party."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from codedfl.report._bars import stacked_bars
from codedfl.report._html import Column, Html, folded, joined, markup, section, table
from codedfl.report._record import Record
from codedfl.results import number, seconds, size

SECONDS = (
    ("encode", "devices encode"),
    ("send", "coded upload"),
    ("prepare", "server prepares"),
    ("wait", "rounds, up to the deadline"),
    ("between", "server between rounds"),
)
BYTES = (
    ("encode", "updates received"),
    ("send", "coded uploads received"),
    ("late", "sent too late"),
    ("wait", "models sent to devices"),
)
BYTE_KEYS = ("bytes_up_training", "bytes_up_coded", "bytes_up_late", "bytes_down")

MOST_DEVICES = 60
"""Devices with a row in the tables by device; of a larger fleet, those that sent most."""


def costs_section(record: Record, prefix: str = "") -> Html:
    """Return where time and traffic go, for every scheme and for every device."""
    schemes = [scheme for scheme in record.schemes if "charged_s" in scheme]
    if not schemes:
        return Html()
    extra = record.details.get("seconds", {})
    times = [(str(scheme["title"]), _seconds(scheme, extra.get(scheme["scheme"], {}))) for scheme in schemes]
    traffic = [(str(scheme["title"]), [float(scheme.get(key, 0.0)) for key in BYTE_KEYS]) for scheme in schemes]
    charts = (
        stacked_bars(SECONDS, times, seconds, "Simulated seconds, everything charged"),
        stacked_bars(BYTES, traffic, size, "Bytes over the network"),
    )
    return section(
        f"{prefix}costs",
        "Seconds and bytes by party",
        markup('<div class="pair">{}</div>', joined(charts)),
        folded(f"{prefix}arithmetic", "Arithmetic (MACs) by party", _arithmetic(schemes)),
        folded(f"{prefix}by-device", "By device", _by_device(record, schemes, f"{prefix}by-device")),
    )


def _seconds(scheme: Mapping[str, Any], extra: Mapping[str, Any]) -> list[float]:
    parts = scheme["charged_s"]
    known = [parts.get(key, 0.0) for key in ("encoding", "coded_upload", "server_preparation", "training")]
    between = extra.get("server_between_rounds")
    if between is None:
        between = max((scheme.get("everything_charged_s") or 0.0) - sum(known), 0.0)
    return [float(value) for value in (*known, between)]


def _arithmetic(schemes: Sequence[Mapping[str, Any]]) -> Html:
    keys = ("encoding_macs", "device_macs", "server_preparation_macs", "server_macs")
    names = ("scheme", "devices, encoding", "devices, rounds", "server, preparation", "server, rounds")
    rows = [[scheme["title"], *(number(scheme.get(key)) for key in keys)] for scheme in schemes]
    return table([Column(name) for name in names], rows, "Multiply-accumulate operations", "cards")


def _by_device(record: Record, schemes: Sequence[Mapping[str, Any]], prefix: str) -> Html:
    extra = record.details.get("seconds", {})
    folds = []
    for scheme in schemes:
        per_device: Mapping[str, Any] = scheme.get("per_device", {})
        own = extra.get(scheme["scheme"], {}).get("per_device", {})
        if per_device:
            rows = _device_rows(record.names, per_device, own)
            content = _device_table(rows, f"Each device under {scheme['title']}", len(record.names))
            folds.append(folded(f"{prefix}-{scheme['scheme']}", scheme["title"], content))
    return joined(folds)


def _device_rows(names: Sequence[str], bytes_of: Mapping[str, Any], own: Mapping[str, Any]) -> list[list[object]]:
    zeros = [0.0] * len(names)
    sent = [sum(bytes_of.get(key, zeros)[i] for key in BYTE_KEYS[:3]) for i in range(len(names))]
    order = (
        sorted(range(len(names)), key=lambda i: -sent[i])[:MOST_DEVICES]
        if len(names) > MOST_DEVICES
        else range(len(names))
    )
    return [
        [
            names[i],
            *(size(bytes_of.get(key, zeros)[i]) for key in BYTE_KEYS),
            *(
                seconds(own[key][i]) if key in own else seconds(None)
                for key in ("encoding", "coded_upload", "computing")
            ),
        ]
        for i in order
    ]


def _device_table(rows: Sequence[Sequence[object]], caption: str, devices: int) -> Html:
    names = (
        *("device", "updates", "coded upload", "too late", "models received"),
        *("encodes", "uploads code", "computes"),
    )
    shown = f"{caption}: the {len(rows)} of {devices} devices that sent most" if len(rows) < devices else caption
    return table([Column(name) for name in names], rows, shown, "cards")
