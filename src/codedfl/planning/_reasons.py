"""Why not: one plain sentence about each scheme that a plan does not choose."""

from __future__ import annotations

from codedfl.planning._forecast import Forecast
from codedfl.planning._target import Target


def reason_against(other: Forecast, chosen: Forecast | None, target: Target) -> str:
    """Return why a scheme was not chosen.

    Args:
        other: the scheme.
        chosen: the one that was; None if none reaches the target.
        target: what was to be achieved.

    Example:
        >>> slow = Forecast("scfl", "SCFL", "reaches", preparation_s={"total": 50_000.0}, time_s=66_000.0)
        >>> reason_against(slow, Forecast("ccfl", "CCFL", "reaches", time_s=200.0), Target())
        'preparation alone takes 50,000 s'
    """
    if other.status == "impossible":
        return other.reason
    if other.status == "runs away":
        return _away(other)
    if target.time_s is not None:
        return _by_then(other, target.time_s)
    if other.status == "falls short":
        if other.end_below is not None and other.end_below > other.best_below + 0.1:
            return f"at its best it is {other.best_below:.2f} points below, in the end {other.end_below:.2f}"
        return f"its limit is {other.best_below:.2f} points below"
    limit = chosen.time_s if chosen and chosen.time_s is not None else 0.0
    if other.preparation_total_s > limit:
        return f"preparation alone takes {_count(other.preparation_total_s)} s"
    if other.step_size_scale is not None and other.rounds is not None:
        return (
            f"{_count(other.rounds)} rounds of {other.round_s:.3g} s: plain gradient steps at condition number"
            f" {other.condition:.1g}"
        )
    return f"takes {(other.time_s or 0.0) / max(limit, 1e-300):.2g} times as long"


def _by_then(other: Forecast, seconds: float) -> str:
    if other.preparation_total_s > seconds:
        return f"preparation alone takes {_count(other.preparation_total_s)} s"
    if other.below_in_time is None:
        return "has no model by then"
    return f"is {other.below_in_time:.2f} points below by then"


def _away(other: Forecast) -> str:
    if other.coded_rows is not None and other.privacy.get("mi_dp_bits", 0) not in (None, float("inf")):
        text = "diverges at this noise: the Hessian of its coded data is indefinite"
        return text if other.best_below > 50 else f"{text}; at its best it is {other.best_below:.2f} points below"
    return "no step size of learning_rate.grid is stable"


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
