"""Learning rates ``eta_k``."""

from __future__ import annotations

from dataclasses import dataclass

from codedfl._validation import require_non_negative, require_positive


@dataclass(frozen=True)
class LearningRate:
    """A step size for every round: ``eta_k = eta_0 / (1 + k / beta)``, or constant.

    Args:
        initial: ``eta_0``.
        decay_rounds: ``beta``, rounds until the step size is halved; 0 for a constant step size.

    Example:
        >>> LearningRate(0.1).at(1000)
        0.1
        >>> LearningRate(0.1, decay_rounds=100).at(100)
        0.05
    """

    initial: float
    decay_rounds: float = 0.0

    def __post_init__(self) -> None:
        require_positive("learning_rate.initial", self.initial)
        require_non_negative("learning_rate.decay_rounds", self.decay_rounds)

    @classmethod
    def relative(cls, scale: float, smoothness: float, decay_rounds: float = 0.0) -> LearningRate:
        """Return ``eta_0 = scale / L``, where ``L`` is the smoothness constant of the loss (`codedfl.losses.Loss.smoothness`)."""
        return cls(scale / smoothness, decay_rounds)

    def at(self, round: int) -> float:
        """Return ``eta_k``."""
        return self.initial / (1.0 + round / self.decay_rounds) if self.decay_rounds else self.initial
