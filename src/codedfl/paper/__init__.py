"""The figures and tables of the paper (Sec. VI), one small file each.

Example:
    >>> from codedfl.paper import ITEMS
    >>> list(ITEMS)[:3]
    ['attack', 'fig-convergence', 'fig-tradeoff']
"""

from codedfl.paper.cache import Cache
from codedfl.paper.carrying_out import Means, Outcomes, Watcher
from codedfl.paper.claims import Claim, Evidence
from codedfl.paper.item import Item
from codedfl.paper.registry import ITEMS
from codedfl.paper.reproduce import Judgement, Reproduction, reproduce
from codedfl.paper.setups import QUIRKS, Quirk, Scope

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
