"""The picture of an audit."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from codedfl.plotting._canvas import DARK, GREY, new_figure, to_png
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
    figure = new_figure(10, 4.6)
    left, right = figure.subplots(1, 2)
    _draw_mi_dp(left, devices)
    _draw_attack(right, devices, known_ratio)
    for axes in (left, right):
        axes.set_xlabel("device")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#DDDDDD", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=3)
    return to_png(figure)


def _draw_mi_dp(axes: Axes, devices: Sequence[DeviceAudit]) -> None:
    shown = devices[:MOST_DEVICES]
    places = np.arange(1, len(shown) + 1)
    for name, colour, shift in (("printed", GREY, -0.2), ("corrected", RED, 0.2)):
        bits = np.array([getattr(device.mi_dp, name) for device in shown])
        finite = np.isfinite(bits)
        label = "Theorem 2 as printed" if name == "printed" else "corrected"
        axes.bar(places[finite] + shift, bits[finite], width=0.4, color=colour, label=label)
        if not finite.all():
            top = max(float(bits[finite].max()) if finite.any() else 1.0, 1.0)
            axes.plot(
                places[~finite] + shift, np.full((~finite).sum(), top), "^", color=colour, label=f"{name}: unbounded"
            )
    universal = max(device.mi_dp.universal for device in devices)
    if math.isfinite(universal):
        axes.axhline(universal, color=DARK, linestyle="--", linewidth=1, label="bound for all data")
    axes.set_ylabel("MI-DP of one entry (bits)")
    axes.set_title("what the coded features reveal", loc="left", fontsize=11)


def _draw_attack(axes: Axes, devices: Sequence[DeviceAudit], known_ratio: float | None) -> None:
    attacked = [(i + 1, device.attack) for i, device in enumerate(devices[:MOST_DEVICES]) if device.attack]
    axes.set_title("reconstruction of unknown samples", loc="left", fontsize=11)
    if not attacked:
        axes.text(0.5, 0.5, "no attack was run", ha="center", va="center", transform=axes.transAxes, color=DARK)
        return
    places = [place for place, _ in attacked]
    for name, marker, colour, label in (
        ("baseline_error", "_", DARK, "guessing the mean"),
        ("feasible_error", "o", BLUE, "attack"),
        ("oracle_error", "v", RED, "attack with an oracle"),
    ):
        values = [getattr(attack, name) for _, attack in attacked]
        axes.plot(places, values, marker, color=colour, label=label, markersize=9 if marker == "_" else 5)
    axes.set_ylim(bottom=0)
    known = f"{known_ratio:.0%}" if known_ratio is not None else "some"
    axes.set_ylabel(f"relative error ({known} of the samples known)")
