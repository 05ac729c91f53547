"""What the classifier and the regressor have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from codedfl.data import Task
from codedfl.errors import InputError
from codedfl.estimators._inputs import device_names, without_column
from codedfl.estimators._parameters import make_config
from codedfl.estimators._training import Data, Trained, train
from codedfl.models import Predictor
from codedfl.typing import FloatArray

PRECISIONS = (np.float64, np.float32)


class CodedEstimator(BaseEstimator):  # type: ignore[misc]
    """Fits a linear model, or one on random Fourier features, in a simulated federation of devices."""

    _trained: Trained

    def predictor(self) -> Predictor:
        """Return the model as a `codedfl.Predictor`, which can be saved without pickle and exported."""
        check_is_fitted(self)
        return self._trained.predictor

    def _checked(self, X: Any, y: Any, groups: Any, **checks: Any) -> tuple[FloatArray, Any, tuple[str, ...] | None]:
        """Return columns, targets and the device of each row."""
        if self.device_column is not None and groups is not None:
            raise InputError(f"groups and device_column = {self.device_column!r} both name devices: give one.")
        X, column = without_column(X, self.device_column, required=True)
        groups = column if groups is None else groups
        X, y = validate_data(self, X, y, dtype=PRECISIONS, order="C", ensure_min_samples=2, **checks)
        return X, y, None if groups is None else device_names(groups, len(X))

    def _train(
        self, task: Task, X: FloatArray, targets: FloatArray, names: tuple[str, ...], devices: tuple[str, ...] | None
    ) -> None:
        """Train, and set the attributes that classifier and regressor share."""
        rows, columns = X.shape
        config = make_config(self.get_params(deep=False), rows=rows, columns=columns, outputs=targets.shape[1])
        feature_names = tuple(map(str, getattr(self, "feature_names_in_", ())))
        data = Data(task, X, targets, names, feature_names, devices)
        trained = train(config, data, standardize=bool(self.standardize), verbose=bool(self.verbose))
        self._trained = trained
        self.scheme_ = config.schemes[0]
        self.history_ = trained.history
        self.privacy_ = trained.privacy
        self.device_names_ = trained.device_names
        self.n_iter_ = int(trained.history["round"].iloc[-1])
        self.simulated_time_s_ = float(trained.history["simulated_time_s"].iloc[-1])
        self.charged_time_s_ = float(trained.history["charged_time_s"].iloc[-1])

    def _outputs(self, X: Any) -> FloatArray:
        """Return the outputs for raw inputs, (n, k), from ``coef_`` and ``intercept_``."""
        check_is_fitted(self)
        X, _ = without_column(X, self.device_column)
        X = validate_data(self, X, dtype=PRECISIONS, reset=False)
        if self._trained.feature_map.frequencies is not None:
            X = self._trained.feature_map.transform(X, np.float64)
        outputs: FloatArray = X @ np.atleast_2d(self.coef_).T + self.intercept_
        return outputs
