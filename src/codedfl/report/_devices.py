"""The devices: their data, their arrivals, and what they are paid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from codedfl.report._bars import stacked_bars
from codedfl.report._html import Column, Html, folded, joined, markup, section, table
from codedfl.report._record import Record
from codedfl.results import number, share

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
    columns = [Column("device", number=False), *(Column(name) for _, name in known)]
    rows = [[d["device"], *(_cell(d.get(key), key) for key, _ in known)] for d in record.devices]
    if classes:
        columns.append(Column("classes", number=False))
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
        Column("device", number=False),
        Column("sensitivity"),
        Column("MI-DP, bits"),
        Column("noise variance"),
        Column("reward"),
        Column("utility"),
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
