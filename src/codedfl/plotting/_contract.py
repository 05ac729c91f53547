"""The picture of a contract: every device prefers its own item (Fig. 7a of the paper)."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from codedfl.incentive import Contract
from codedfl.plotting._canvas import DARK, cut, new_figure, to_png

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7")
MOST_NAMES = 25
"""Items up to which each has the name of its device on the axis."""
SIDE_BY_SIDE = 4
"""Names that fit next to each other."""


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
    shown = np.unique(np.linspace(0, len(order) - 1, min(4, len(order))).round().astype(int))
    for place, colour in zip(shown, COLOURS, strict=False):
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
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    legend = figure.legend(loc="outside right upper", fontsize=9, frameon=False, title="utility for", labelspacing=0.9)
    for text in legend.get_texts():
        text.set_parse_math(False)
    return figure
