"""Evidence about the coins of canaries, added up over messages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from codedfl.typing import FloatArray, IntArray

_LEAST_NOISE = 1e-6
"""Noise that is assumed at least, relative to the signals: numbers of single precision are no more exact."""


@dataclass(eq=False)
class Evidence:
    """What messages tell about coins ``b`` of ``m`` canaries.

    Of a message ``v = sum_j b_j a_j + noise``, with known signals ``a_j``, all that counts is ``A^T A`` and ``A^T v``. Messages
    add up to a precision ``P = sum A^T A / s^2`` and a vector ``h = sum A^T v / s^2``. Coded messages, which are not linear
    in the coins, add log-likelihood ratios.

    Args:
        precision: ``P``, (m, m).
        weighted: ``h``, (m,).
        ratios: sums of log-likelihood ratios, (m,).
        messages: how many messages were added.
    """

    precision: FloatArray
    weighted: FloatArray
    ratios: FloatArray
    messages: int = 0

    @classmethod
    def none(cls, canaries: int) -> Evidence:
        """Return no evidence."""
        return cls(np.zeros((canaries, canaries)), np.zeros(canaries), np.zeros(canaries))

    def add_linear(
        self, canaries: IntArray, products: FloatArray, projections: FloatArray, energy: float, numbers: float
    ) -> None:
        """Add a message that is linear in the coins.

        The variance of the noise is estimated from the message itself, so that noise that is missing is noticed: half of the
        canaries are present, so the mean of ``||v - A 1 / 2||^2`` is ``n s^2 + tr(A^T A) / 4``.

        Args:
            canaries: those that may be in the message, (k,).
            products: ``A^T A``, (k, k).
            projections: ``A^T v``, (k,), with what all others contribute subtracted from ``v``.
            energy: ``||v||^2``.
            numbers: ``n``, independent numbers in the message.
        """
        signal = float(np.trace(products))
        if not len(canaries) or signal == 0 or not np.isfinite(energy):
            return
        spread = energy - float(projections.sum()) + float(products.sum()) / 4
        variance = max(spread - signal / 4, _LEAST_NOISE * signal) / numbers
        self.precision[np.ix_(canaries, canaries)] += products / variance
        self.weighted[canaries] += projections / variance
        self.messages += 1

    def add_ratios(self, canaries: IntArray, ratios: FloatArray) -> None:
        """Add log-likelihood ratios of an independent message."""
        self.ratios[canaries] += ratios
        self.messages += 1

    def __add__(self, other: Evidence) -> Evidence:
        return Evidence(
            self.precision + other.precision,
            self.weighted + other.weighted,
            self.ratios + other.ratios,
            self.messages + other.messages,
        )

    def scores(self) -> FloatArray:
        """Return a log-likelihood ratio of "present" to "absent" for every canary, (m,).

        Coins have mean 1/2 and variance 1/4. If they were Gaussian, the posterior would have the covariance
        ``V = (P + 4 I)^-1`` and the mean ``1/2 + V (h - P 1 / 2)``. Taken so for all other canaries, it gives the ratio
        ``V (h - P 1 / 2) / diag(V)``, exact for a single canary: ``h_j - P_jj / 2``.
        """
        factor = scipy.linalg.cho_factor(self.precision + 4 * np.eye(len(self.weighted)), lower=True)
        covariance = scipy.linalg.cho_solve(factor, np.eye(len(self.weighted)))
        linear: FloatArray = covariance @ (self.weighted - self.precision.sum(axis=1) / 2) / np.diag(covariance)
        return linear + self.ratios
