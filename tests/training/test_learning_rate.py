from __future__ import annotations

import pytest

from codedfl.errors import InputError
from codedfl.training import LearningRate


def test_the_schedules() -> None:
    assert [LearningRate(0.4).at(k) for k in (0, 7, 1000)] == [0.4, 0.4, 0.4]
    assert [LearningRate(0.4, 10).at(k) for k in (0, 10, 30)] == pytest.approx([0.4, 0.2, 0.1])
    assert LearningRate.relative(0.5, 20.0, 10).at(10) == pytest.approx(0.0125)


@pytest.mark.parametrize(("initial", "decay"), [(0.0, 0), (-1.0, 0), (float("nan"), 0), (0.1, -1), (0.1, float("inf"))])
def test_impossible_step_sizes_are_refused(initial: float, decay: float) -> None:
    with pytest.raises(InputError, match="learning_rate"):
        LearningRate(initial, decay)
