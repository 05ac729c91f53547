"""All figures and tables by name. A new one is a new file and a line here."""

from __future__ import annotations

from collections.abc import Mapping

from codedfl.paper._attack import ATTACK
from codedfl.paper._fig_coded_samples import FIG_CODED_SAMPLES
from codedfl.paper._fig_convergence import FIG_CONVERGENCE
from codedfl.paper._fig_incentive import FIG_INCENTIVE
from codedfl.paper._fig_stragglers import FIG_STRAGGLERS
from codedfl.paper._fig_tau import FIG_TAU
from codedfl.paper._fig_tradeoff import FIG_TRADEOFF
from codedfl.paper._figure import Item
from codedfl.paper._limits import LIMITS
from codedfl.paper._overhead import OVERHEAD
from codedfl.paper._table_lambda import TABLE_LAMBDA
from codedfl.paper._table_schemes import TABLE_SCHEMES

ITEMS: Mapping[str, Item] = {
    item.name: item
    for item in (
        ATTACK,
        FIG_CONVERGENCE,
        FIG_TRADEOFF,
        FIG_TAU,
        FIG_STRAGGLERS,
        FIG_CODED_SAMPLES,
        FIG_INCENTIVE,
        TABLE_SCHEMES,
        TABLE_LAMBDA,
        OVERHEAD,
        LIMITS,
    )
}
