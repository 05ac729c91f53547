"""All figures and tables by name. A new one is a new file and a line here."""

from __future__ import annotations

from collections.abc import Mapping

from codedfl.paper.fig_coded_samples import FIG_CODED_SAMPLES
from codedfl.paper.fig_convergence import FIG_CONVERGENCE
from codedfl.paper.fig_incentive import FIG_INCENTIVE
from codedfl.paper.fig_stragglers import FIG_STRAGGLERS
from codedfl.paper.fig_tau import FIG_TAU
from codedfl.paper.fig_tradeoff import FIG_TRADEOFF
from codedfl.paper.item import Item

ITEMS: Mapping[str, Item] = {
    item.name: item
    for item in (
        FIG_CONVERGENCE,
        FIG_TRADEOFF,
        FIG_TAU,
        FIG_STRAGGLERS,
        FIG_CODED_SAMPLES,
        FIG_INCENTIVE,
    )
}
