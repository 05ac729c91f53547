"""Which schemes a table marks as the best."""

from __future__ import annotations

import math
from collections.abc import Mapping


def best_schemes(scores: Mapping[str, float | None], covers: Mapping[str, str] | None = None) -> frozenset[str]:
    """Return the schemes with the highest score, all of them if some are equal.

    Args:
        scores: the score of each scheme; None or NaN without a usable model.
        covers: what the epsilon of each scheme covers, if there is one to keep: a scheme counts only if it keeps it for
            ``everything`` that devices send.

    Example:
        >>> sorted(best_schemes({"fedavg": 0.9, "scfl": 0.9, "dp-cfl": None}))
        ['fedavg', 'scfl']
        >>> sorted(best_schemes({"scfl": 0.9, "dp-gd": 0.8}, {"scfl": "upload", "dp-gd": "everything"}))
        ['dp-gd']
    """
    counting = {
        name: score
        for name, score in scores.items()
        if score is not None and math.isfinite(score) and (covers is None or covers.get(name) == "everything")
    }
    highest = max(counting.values(), default=math.nan)
    return frozenset(name for name, score in counting.items() if score == highest)
