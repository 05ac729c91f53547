"""A classifier and a regressor for scikit-learn."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from codedfl._messages import shown
from codedfl.data import Task
from codedfl.errors import InputError
from codedfl.estimators._parameters import make_config
from codedfl.estimators._training import Data, Trained, column_names, device_names, train, without_column
from codedfl.models import Predictor, probabilities
from codedfl.typing import FloatArray, holds_numbers

PRECISIONS = (np.float64, np.float32)


class CodedEstimator(BaseEstimator):  # type: ignore[misc]
    """Fits a linear model, or one on random Fourier features, in a simulated federation of devices."""

    _trained: Trained

    def __init__(
        self,
        scheme: str = "auto",
        *,
        fleet: str | os.PathLike[str] | Mapping[str, Any] | None = None,
        devices: int = 20,
        device_column: str | None = None,
        rounds: int | None = None,
        total_time_s: float | None = None,
        deadline_s: float | None = None,
        features: Literal["none", "rff"] = "none",
        dimension: int = 100,
        gamma: float | Literal["scale"] = "scale",
        standardize: bool = True,
        epsilon: float | None = None,
        delta: float = 1e-5,
        threat_model: Literal["each-message", "sums-only"] = "each-message",
        clip_norm: float | Literal["auto"] = "auto",
        config: Mapping[str, Any] | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        self.scheme = scheme
        self.fleet = fleet
        self.devices = devices
        self.device_column = device_column
        self.rounds = rounds
        self.total_time_s = total_time_s
        self.deadline_s = deadline_s
        self.features = features
        self.dimension = dimension
        self.gamma = gamma
        self.standardize = standardize
        self.epsilon = epsilon
        self.delta = delta
        self.threat_model = threat_model
        self.clip_norm = clip_norm
        self.config = config
        self.random_state = random_state
        self.verbose = verbose

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


class CodedClassifier(ClassifierMixin, CodedEstimator):  # type: ignore[misc]
    """A linear classifier, trained in a simulated federation of devices.

    It fits least squares to one-hot classes and predicts the class with the largest output; with an epsilon, "dp-gd" fits a
    logistic regression instead.

    Args:
        scheme: the scheme that trains (`codedfl schemes` lists them); "auto" is "dp-gd" with an epsilon; without, "fed3r" for up
            to 300 features with five rows for each, and "ccfl" otherwise or if ``rounds`` or ``total_time_s`` are given, as
            "fed3r" has no rounds.
        fleet: the devices and their channel: None for a drawn fleet in which 30% of the devices miss a round, the path of a table
            with one row per device, or a dictionary of keys of the configuration's section ``fleet``.
        devices: number of devices that rows are spread over if ``fit`` is not told which row belongs to which; every device gets
            two rows at least.
        device_column: column of a frame that names the device of each row; it is no input of the model.
        rounds: number of rounds; None for 100, or for as many as fit in ``total_time_s``. A private scheme sets its own number.
        total_time_s: simulated training time, in place of ``rounds``.
        deadline_s: duration of a round; None for 1 second, or longer if the model is so large that a device needs it. CCFL
            chooses the fastest around it.
        features: "none" for a linear model of the columns, "rff" for one of random Fourier features of them.
        dimension: number of random Fourier features.
        gamma: width of the kernel that they stand for; "scale" is 1 / (columns * variance).
        standardize: centre and scale columns first.
            Means and scales come from all rows, outside of any epsilon.
        epsilon: what everything that a device sends is to keep, as (epsilon, delta) per row; None for no guarantee.
        delta: its delta.
        threat_model: "each-message" if the server sees every message of a device, "sums-only" if it sees only sums over devices.
        clip_norm: norm to which rows are clipped; "auto" chooses it if there is an epsilon, and clips nothing without.
        config: further values by ``section.key``, such as ``{"training.local_steps": 3}`` (`codedfl config` lists all keys).
        random_state: seed of all randomness; an integer makes fits repeatable bit for bit.
        verbose: show progress.

    Attributes:
        classes_: the classes.
        coef_: coefficients of the columns, (classes, columns), or (1, columns) of two classes; with random Fourier features,
            those of the features.
        intercept_: (classes,), or (1,).
        n_features_in_: number of columns.
        feature_names_in_: names of the columns, if X is a frame.
        scheme_: the scheme that trained.
        n_iter_: rounds completed.
        history_: the learning curve, a frame: ``round``, ``simulated_time_s`` (training only), ``charged_time_s`` (everything
            charged), ``bytes_up``, ``mean_arrivals``, ``training_score`` (on at most 2,000 of the training rows; there is no
            test set), and ``training_loss`` and ``excess_loss`` over the centralised optimum
            (neither for a logistic regression, which has another loss).
        simulated_time_s_: simulated seconds of training.
        charged_time_s_: simulated seconds with everything charged.
        privacy_: what a device's messages keep: ``epsilon``, ``delta``, what it ``covers`` and what is ``outside`` of it.
        device_names_: names of the devices.

    Example:
        >>> from sklearn.datasets import load_breast_cancer
        >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
        >>> model = CodedClassifier(scheme="fed3r", devices=5, random_state=0).fit(X, y)
        >>> round(model.score(X, y), 2), model.coef_.shape, model.privacy_["covers"]
        (0.96, (1, 30), 'nothing')
    """

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Train.

        Args:
            X: an array or a frame of numbers, (m, p).
            y: classes, (m,).
            groups: device of each row, (m,); None to spread rows over ``devices``.

        Raises:
            InputError: for values that are not possible; before any training.
        """
        columns = column_names(y)
        X, y, devices = self._checked(X, y, groups)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError(f"y holds a single class, {shown(self.classes_[0])}: at least 2 classes are needed.")
        kind = self.classes_.dtype.kind
        # Floats that are classes are whole numbers, and a table of them may be read as integers.
        names = tuple(str(int(name) if kind == "f" else name) for name in self.classes_)
        self._train("classification", X, np.eye(len(names))[labels], names, devices)
        self._trained = self._trained.described(
            target_columns=columns,
            device_column=self.device_column or "",
            class_type=self.classes_.dtype.name if holds_numbers(self.classes_.dtype) else "str",
        )
        coefficients, intercept = self._trained.linear
        if len(names) == 2:
            coefficients, intercept = coefficients[:, 1:] - coefficients[:, :1], intercept[1:] - intercept[:1]
        self.coef_, self.intercept_ = np.ascontiguousarray(coefficients.T), intercept
        return self

    def decision_function(self, X: Any) -> FloatArray:
        """Return the outputs of all classes, (n, k); of two classes, how much larger the second's is, (n,)."""
        outputs = self._outputs(X)
        return outputs[:, 0] if len(self.classes_) == 2 else outputs

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the class of each row, (n,)."""
        outputs = self.decision_function(X)
        places = (outputs > 0).astype(np.int64) if outputs.ndim == 1 else outputs.argmax(axis=1)
        predicted: npt.NDArray[Any] = self.classes_[places]
        return predicted

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probabilities of the classes, (n, k), by the rule of `codedfl.models.probabilities`.

        It looks at no data; `sklearn.calibration` does better with rows to spare.
        """
        outputs = self.decision_function(X)
        if outputs.ndim == 1:
            outputs = np.column_stack([np.zeros_like(outputs), outputs])
        return probabilities(outputs, logits=self._trained.predictor.logits)


