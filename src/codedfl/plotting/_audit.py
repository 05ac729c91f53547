"""The picture of an audit."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from codedfl.plotting._canvas import DARK, GREY, cut, new_figure, to_png
from codedfl.privacy import DeviceAudit

RED, BLUE = "#D55E00", "#0072B2"
MOST_DEVICES = 60


def draw_audit(devices: Sequence[DeviceAudit], known_ratio: float | None) -> bytes:
    """Draw, per device, the MI-DP budgets as printed and corrected, and the errors of the reconstruction attack.

    Args:
        devices: one audit per device.
        known_ratio: the share of a device's samples that the attacker knew; None without an attack.

    Returns:
        A PNG file.
    """
    return to_png(audit_figure(devices, known_ratio))


def audit_figure(devices: Sequence[DeviceAudit], known_ratio: float | None) -> Figure:
    """Return the figure that `draw_audit` writes: a row per device, so that there is room for its name."""
    shown = devices[:MOST_DEVICES]
    figure = new_figure(10.5, 2.2 + 0.22 * len(shown))
    left, right = figure.subplots(1, 2, sharey=True)
    _draw_mi_dp(left, shown, max(device.mi_dp.universal for device in devices))
    _draw_attack(right, shown, known_ratio)
    left.set_yticks(range(len(shown)), [cut(device.name) for device in shown], parse_math=False)
    left.set_ylim(len(shown) - 0.4, -0.6)
    more = f" (first {len(shown)} of {len(devices)})" if len(devices) > len(shown) else ""
    left.set_ylabel(f"device{more}")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="x", color="#DDDDDD", linewidth=0.6)
        axes.tick_params(axis="y", length=0)
        axes.set_axisbelow(True)
    figure.legend(fontsize=8, frameon=False, loc="outside lower center", ncols=6)
    return figure


def _draw_mi_dp(axes: Axes, devices: Sequence[DeviceAudit], universal: float) -> None:
    places = np.arange(len(devices))
    budgets = {name: np.array([getattr(device.mi_dp, name) for device in devices]) for name in ("printed", "corrected")}
    top = max([universal, *np.concatenate([*budgets.values()])], key=lambda bits: bits if math.isfinite(bits) else 0.0)
    top = top if math.isfinite(top) and top > 0 else 1.0
    for name, colour, shift in (("printed", GREY, -0.2), ("corrected", RED, 0.2)):
        bits = budgets[name]
        finite = np.isfinite(bits)
        label = "Theorem 2 as printed" if name == "printed" else "corrected"
        axes.barh(
            places[finite] + shift, bits[finite], height=0.38, color=colour, label=label if finite.any() else None
        )
        if not finite.all():
            edge = np.full((~finite).sum(), 1.03 * top)
            axes.plot(edge, places[~finite] + shift, ">", color=colour, markersize=5, label=f"{label}: no bound")
    if math.isfinite(universal):
        axes.axvline(universal, color=DARK, linestyle="--", linewidth=1, label="bound for all data")
    axes.set_xlim(0, 1.08 * top)
    axes.set_xlabel("MI-DP of one entry (bits)")
    axes.set_title("what the coded features reveal", loc="left", fontsize=11)


def _draw_attack(axes: Axes, devices: Sequence[DeviceAudit], known_ratio: float | None) -> None:
    attacked = [(i, device.attack) for i, device in enumerate(devices) if device.attack]
    axes.set_title("reconstruction of unknown samples", loc="left", fontsize=11)
    if not attacked:
        axes.text(0.5, 0.5, "no attack was run", ha="center", va="center", transform=axes.transAxes, color=DARK)
        axes.set_xticks([])
        return
    places = [place for place, _ in attacked]
    for name, marker, colour, label in (
        ("baseline_error", "|", DARK, "guessing the mean"),
        ("feasible_error", "o", BLUE, "attack"),
        ("oracle_error", "v", RED, "attack with an oracle"),
    ):
        values = [getattr(attack, name) for _, attack in attacked]
        axes.plot(values, places, marker, color=colour, label=label, markersize=9 if marker == "|" else 5)
    axes.set_xlim(left=0)
    known = f"{known_ratio:.0%}" if known_ratio is not None else "some"
    axes.set_xlabel(f"relative error, with {known} of the samples known")
