"""A lower bound on mu of Gaussian differential privacy, measured with canaries in one run."""

from __future__ import annotations

from scipy import special

from codedfl.privacy._inputs import require_probability
from codedfl.privacy._refutation import guesses_refute, largest_refuted, require_guesses


def gaussian_mu_lower_bound(guesses: int, correct: int, canaries: int, confidence: float = 0.95) -> float:
    """Return a ``mu`` such that, with this confidence, the mechanism is not Gaussian-private with any smaller one.

    A mechanism is ``mu``-Gaussian differentially private if adding or removing a sample is at least as hard to detect
    as telling N(0, 1) from N(mu, 1): an event of probability ``b`` with one dataset has with the other at most
    ``F(b) = Phi(Phi^-1(b) + mu)``. `guesses_refute` tests that.

    Args:
        guesses: ``r``, fixed before the coins are looked at.
        correct: ``v``.
        canaries: ``m``, those without a guess included.
        confidence: between 0 and 1, both excluded.

    Returns:
        The largest ``mu`` that is refuted; 0 if none is.

    Example:
        >>> round(gaussian_mu_lower_bound(guesses=1000, correct=1000, canaries=1000), 3)
        2.368
        >>> gaussian_mu_lower_bound(guesses=1000, correct=500, canaries=1000)
        0.0
    """
    require_guesses(guesses, correct, canaries)
    require_probability("confidence", confidence)

    def refuted(mu: float) -> bool:
        def least_other(probability: float) -> float:
            return float(special.ndtr(special.ndtri(probability) - mu))

        return guesses_refute(least_other, guesses, correct, canaries, 1 - confidence)

    return largest_refuted(refuted)
