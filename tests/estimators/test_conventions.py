"""The estimators keep scikit-learn's conventions, as its own checks see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from codedfl.estimators import CodedClassifier, CodedRegressor

Check = Callable[[Any], None]


@parametrize_with_checks([CodedClassifier(), CodedRegressor()])  # type: ignore[untyped-decorator]
def test_scikit_learn_checks_of_the_default(estimator: Any, check: Check) -> None:
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([CodedClassifier("ccfl"), CodedRegressor("ccfl")])  # type: ignore[untyped-decorator]
def test_scikit_learn_checks_of_curvature_coded_learning(estimator: Any, check: Check) -> None:
    check(estimator)
