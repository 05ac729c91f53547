"""Seconds, bytes and arithmetic by party, and the devices: their data, their arrivals, what they are paid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from codedfl.report._charts import stacked_bars
from codedfl.report._html import Heading, Html, folded, joined, markup, section, table
from codedfl.report._record import Record
from codedfl.results import number, seconds, share, size

COLUMNS: tuple[tuple[str, str], ...] = (
    ("samples", "samples"),
    ("arrival_probability", "arrives"),
    ("arrivals", "arrived"),
    ("late", "late"),
    ("refused", "refused"),
    ("noise_variance", "noise variance"),
    ("reward", "reward"),
)

MOST_CLASSES = 5
"""Classes of a device that are listed."""


def devices_section(record: Record, prefix: str = "") -> Html:
    """Return what is known about each device."""
    known = [(key, name) for key, name in COLUMNS if any(device.get(key) is not None for device in record.devices)]
    classes = any(device.get("classes") for device in record.devices)
    if not known:
        return Html()
    columns = [Heading("device", number=False), *(Heading(name) for _, name in known)]
    rows = [[d["device"], *(_cell(d.get(key), key) for key, _ in known)] for d in record.devices]
    if classes:
        columns.append(Heading("classes", number=False))
        rows = [[*row, _classes(device.get("classes") or {})] for row, device in zip(rows, record.devices, strict=True)]
    excluded = [str(device["device"]) for device in record.devices if device.get("excluded")]
    warning = markup('<ul class="warnings"><li>Excluded: {}.</li></ul>', ", ".join(excluded)) if excluded else Html()
    found = table(columns, rows, "Data and arrivals of each device", "cards")
    return section(
        f"{prefix}devices",
        "Devices",
        warning,
        folded(f"{prefix}device-table", f"{len(rows)} devices", found, opened=len(rows) <= 12),
    )


def incentive_section(record: Record, prefix: str = "") -> Html:
    """Return what every device is paid for how much noise; nothing without an incentive."""
    items: Mapping[str, Any] | None = record.details.get("incentive")
    if not items:
        return Html()
    columns = [
        Heading("device", number=False),
        Heading("sensitivity"),
        Heading("MI-DP, bits"),
        Heading("noise variance"),
        Heading("reward"),
        Heading("utility"),
    ]
    keys = ("sensitivity", "mi_dp_bits", "noise_variance", "reward", "utility")
    rows = [[name, *(number(items[key][i]) for key in keys)] for i, name in enumerate(record.names)]
    rewards = [(name, [float(items["reward"][i] or 0.0)]) for i, name in enumerate(record.names)]
    total = number(sum(values[0] for _, values in rewards))
    title = "Contract items" if items.get("mechanism") == "contract" else "Stackelberg game"
    sentence = (
        f"In total {total} is paid; a device with a larger MI-DP budget adds less noise and gets a larger reward."
    )
    return section(
        f"{prefix}incentive",
        title,
        markup('<p class="hint">{}</p>', sentence),
        joined(
            [stacked_bars([("send", "reward")], rewards, number, "Reward of each device")] if len(rewards) <= 60 else []
        ),
        folded(f"{prefix}items", "All items", table(columns, rows, "Item of each device", "cards")),
    )


def _cell(value: Any, key: str) -> str:
    return share(value) if key == "arrival_probability" else number(value)


def _classes(classes: Mapping[str, Any]) -> str:
    shown = [f"{name}: {count}" for name, count in list(classes.items())[:MOST_CLASSES]]
    return ", ".join([*shown, *(["…"] * (len(classes) > MOST_CLASSES))])


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
    return table([Heading(name) for name in names], rows, "Multiply-accumulate operations", "cards")


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
    return table([Heading(name) for name in names], rows, shown, "cards")
