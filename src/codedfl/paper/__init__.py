"""The figures and tables of the paper (Sec. VI), one small file each.

Example:
    >>> from codedfl.paper import FIGURES
    >>> list(FIGURES)[:3]
    ['attack', 'fig-convergence', 'fig-tradeoff']
"""

from collections.abc import Mapping

from codedfl.paper._attack import ATTACK
from codedfl.paper._claims import Claim, Evidence
from codedfl.paper._executor import Cache, Executor, Outcomes
from codedfl.paper._fig_convergence import FIG_CONVERGENCE
from codedfl.paper._fig_incentive import FIG_INCENTIVE
from codedfl.paper._fig_stragglers import FIG_CODED_SAMPLES, FIG_STRAGGLERS
from codedfl.paper._fig_tau import FIG_TAU
from codedfl.paper._fig_tradeoff import FIG_TRADEOFF
from codedfl.paper._figure import Figure
from codedfl.paper._limits import LIMITS
from codedfl.paper._overhead import OVERHEAD
from codedfl.paper._report import QUICK_ONLY, report
from codedfl.paper._reproduce import Judgement, Reproduction, all_outcomes, outcomes_name, reproduce
from codedfl.paper._setups import QUIRKS, Quirk, Scope
from codedfl.paper._table_lambda import TABLE_LAMBDA, lambda_rows
from codedfl.paper._table_schemes import TABLE_SCHEMES

__all__ = [
    "FIGURES",
    "QUICK_ONLY",
    "QUIRKS",
    "Cache",
    "Claim",
    "Evidence",
    "Executor",
    "Figure",
    "Judgement",
    "Outcomes",
    "Quirk",
    "Reproduction",
    "Scope",
    "all_outcomes",
    "lambda_rows",
    "outcomes_name",
    "report",
    "reproduce",
]

FIGURES: Mapping[str, Figure] = {
    figure.name: figure
    for figure in (
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
"""All figures and tables by name. A new one is a new file and a line here."""
