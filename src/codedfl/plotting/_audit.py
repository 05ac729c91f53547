"""The picture of an audit."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from codedfl.experiment._audit import Audit
from codedfl.plotting._canvas import new_figure, to_png

DARK, RED, BLUE, GREY = "#333333", "#D55E00", "#0072B2", "#999999"
MOST_DEVICES = 60


def draw_audit(audit: Audit) -> bytes:
    """Draw, for every device, the MI-DP budgets as printed and corrected, and the errors of the reconstruction attack.

    Returns:
        A PNG file.
    """
    figure = new_figure(10, 4.6)
    left, right = figure.subplots(1, 2)
    _draw_mi_dp(left, audit)
    _draw_attack(right, audit)
    for axes in (left, right):
        axes.set_xlabel("device")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#DDDDDD", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=3)
    return to_png(figure)


def _draw_mi_dp(axes: Axes, audit: Audit) -> None:
    devices = audit.devices[:MOST_DEVICES]
    places = np.arange(1, len(devices) + 1)
    for name, colour, shift in (("printed", GREY, -0.2), ("corrected", RED, 0.2)):
        bits = np.array([getattr(device.mi_dp, name) for device in devices])
        finite = np.isfinite(bits)
        label = "Theorem 2 as printed" if name == "printed" else "corrected"
        axes.bar(places[finite] + shift, bits[finite], width=0.4, color=colour, label=label)
        if not finite.all():
            top = max(float(bits[finite].max()) if finite.any() else 1.0, 1.0)
            axes.plot(
                places[~finite] + shift, np.full((~finite).sum(), top), "^", color=colour, label=f"{name}: unbounded"
            )
    universal = max(device.mi_dp.universal for device in audit.devices)
    if math.isfinite(universal):
        axes.axhline(universal, color=DARK, linestyle="--", linewidth=1, label="bound for all data")
    axes.set_ylabel("MI-DP of one entry (bits)")
    axes.set_title("what the coded features reveal", loc="left", fontsize=11)


def _draw_attack(axes: Axes, audit: Audit) -> None:
    devices = [(i + 1, device.attack) for i, device in enumerate(audit.devices[:MOST_DEVICES]) if device.attack]
    axes.set_title("reconstruction of unknown samples", loc="left", fontsize=11)
    if not devices:
        axes.text(0.5, 0.5, "no attack was run", ha="center", va="center", transform=axes.transAxes, color=DARK)
        return
    places = [place for place, _ in devices]
    for name, marker, colour, label in (
        ("baseline_error", "_", DARK, "guessing the mean"),
        ("feasible_error", "o", BLUE, "attack"),
        ("oracle_error", "v", RED, "attack with an oracle"),
    ):
        values = [getattr(attack, name) for _, attack in devices]
        axes.plot(places, values, marker, color=colour, label=label, markersize=9 if marker == "_" else 5)
    axes.set_ylim(bottom=0)
    known = f"{audit.known_ratio:.0%}" if audit.known_ratio is not None else "some"
    axes.set_ylabel(f"relative error ({known} of the samples known)")
