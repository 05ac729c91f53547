"""The picture of a contract: every device prefers its own item (Fig. 7a of the paper)."""

from __future__ import annotations

import numpy as np
from matplotlib.ticker import MaxNLocator

from codedfl.incentive import Contract
from codedfl.plotting._canvas import new_figure, to_png

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7")


def draw_contract(contract: Contract, names: tuple[str, ...]) -> bytes:
    """Draw, for four devices from the least to the most sensitive, the utility of every item; their own is marked.

    Returns:
        A PNG file.
    """
    order = contract.order
    epsilon, reward = contract.epsilon[order], contract.reward[order]
    items = np.arange(1, len(order) + 1)
    figure = new_figure(7, 4.4)
    axes = figure.add_subplot()
    shown = np.unique(np.linspace(0, len(order) - 1, min(4, len(order))).round().astype(int))
    for place, colour in zip(shown, COLOURS, strict=False):
        utility = reward - contract.sensitivity[order[place]] * epsilon
        label = f"{names[order[place]]}, sensitivity {contract.sensitivity[order[place]]:.3g}"
        axes.plot(items, utility, color=colour, linewidth=1.6, label=label.replace("$", r"\$"))
        axes.plot(place + 1, utility[place], "o", color=colour, markersize=7)
    axes.axhline(0.0, color="#333333", linewidth=0.8)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("contract item, from the largest privacy budget to the least")
    axes.set_ylabel("utility of the device")
    axes.set_title("every device's own item (dot) is its best", loc="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    axes.legend(fontsize=9, frameon=False)
    return to_png(figure)
