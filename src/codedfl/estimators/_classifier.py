"""A classifier for scikit-learn."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from codedfl._messages import shown
from codedfl.errors import InputError
from codedfl.estimators._base import CodedEstimator
from codedfl.estimators._inputs import column_names
from codedfl.models import probabilities
from codedfl.typing import FloatArray


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
            class_type=self.classes_.dtype.name if kind in "biuf" else "str",
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