class CodedRegressor(RegressorMixin, CodedEstimator):  # type: ignore[misc]
    """Linear least squares, trained in a simulated federation of devices; for one target or several.

    Args:
        scheme: the scheme that trains (`codedfl schemes` lists them); "auto" is "dp-gd" with an epsilon; without, "fed3r" for up
            to 300 features with five rows for each, and "ccfl" otherwise or if ``rounds`` or ``total_time_s`` are given, as
            "fed3r" has no rounds.
        fleet: the devices and their channel: None for a drawn fleet in which 30% of the devices miss a round, the path of a table
            with one row per device, or a dictionary of keys of the configuration's section ``fleet``.
        devices: number of devices that rows are spread over if ``fit`` is not told which row belongs to which; every device gets
            two rows at least.
        device_column: column of a frame that names the device of each row; it is no input of the model.
        rounds: number of rounds; None for 100, or for as many as fit in ``total_time_s``. A private scheme sets its own number.
        total_time_s: simulated training time, in place of ``rounds``.
        deadline_s: duration of a round; None for 1 second, or longer if the model is so large that a device needs it. CCFL
            chooses the fastest around it.
        features: "none" for a linear model of the columns, "rff" for one of random Fourier features of them.
        dimension: number of random Fourier features.
        gamma: width of the kernel that they stand for; "scale" is 1 / (columns * variance).
        standardize: centre and scale columns first, and targets unless they have a ``label_bound``.
            Means and scales come from all rows, outside of any epsilon.
        epsilon: what everything that a device sends is to keep, as (epsilon, delta) per row; None for no guarantee.
        delta: its delta.
        threat_model: "each-message" if the server sees every message of a device, "sums-only" if it sees only sums over devices.
        clip_norm: norm to which rows are clipped; "auto" chooses it if there is an epsilon, and clips nothing without.
        label_bound: only with an epsilon: norm to which the targets of a row are clipped, a bound that is known without the data.
        label_center: only with a ``label_bound``: a typical target that is known without the data, subtracted before clipping and
            added to predictions.
        config: further values by ``section.key``, such as ``{"training.local_steps": 3}`` (`codedfl config` lists all keys).
        random_state: seed of all randomness; an integer makes fits repeatable bit for bit.
        verbose: show progress.

    Attributes:
        coef_: coefficients of the columns, (columns,), or (targets, columns) if y has two dimensions; with random Fourier
            features, those of the features.
        intercept_: a number, or (targets,).
        n_features_in_: number of columns.
        feature_names_in_: names of the columns, if X is a frame.
        scheme_: the scheme that trained.
        n_iter_: rounds completed.
        history_: the learning curve, a frame: ``round``, ``simulated_time_s`` (training only), ``charged_time_s`` (everything
            charged), ``bytes_up``, ``mean_arrivals``, ``training_score`` (on at most 2,000 of the training rows; there is no
            test set), and ``training_loss`` and ``excess_loss`` over the centralised optimum.
        simulated_time_s_: simulated seconds of training.
        charged_time_s_: simulated seconds with everything charged.
        privacy_: what a device's messages keep: ``epsilon``, ``delta``, what it ``covers`` and what is ``outside`` of it.
        device_names_: names of the devices.

    Example:
        >>> from sklearn.datasets import load_diabetes
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = CodedRegressor(devices=5, random_state=0).fit(X, y)
        >>> round(model.score(X, y), 2), model.scheme_, len(model.device_names_)
        (0.52, 'fed3r', 5)
    """

    def __init__(
        self,
        scheme: str = "auto",
        *,
        fleet: str | os.PathLike[str] | Mapping[str, Any] | None = None,
        devices: int = 20,
        device_column: str | None = None,
        rounds: int | None = None,
        total_time_s: float | None = None,
        deadline_s: float | None = None,
        features: Literal["none", "rff"] = "none",
        dimension: int = 100,
        gamma: float | Literal["scale"] = "scale",
        standardize: bool = True,
        epsilon: float | None = None,
        delta: float = 1e-5,
        threat_model: Literal["each-message", "sums-only"] = "each-message",
        clip_norm: float | Literal["auto"] = "auto",
        label_bound: float | None = None,
        label_center: float = 0.0,
        config: Mapping[str, Any] | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            scheme,
            fleet=fleet,
            devices=devices,
            device_column=device_column,
            rounds=rounds,
            total_time_s=total_time_s,
            deadline_s=deadline_s,
            features=features,
            dimension=dimension,
            gamma=gamma,
            standardize=standardize,
            epsilon=epsilon,
            delta=delta,
            threat_model=threat_model,
            clip_norm=clip_norm,
            config=config,
            random_state=random_state,
            verbose=verbose,
        )
        self.label_bound = label_bound
        self.label_center = label_center

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Train.

        Args:
            X: an array or a frame of numbers, (m, p).
            y: one target, (m,), or several, (m, o).
            groups: device of each row, (m,); None to spread rows over ``devices``.

        Raises:
            InputError: for values that are not possible; before any training.
        """
        if self.epsilon is None and isinstance(self.label_bound, int | float) and self.label_bound > 0:
            raise InputError(
                f"label_bound = {shown(self.label_bound)} clips the targets for the sake of an epsilon, but there is none: give "
                "epsilon too, or leave label_bound out."
            )
        if not self.label_bound and isinstance(self.label_center, int | float) and self.label_center != 0:
            raise InputError(
                f"label_center = {shown(self.label_center)} comes before a bound, but there is none, and targets are centred on"
                " their mean: give label_bound too, or leave label_center out."
            )
        columns = column_names(y)
        X, y, devices = self._checked(X, y, groups, y_numeric=True, multi_output=True)
        targets = np.asarray(y, np.float64).reshape(len(X), -1)
        names = ("y",) if targets.shape[1] == 1 else tuple(f"y{output}" for output in range(targets.shape[1]))
        self._train("regression", X, targets, columns or names, devices)
        self._trained = self._trained.described(target_columns=columns, device_column=self.device_column or "")
        coefficients, intercept = self._trained.linear
        self._one_dimensional = y.ndim == 1
        self.coef_ = coefficients[:, 0] if self._one_dimensional else np.ascontiguousarray(coefficients.T)
        self.intercept_ = float(intercept[0]) if self._one_dimensional else intercept
        return self

    def predict(self, X: Any) -> FloatArray:
        """Return the target of each row, in the shape of the y that the model was fitted to."""
        outputs = self._outputs(X)
        return outputs[:, 0] if self._one_dimensional else outputs

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
