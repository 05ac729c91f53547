"""Numbers as people read them."""

from __future__ import annotations

import math
from typing import Any, TypeGuard

NOTHING = "–"  # noqa: RUF001 (an en dash, as tables have it)


def score(value: Any, metric: str) -> str:
    """Return an accuracy in per cent, and R2 as a number.

    Example:
        >>> score(0.96474, "accuracy"), score(0.5, "r2"), score(None, "r2")
        ('96.47%', '0.5000', '–')
    """
    if not is_number(value):
        return NOTHING
    return f"{100 * value:.2f}%" if metric == "accuracy" else f"{value:.4f}"


def share(value: Any) -> str:
    """Return a share in whole per cent."""
    return f"{100 * value:.0f}%" if is_number(value) else NOTHING


def seconds(value: Any) -> str:
    """Return seconds with three digits, or hours if they are many.

    Example:
        >>> seconds(0.1234), seconds(4100.0), seconds(200_000.0), seconds(0), seconds(None)
        ('0.123 s', '4,100 s', '55.6 h', '0 s', '–')
    """
    if not is_number(value):
        return NOTHING
    return f"{value / 3600:,.1f} h" if value >= 100_000 else f"{number(value)} s"


def size(value: Any) -> str:
    """Return bytes in the unit that fits.

    Example:
        >>> size(0), size(28_142), size(22_524_000.0)
        ('0 B', '28.1 kB', '22.5 MB')
    """
    if not is_number(value):
        return NOTHING
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{number(value)} {unit}"
        value /= 1000
    return f"{number(value)} TB"


def number(value: Any) -> str:
    """Return a number with three digits, or all of them before the point.

    Example:
        >>> number(3), number(0.01234), number(12345.6), number(3.4e12), number(float("nan"))
        ('3', '0.0123', '12,346', '3.4e+12', '–')
    """
    if not is_number(value):
        return NOTHING
    if value == 0 or 1e-3 <= abs(value) < 100:
        return f"{value:.3g}"
    return f"{value:,.0f}" if 100 <= abs(value) < 1e9 else f"{value:.3g}"


def bound(value: Any) -> str:
    """Return a privacy budget; one that is not finite bounds nothing."""
    return number(value) if is_number(value) else "no bound"


def is_number(value: Any) -> TypeGuard[float]:
    """Return whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
