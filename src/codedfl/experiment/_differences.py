"""Differences of scores: between schemes, to the constant answer, and to the centralised optimum."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from codedfl.experiment._evidence import Evidence, SchemeEvidence
from codedfl.experiment._noise import Difference, difference_over_rows, difference_over_seeds
from codedfl.typing import FloatArray


def schemes_of(evidence: Sequence[Evidence], name: str) -> list[SchemeEvidence]:
    """Return what is known of a scheme under each seed."""
    return [scheme for each in evidence for scheme in each.schemes if scheme.name == name]


class Differences:
    """Differences of scores, with intervals that hold at once.

    One seed shows the noise of the test rows, paired row by row; several show that of the seed.

    Args:
        evidence: the comparisons, one per seed.
        names: the schemes to compare.
    """

    def __init__(self, evidence: Sequence[Evidence], names: Sequence[str]) -> None:
        self.evidence, self.names = evidence, names
        self.task = evidence[0].task

    def between(self, one: str, other: str) -> Difference:
        """Return the lead of a scheme over another, with intervals for one scheme against all others."""
        first, second = schemes_of(self.evidence, one), schemes_of(self.evidence, other)
        return self._paired([s.rows for s in first], [s.rows for s in second], max(1, len(self.names) - 1))

    def above_constant(self, name: str) -> Difference:
        """Return the lead of a scheme over the constant answer, with intervals for all schemes."""
        first = [scheme.rows for scheme in schemes_of(self.evidence, name)]
        return self._paired(first, [each.constant_rows for each in self.evidence], len(self.names))

    def beats_constant(self, name: str) -> bool:
        """Whether a scheme is better than the constant answer by more than noise: over seeds, or of the rows of every seed.

        Two or three seeds have wide intervals, but a lead that the test rows of each of them confirm is no chance.
        """
        rows = [scheme.rows for scheme in schemes_of(self.evidence, name)]
        return self.above_constant(name).low > 0 or all(
            difference_over_rows(self.task, mine, each.constant_rows, len(self.names)).low > 0
            for mine, each in zip(rows, self.evidence, strict=True)
        )

    def below_centralised(self, name: str) -> Difference | None:
        """Return what a scheme lacks to the centralised optimum, with intervals for all schemes; None if that is unknown."""
        if any(each.centralised_rows.size == 0 for each in self.evidence):
            return None
        second = [scheme.rows for scheme in schemes_of(self.evidence, name)]
        return self._paired([each.centralised_rows for each in self.evidence], second, len(self.names))

    def _paired(self, first: Sequence[FloatArray], second: Sequence[FloatArray], comparisons: int) -> Difference:
        if len(self.evidence) == 1:
            return difference_over_rows(self.task, first[0], second[0], comparisons)
        step = 1 / max(1, self.evidence[0].test_rows) if self.task == "classification" else 0.0
        ends = [np.array([rows.mean() for rows in each]) for each in (first, second)]
        return difference_over_seeds(ends[0], ends[1], comparisons, step)
