"""Devices that share a reward, each answering the others in turn until nobody moves: slow and without any theory."""

from __future__ import annotations

import math
from collections.abc import Sequence


def best_answer(total_reward: float, sensitivity: float, others: float, cap: float) -> float:
    """The ``e`` in ``[0, cap]`` with the greatest ``R e / (others + e) - mu e``: where ``R others / (others + e)^2 = mu``."""
    return min(max(math.sqrt(total_reward * others / sensitivity) - others, 0.0), cap)


def answer_until_nobody_moves(
    total_reward: float, sensitivities: Sequence[float], caps: Sequence[float]
) -> list[float]:
    """Half a step towards the best answer, device by device, until steps are within rounding."""
    bits = [min(total_reward / (mu * len(sensitivities)), cap) for mu, cap in zip(sensitivities, caps, strict=True)]
    for _ in range(200_000):
        moved = 0.0
        for i, (mu, cap) in enumerate(zip(sensitivities, caps, strict=True)):
            others = math.fsum(bits[:i] + bits[i + 1 :])
            step = (best_answer(total_reward, mu, others, cap) - bits[i]) / 2
            bits[i] += step
            moved = max(moved, abs(step))
        if moved <= 1e-15 * sum(bits):
            return bits
    raise AssertionError("the answers did not settle")
