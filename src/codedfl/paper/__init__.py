"""The figures and tables of the paper (Sec. VI), one small file each.

Example:
    >>> from codedfl.paper import ITEMS
    >>> list(ITEMS)[:3]
    ['attack', 'fig-convergence', 'fig-tradeoff']
"""

from codedfl.paper._cache import Cache
from codedfl.paper._claims import Claim, Evidence
from codedfl.paper._executor import Means, Outcomes, Watcher
from codedfl.paper._figure import Item
from codedfl.paper._registry import ITEMS
from codedfl.paper._reproduce import Judgement, Reproduction, reproduce
from codedfl.paper._setups import QUIRKS, Quirk, Scope

__all__ = [
    "ITEMS",
    "QUIRKS",
    "Cache",
    "Claim",
    "Evidence",
    "Item",
    "Judgement",
    "Means",
    "Outcomes",
    "Quirk",
    "Reproduction",
    "Scope",
    "Watcher",
    "reproduce",
]
