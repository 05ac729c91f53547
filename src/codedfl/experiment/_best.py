"""Which schemes a table marks as the best."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping


def best_schemes(scores: Mapping[str, float | None], private: Collection[str] | None = None) -> frozenset[str]:
    """Return the schemes with the highest score, all of them if some are equal.

    Args:
        scores: the score of each scheme; None or NaN without a usable model.
        private: those that keep the epsilon of the run for everything that devices send, if there is one to keep: no other
            scheme counts then.

    Example:
        >>> sorted(best_schemes({"fedavg": 0.9, "scfl": 0.9, "dp-cfl": None}))
        ['fedavg', 'scfl']
        >>> sorted(best_schemes({"scfl": 0.9, "dp-gd": 0.8}, {"dp-gd"}))
        ['dp-gd']
    """
    counting = {
        name: score
        for name, score in scores.items()
        if score is not None and math.isfinite(score) and (private is None or name in private)
    }
    highest = max(counting.values(), default=math.nan)
    return frozenset(name for name, score in counting.items() if score == highest)
