from __future__ import annotations

import numpy as np
import pytest

from codedfl.estimators import CodedRegressor
from codedfl.privacy import ThreatModel


@pytest.mark.slow
@pytest.mark.parametrize("threat_model", ["each-message", "sums-only"])
def test_a_weaker_guarantee_does_not_make_the_model_worse(threat_model: ThreatModel) -> None:
    """Few columns and many rows, where the budget goes to second moments and few rounds are left."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 5))
    y = X @ np.array([1.0, 2.0, 0.0, -1.0, 0.5]) + 0.1 * rng.standard_normal(len(X))
    for epsilon in (2.0, 4.0, 20.0, 100.0):
        model = CodedRegressor(epsilon=epsilon, threat_model=threat_model, label_bound=12.0, random_state=0)
        score = model.fit(X, y).score(X, y)
        # The ridge keeps what noise leaves in a prediction to a tenth of the bound: 1.2^2 of a variance of 6.25 and more.
        assert score > 1 - 1.2**2 / 6.25, epsilon
