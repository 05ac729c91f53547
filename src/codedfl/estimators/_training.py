"""Train a linear model on arrays in a simulated federation, and what the rows of arrays and frames say about devices."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from codedfl._messages import did_you_mean, shown
from codedfl.config import Config
from codedfl.data import Dataset, FeatureMap, Task
from codedfl.errors import InputError
from codedfl.estimators._parameters import in_terms_of_parameters
from codedfl.experiment import Comparison, build_experiment, run
from codedfl.models import Predictor
from codedfl.privacy import keeps
from codedfl.typing import FloatArray

SCORED_ROWS = 2000
"""Training rows that points of the learning curve are scored on, at most."""

OF_TEST_ROWS = ("metric", "score", "test_samples")
"""What the provenance of a model says about test rows, of which there are none."""


@dataclass(frozen=True)
class Data:
    """What a model is trained on.

    Args:
        task: what the targets mean.
        features: raw inputs, (m, p).
        targets: one-hot classes or numbers, (m, o).
        target_names: names of classes or outputs.
        feature_names: names of the columns; empty if they have none.
        devices: device of each row; None to spread rows over devices.
    """

    task: Task
    features: FloatArray
    targets: FloatArray
    target_names: tuple[str, ...]
    feature_names: tuple[str, ...]
    devices: tuple[str, ...] | None


@dataclass(frozen=True)
class Trained:
    """A linear model ``phi(x) W + b`` in double precision, and how it came about.

    Args:
        feature_map: ``phi``, from raw inputs, without intercept.
        weights: ``W``, (d, o).
        intercept: ``b``, (o,).
        history: the learning curve.
        privacy: the privacy statement.
        device_names: names of the devices.
        predictor: the same as a predictor, to be saved.
    """

    feature_map: FeatureMap
    weights: FloatArray
    intercept: FloatArray
    history: pd.DataFrame
    privacy: dict[str, Any]
    device_names: tuple[str, ...]
    predictor: Predictor

    def described(self, **values: Any) -> Trained:
        """Return the same with other values of the predictor."""
        return replace(self, predictor=replace(self.predictor, **values))

    @property
    def linear(self) -> tuple[FloatArray, FloatArray]:
        """Coefficients of the raw columns, (p, o), and intercept, (o,); of the mapped features if they are not linear."""
        fitted = self.feature_map
        if fitted.frequencies is not None:
            return self.weights, self.intercept
        coefficients = self.weights / fitted.output_scale[:, None].astype(np.float64)
        if fitted.input_mean is None or fitted.input_scale is None:
            return coefficients, self.intercept
        coefficients = coefficients / fitted.input_scale[:, None]
        return coefficients, self.intercept - fitted.input_mean @ coefficients


def train(config: Config, data: Data, *, standardize: bool, verbose: bool) -> Trained:
    """Train the scheme of a configuration.

    Columns are standardised in double precision beforehand: in single precision, a column such as a year or a time stamp would
    lose the digits in which rows differ. So is the target of a regression, unless it has a bound that is known without the data.
    """
    m = len(data.features)
    scaler = StandardScaler(with_mean=standardize, with_std=standardize).fit(data.features)
    inputs = (data.features - scaler.mean_) / scaler.scale_ if standardize else data.features
    target_mean, target_scale = np.zeros(data.targets.shape[1]), 1.0
    if standardize and data.task == "regression" and config.privacy.label_bound == 0:
        target_mean = data.targets.mean(axis=0)
        target_scale = float(np.sqrt(np.mean((data.targets - target_mean) ** 2))) or 1.0
    features, targets = _single("X", inputs), _single("y", (data.targets - target_mean) / target_scale)
    scored = np.unique(np.linspace(0, m - 1, min(m, SCORED_ROWS)).astype(np.int64))
    names = data.feature_names or tuple(f"x{column}" for column in range(features.shape[1]))
    dataset = Dataset(
        config.data.dataset,
        data.task,
        features,
        targets,
        features[scored],
        targets[scored],
        data.target_names,
        names,
        data.devices,
    )
    with in_terms_of_parameters():
        experiment = build_experiment(config, dataset=dataset)
        if standardize:
            composed = replace(experiment.feature_map, input_mean=scaler.mean_, input_scale=scaler.scale_)
            experiment = replace(experiment, feature_map=composed)
        comparison = run(config, experiment=experiment, progress=verbose)
    return _trained(comparison, data, target_mean, target_scale)


def _trained(comparison: Comparison, data: Data, target_mean: FloatArray, target_scale: float) -> Trained:
    (result,) = comparison.results
    scheme = result.scheme
    predictor, privacy = comparison.predictor(scheme.name), comparison.privacy(scheme.name)
    if result.status == "diverged":
        warnings.warn(f"{scheme.title} {result.message}.", ConvergenceWarning, stacklevel=4)
    epsilon = comparison.config.privacy.epsilon
    if epsilon > 0 and not keeps(privacy, epsilon):
        uncovered = {"upload": f"epsilon = {epsilon:g} of {scheme.title} covers its upload alone"}
        uncovered["nothing"] = f"epsilon = {epsilon:g} of {scheme.title} covers nothing"
        more = f"{scheme.title} has epsilon = {privacy['epsilon']} and does not keep the {epsilon:g} that was asked for"
        warnings.warn(f"{uncovered.get(privacy['covers'], more)}: see privacy_.", UserWarning, stacklevel=4)
    fitted = comparison.experiment.feature_map
    rows = result.model.astype(np.float64) * target_scale
    weights, constant = (rows[:-1], rows[-1]) if fitted.intercept else (rows, np.zeros(rows.shape[1]))
    intercept = constant + target_mean + comparison.config.privacy.label_center
    return Trained(
        replace(fitted, intercept=False),
        weights,
        intercept,
        _history(comparison, predictor.logits, target_scale**2),
        privacy,
        comparison.setting.federation.device_names,
        replace(
            predictor,
            feature_map=replace(fitted, intercept=True),
            weights=np.vstack([weights, intercept]),
            input_names=data.feature_names,
            provenance={name: value for name, value in predictor.provenance.items() if name not in OF_TEST_ROWS},
        ),
    )


def _history(comparison: Comparison, logits: bool, loss_scale: float) -> pd.DataFrame:
    """Return the learning curve, without what it does not say: there is no test set, and logits have no square loss."""
    (result,) = comparison.results
    points = {
        "round": [point.round for point in result.curve],
        "simulated_time_s": [point.simulated_time_s for point in result.curve],
        "charged_time_s": [point.everything_charged_s for point in result.curve],
        "bytes_up": [point.bytes_up for point in result.curve],
        "mean_arrivals": [point.mean_arrivals for point in result.curve],
        "training_score": [point.score for point in result.curve],
    }
    if not logits:
        points["training_loss"] = [loss_scale * point.loss for point in result.curve]
        points["excess_loss"] = [loss_scale * point.gap for point in result.curve]
    return pd.DataFrame(points)


def _single(name: str, values: FloatArray) -> FloatArray:
    with np.errstate(over="ignore"):
        single = np.ascontiguousarray(values, dtype=np.float32)
    if not np.isfinite(single).all():
        raise InputError(f"{name} has values that are too large for single precision: rescale them, or standardize.")
    return single


def without_column(X: Any, column: str | None, *, required: bool = False) -> tuple[Any, Any]:
    """Take the column that names devices out of a frame.

    Args:
        X: an array, or a pandas or polars frame.
        column: the name of the column; None for none.
        required: whether to refuse inputs without it.

    Returns:
        The other columns, and that column; None if there is none.

    Example:
        >>> frame = pd.DataFrame({"age": [40, 60], "hospital": ["a", "b"]})
        >>> rest, devices = without_column(frame, "hospital")
        >>> list(rest.columns), list(devices)
        (['age'], ['a', 'b'])
    """
    if column is None:
        return X, None
    names = list(getattr(X, "columns", ()))
    if column in names:
        return X.drop(columns=column) if isinstance(X, pd.DataFrame) else X.drop(column), X[column]
    if required:
        has = f"has only the columns {shown(names)}" if names else "is an array without column names"
        hint = did_you_mean(str(column), list(map(str, names)))
        raise InputError(f"device_column = {shown(column)} is not in X, which {has}: name one of its columns.{hint}")
    return X, None


def column_names(y: Any) -> tuple[str, ...]:
    """Return the names of the columns of targets; empty if they have none, or not each its own.

    Example:
        >>> column_names(pd.Series([1.0, 2.0], name="dose")), column_names(np.zeros(2))
        (('dose',), ())
    """
    names = tuple(getattr(y, "columns", (getattr(y, "name", None),)))
    usable = all(isinstance(name, str) and name for name in names) and len(set(names)) == len(names)
    return names if usable else ()


def device_names(groups: Any, rows: int) -> tuple[str, ...]:
    """Return the name of the device of each row.

    Args:
        groups: any labels, one per row.
        rows: number of rows.

    Raises:
        InputError: if there is not one label per row, or some are missing.

    Example:
        >>> device_names([2, 1, 2], rows=3)
        ('2', '1', '2')
    """
    labels = np.asarray(groups)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or len(labels) != rows:
        raise InputError(f"groups has shape {labels.shape} for {rows} rows of X: give one device for each row.")
    missing = int(np.count_nonzero(pd.isna(labels)))
    if missing:
        raise InputError(f"groups names no device for {missing} of {rows} rows: name one, or leave these rows out.")
    return tuple(str(label) for label in labels.tolist())
