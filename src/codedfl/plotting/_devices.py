"""Pictures of single devices: the audit of each, the contract item of each, and when the updates of each arrived."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from codedfl.incentive import Contract
from codedfl.plotting._canvas import (
    BLUE,
    DARK,
    GREEN,
    GREY,
    ORANGE,
    PALE,
    PINK,
    RED,
    cut,
    new_figure,
    tidy,
    to_png,
    without_maths,
)
from codedfl.privacy import DeviceAudit
from codedfl.typing import BoolArray, FloatArray

MOST_AUDITED = 60
"""Devices that the picture of an audit shows."""

MOST_IN_MAP = 40
"""Devices that a map of arrivals shows."""

MOST_NAMES = 25
"""Items up to which each has the name of its device on the axis."""

SIDE_BY_SIDE = 4
"""Names that fit next to each other."""


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
    drawn = devices[:MOST_AUDITED]
    figure = new_figure(10.5, 2.2 + 0.22 * len(drawn))
    left, right = figure.subplots(1, 2, sharey=True)
    _draw_mi_dp(left, drawn, max(device.mi_dp.universal for device in devices))
    _draw_attack(right, drawn, known_ratio)
    left.set_yticks(range(len(drawn)), [cut(device.name) for device in drawn], parse_math=False)
    left.set_ylim(len(drawn) - 0.4, -0.6)
    more = f" (first {len(drawn)} of {len(devices)})" if len(devices) > len(drawn) else ""
    left.set_ylabel(f"device{more}")
    for axes in (left, right):
        tidy(axes, grid="x")
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


def draw_contract(contract: Contract, names: tuple[str, ...]) -> bytes:
    """Draw, for four devices from the least to the most sensitive, the utility of every item; their own is marked.

    Returns:
        A PNG file.
    """
    return to_png(contract_figure(contract, names))


def contract_figure(contract: Contract, names: tuple[str, ...]) -> Figure:
    """Return the figure that `draw_contract` writes."""
    order = contract.order
    bits, reward = contract.mi_dp_bits[order], contract.reward[order]
    items = np.arange(1, len(order) + 1)
    figure = new_figure(9, 4.6)
    axes = figure.add_subplot()
    drawn = np.unique(np.linspace(0, len(order) - 1, min(4, len(order))).round().astype(int))
    for place, colour in zip(drawn, (BLUE, ORANGE, GREEN, PINK), strict=False):
        utility = reward - contract.sensitivity[order[place]] * bits
        label = f"{cut(names[order[place]])},\nsensitivity {contract.sensitivity[order[place]]:.3g}"
        axes.plot(items, utility, color=colour, linewidth=1.6, label=label)
        axes.plot(place + 1, utility[place], "o", color=colour, markersize=7, clip_on=False)
    axes.axhline(0.0, color=DARK, linewidth=0.8, zorder=1)
    if len(order) <= MOST_NAMES:
        labels = axes.set_xticks(items, [cut(names[device]) for device in order], fontsize=8)
        for tick in labels:
            tick.label1.set_parse_math(False)
            if len(order) > SIDE_BY_SIDE:
                tick.label1.set(rotation=60, ha="right", rotation_mode="anchor")
        axes.set_xlabel("contract item of this device, from the largest privacy budget (MI-DP) to the least")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("contract item, from the largest privacy budget (MI-DP) to the least")
    axes.set_xlim(0.5, len(order) + 0.5)
    axes.set_ylabel("utility for the device")
    axes.set_title("every device's own item (dot) is its best", loc="left", fontsize=11)
    tidy(axes)
    without_maths(
        figure.legend(loc="outside right upper", fontsize=9, frameon=False, title="utility for", labelspacing=0.9)
    )
    return figure


def draw_federation(
    rounds: Sequence[int],
    scores: Sequence[float | None],
    metric: str,
    names: Sequence[str],
    asked: BoolArray,
    arrived: BoolArray,
) -> bytes:
    """Draw the learning curve above a map of arrivals, on one axis of rounds.

    Args:
        rounds: rounds completed at each evaluation.
        scores: score at each evaluation; None where there is no test data.
        metric: what the score is.
        names: names of the devices.
        asked: who was reachable and asked in each round, (K, N).
        arrived: whose update arrived in time, (K, N).

    Returns:
        A PNG file.
    """
    return to_png(federation_figure(rounds, scores, metric, names, asked, arrived))


def federation_figure(
    rounds: Sequence[int],
    scores: Sequence[float | None],
    metric: str,
    names: Sequence[str],
    asked: BoolArray,
    arrived: BoolArray,
) -> Figure:
    """Return the figure that `draw_federation` writes."""
    rows = min(len(names), MOST_IN_MAP)
    figure = new_figure(9, 3.4 + 0.26 * rows)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 0.45 + 0.26 * rows))
    measured = [(number, score) for number, score in zip(rounds, scores, strict=True) if score is not None]
    # The zero model before the first round would squeeze the rest of the curve into a corner.
    known = [point for point in measured if point[0] > 0] or measured
    if known:
        above.plot(*zip(*known, strict=True), color=BLUE, linewidth=1.8, marker="o", markersize=3)
    else:
        above.text(0.5, 0.5, "the server has no test data", ha="center", transform=above.transAxes, color=DARK)
    above.set_ylabel(metric)
    above.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    end = f", {known[-1][1]:.3f} in the end" if known else ""
    above.set_title(f"{metric} on the server's test data after each round{end}", loc="left", fontsize=11)
    state: FloatArray = np.where(arrived, 2.0, np.where(asked, 1.0, 0.0))[:, :rows].T
    if len(arrived):
        colours = ListedColormap([PALE, ORANGE, BLUE])
        edges = np.arange(len(arrived) + 1) + 0.5, np.arange(rows + 1) - 0.5
        thin = 1.0 if len(arrived) <= 100 else 0.0
        below.pcolormesh(*edges, state, cmap=colours, vmin=0, vmax=2, edgecolors="white", linewidth=thin)
        below.invert_yaxis()
    below.set_yticks(range(rows), [cut(name) for name in names[:rows]], parse_math=False)
    below.set_xlabel("round")
    below.xaxis.set_major_locator(MaxNLocator(integer=True))
    keys = ((BLUE, "arrived"), (ORANGE, "asked, but late"), (PALE, "not asked"))
    patches = [Patch(color=colour, label=label) for colour, label in keys]
    figure.legend(handles=patches, fontsize=8, frameon=False, ncols=3, loc="outside lower center")
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
    return figure
