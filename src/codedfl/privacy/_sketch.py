"""How much one sample can change a sketch."""

from __future__ import annotations

import math


def sketch_sensitivity(norm_bound: float, label_norm_bound: float, *, some_rows: bool) -> tuple[float, float]:
    """Return the most by which one sample changes what a sketch tells about features and about labels, in Frobenius norm.

    A sample ``(x, y)`` changes ``X^T X Omega`` by ``x x^T Omega`` and ``||X||^2`` by ``||x||^2``, together by at most
    ``sqrt(2) B^2``, and ``X^T Y`` by ``x y^T``, at most ``B B_Y``. If a sketch has some of the rows, a sample that is removed may
    have been one of them, and then another takes its place. That changes features by no more than ``sqrt(2) B^2``, since
    ``||x x^T - z z^T||^2 + (||x||^2 - ||z||^2)^2 <= 2 (a^2 + b^2 - a b)`` with ``a, b <= B^2`` the squared norms, but labels by
    up to ``2 B B_Y``. That the choice of rows is secret as well is not counted.

    Args:
        norm_bound: ``B``.
        label_norm_bound: ``B_Y``.
        some_rows: whether the sketch has some of the rows and not all.

    Example:
        >>> sketch_sensitivity(1.0, 1.0, some_rows=True)
        (1.414..., 2.0)
    """
    return math.sqrt(2) * norm_bound**2, (2.0 if some_rows else 1.0) * norm_bound * label_norm_bound
