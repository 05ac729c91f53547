"""A scheme whose devices only upload may not choose its step on data that was not released."""

from __future__ import annotations

import numpy as np
import pytest

from codedfl.experiment import run
from tests.support import small_config


@pytest.mark.parametrize(("given", "scale"), [("grid", 1.0), (0.5, 0.5)])
def test_the_step_of_dp_cfl_follows_from_the_coded_data_under_a_privacy_target(
    given: float | str, scale: float
) -> None:
    config = small_config(schemes=["dp-cfl"], privacy__epsilon=2.0, learning_rate__scale=given)
    result = run(config)["dp-cfl"]
    assert result.choice is None
    assert result.scale == scale
    (coded,) = result.prepared.held
    values = np.linalg.svd(coded.features, compute_uv=False) ** 2 / 60
    batch = result.prepared.setting.server_batch_of(60)
    curvature = values[0] + values.sum() * (1 / batch - 1 / 60)
    assert result.learning_rate.initial == pytest.approx(scale / curvature, rel=1e-6)


def test_without_a_target_it_is_chosen_from_the_grid() -> None:
    result = run(small_config(schemes=["dp-cfl"], learning_rate__scale="grid"))["dp-cfl"]
    assert result.choice is not None
    assert result.scale == result.choice.scale
