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


def in_megabytes(value: float) -> str:
    """Return a number of bytes in megabytes; one that is small has a digit that is not zero.

    Example:
        >>> [in_megabytes(size) for size in (0, 20, 8_600, 1_234_567, 5e9)]
        ['0.0', '<1e-4', '0.009', '1.2', '5000']
    """
    value = value / 1e6
    if 0 < value < 0.095:
        return f"{value:.1g}" if value >= 1e-4 else "<1e-4"
    return short(value)


def short(value: float) -> str:
    """Return a number with one decimal, unless it is too long for that."""
    return f"{value:.1f}" if value < 1000 else f"{value:.0f}"
