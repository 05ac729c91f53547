"""A trained model that works on raw inputs: arrays, and frames of pandas and polars."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from codedfl._messages import listing, shown
from codedfl._validation import require_finite
from codedfl.data import FeatureMap, Preprocessing, Task
from codedfl.errors import InputError
from codedfl.files import Arrays
from codedfl.losses import SOFTMAX
from codedfl.models._file import read_model_file, write_model_file
from codedfl.typing import FloatArray, holds_numbers

if TYPE_CHECKING:
    import polars

    Frame = pd.DataFrame | polars.DataFrame | polars.LazyFrame


WORDS = ("input_names", "target_names", "target_columns")
CLASS_TYPES = ("str", "bool", *(np.dtype(code).name for code in "bhiqBHIQefd"))


@dataclass(frozen=True, eq=False, repr=False)
class Predictor:
    """A linear model with the preprocessing and the feature map that it was trained on.

    Args:
        feature_map: from numeric inputs to features.
        weights: ``W``, (d, o). The model computes in double precision if they, or the means of the feature map, are float64,
            and in single precision otherwise.
        task: classification or regression.
        target_names: classes as text, or names of the outputs.
        class_type: type of the classes in numpy's words: "str", "bool", "int64" and so on.
        privacy: the privacy of the run that trained it, as `codedfl.privacy.Guarantee` says it; None if it is unknown.
        preprocessing: from the columns of a table to numeric inputs; None if the columns are the inputs.
        input_names: columns of a table that the model reads; empty if it was trained on arrays whose columns have no names.
        target_columns: columns that it was trained to predict, if they have names.
        device_column: column that named the device of a training row, if there was one.
        logits: whether the outputs are logits of a softmax rather than estimates of the targets themselves.
        provenance: where the model comes from: version, scheme, dataset, seed, configuration, rounds, test score.

    Example:
        >>> from codedfl.data import fit_feature_map
        >>> X = np.array([[1.0], [2.0], [4.0]])
        >>> feature_map = fit_feature_map(X, kind="none", scaling="column", rng=np.random.default_rng(0))
        >>> model = Predictor(feature_map, np.array([[8.0]]), "regression", ("y",), input_names=("dose",))
        >>> model.predict(X)
        array([2., 4., 8.])
        >>> import pandas as pd
        >>> model.predict(pd.DataFrame({"name": ["Ann", "Bob"], "dose": [4, 1]}))
        array([8., 2.])
        >>> model
        Predictor(regression, inputs=1, outputs=1)
    """

    feature_map: FeatureMap
    weights: FloatArray
    task: Task
    target_names: tuple[str, ...]
    privacy: Mapping[str, Any] | None = None
    preprocessing: Preprocessing | None = None
    input_names: tuple[str, ...] = ()
    target_columns: tuple[str, ...] = ()
    device_column: str = ""
    logits: bool = False
    provenance: Mapping[str, Any] = field(default_factory=dict)
    class_type: str = "str"

    def __post_init__(self) -> None:
        if self.task not in get_args(Task):
            raise InputError(f"task = {shown(self.task)} of a model must be 'classification' or 'regression'.")
        expected = (self.feature_map.dimension, len(self.target_names))
        if self.weights.shape != expected or not np.issubdtype(self.weights.dtype, np.floating):
            raise InputError(
                f"the weights of a model have shape {self.weights.shape} and dtype {self.weights.dtype}, but its features and "
                f"targets need floats of shape {expected}."
            )
        if self.preprocessing is not None and self.input_names != self.preprocessing.input_names:
            raise InputError("input_names of a model are not the columns that its preprocessing reads: give those.")
        inputs = self.input_names if self.preprocessing is None else self.preprocessing.output_names
        if inputs and len(inputs) != self.feature_map.input_dimension:
            raise InputError(
                f"a model has {len(inputs)} input name(s) but takes {self.feature_map.input_dimension} inputs: give one for each."
            )
        if self.task == "classification":
            _ = self.classes  # refuses a type that does not fit

    def __repr__(self) -> str:
        inputs = len(self.input_names) or self.feature_map.input_dimension
        targets = f"{'classes' if self.task == 'classification' else 'outputs'}={len(self.target_names)}"
        scheme = f", scheme={shown(self.provenance['scheme'])}" if "scheme" in self.provenance else ""
        return f"Predictor({self.task}, inputs={inputs}, {targets}{scheme})"

    @property
    def classes(self) -> npt.NDArray[Any]:
        """The classes in the type that they had in training, (o,)."""
        try:
            if self.class_type not in CLASS_TYPES:
                raise ValueError("no type of a class")
            if self.class_type == "bool":
                return np.array([("False", "True").index(name) for name in self.target_names], np.bool_)
            return np.array(self.target_names).astype(self.class_type)
        except (ValueError, OverflowError) as error:
            raise InputError(
                f"class_type = {shown(self.class_type)} of a model does not fit its classes {shown(self.target_names)}: give "
                f"one of {listing(CLASS_TYPES)} that does."
            ) from error

    @property
    def precision(self) -> np.dtype[Any]:
        """Floating type in which the model computes."""
        mean = self.feature_map.input_mean
        return np.result_type(self.weights, np.float32, *(() if mean is None else (mean,)))

    def shifted(self, by: float) -> Predictor:
        """Return a regression whose outputs are larger by a constant; it computes in double precision.

        Example:
            >>> from codedfl.data import FeatureMap
            >>> unchanged = FeatureMap(None, None, None, None, np.ones(1, np.float32), False, input_dimension=1)
            >>> Predictor(unchanged, np.array([[2.0]]), "regression", ("y",)).shifted(100.0).predict(np.array([[1.0], [3.0]]))
            array([102., 106.])
        """
        weights = self.weights.astype(np.float64)
        if not self.feature_map.intercept:
            weights = np.vstack([weights, np.zeros(weights.shape[1])])
        weights[-1] += by
        return replace(self, feature_map=replace(self.feature_map, intercept=True), weights=weights)

    def inputs_of(self, frame: Frame, *, source: str = "the table") -> FloatArray:
        """Return the numeric inputs of the rows of a table, (n, p), for `outputs` and `predict`.

        Columns are found by name, in any order; others are ignored.

        Args:
            frame: the table, a frame of pandas or polars.
            source: its name in messages.

        Raises:
            InputError: if columns are missing or hold what the model cannot read.
        """
        table = as_frame(frame)
        if table is None:
            raise InputError(f"{source} is not a table: give a frame of pandas or polars.")
        if self.preprocessing is not None:
            return self.preprocessing.transform(table, source=source)
        if not self.input_names:
            raise InputError(
                f"{source} has named columns, but the model was trained on arrays without names: give an array of shape (n, "
                f"{self.feature_map.input_dimension}), in a file as the array X of an .npz."
            )
        return numeric_columns(table, self.input_names, source)

    def outputs(self, raw: npt.ArrayLike | Frame) -> FloatArray:
        """Return the model's outputs, (n, o).

        Args:
            raw: a table, whose columns are found by name (see `inputs_of`), or an array of inputs as the feature map takes them,
                (n, p): after preprocessing, if the model has one.
        """
        frame = as_frame(raw)
        inputs = np.asarray(raw) if frame is None else self.inputs_of(frame)
        if not holds_numbers(inputs.dtype):
            raise InputError(f"the raw inputs have the dtype {inputs.dtype}: give numbers.")
        with np.errstate(over="ignore", invalid="ignore"):
            outputs: FloatArray = self.feature_map.transform(inputs, self.precision) @ self.weights.astype(
                self.precision
            )
        if not np.isfinite(outputs).all():
            raise InputError("the raw inputs are so large that the model's outputs overflow: check their units.")
        return outputs

    def labels(self, outputs: FloatArray) -> npt.NDArray[Any]:
        """Return what outputs mean: classes, (n,), or the values of a regression, (n,) of one output and (n, o) of several."""
        if self.task == "classification":
            predicted: npt.NDArray[Any] = self.classes[outputs.argmax(axis=1)]
            return predicted
        return outputs[:, 0] if outputs.shape[1] == 1 else outputs

    def predict(self, raw: npt.ArrayLike | Frame) -> npt.NDArray[Any]:
        """Return the class or the value(s) of each row of an array or a table; see `outputs` and `labels`."""
        return self.labels(self.outputs(raw))

    def predict_frame(self, frame: Frame, *, source: str = "the table") -> npt.NDArray[Any]:
        """Return the class or the value(s) of each row of a table; see `inputs_of` and `labels`."""
        return self.predict(self.inputs_of(frame, source=source))

    def save(self, path: Path | str) -> None:
        """Write the model to one ``.safetensors`` file, without pickle.

        Raises:
            InputError: if the path has another ending or its folder is missing, or if the model is not finite.
        """
        require_finite("the weights of the model", self.weights)
        tensors = {f"map.{name}": array for name, array in self.feature_map.to_arrays().items()}
        description = {
            "task": self.task,
            **{name: list(getattr(self, name)) for name in WORDS},
            "device_column": self.device_column,
            "class_type": self.class_type,
            "logits": self.logits,
            "preprocessing": None if self.preprocessing is None else self.preprocessing.to_dict(),
            "privacy": self.privacy,
            "provenance": self.provenance,
        }
        write_model_file(path, {"weights": self.weights, **tensors}, description)

    @classmethod
    def load(cls, path: Path | str) -> Predictor:
        """Read a model back.

        Raises:
            InputError: if the file is not a saved model, or was damaged or altered.
        """
        tensors, description = read_model_file(path)
        try:
            return cls._from(tensors, description)
        except (InputError, KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"{shown(Path(path))} is not a consistent model of codedfl ({str(error).rstrip('.')}): train it again."
            ) from error

    @classmethod
    def _from(cls, tensors: Arrays, description: dict[str, Any]) -> Predictor:
        weights = tensors.pop("weights")
        require_finite("weights", weights)
        maps = {name.removeprefix("map."): array for name, array in tensors.items()}
        preprocessing = description["preprocessing"]
        for name in ("privacy", "provenance"):
            if not isinstance(description[name], dict | None):
                raise InputError(f"its {name} is not an object")
        return cls(
            FeatureMap.from_arrays(maps),
            weights,
            cast(Task, description["task"]),
            privacy=description["privacy"],
            preprocessing=None if preprocessing is None else Preprocessing.from_dict(preprocessing),
            device_column=str(description["device_column"]),
            logits=bool(description["logits"]),
            provenance=description["provenance"] or {},
            class_type=description.get("class_type", "str"),
            **{name: tuple(map(str, description[name])) for name in WORDS},
        )


def probabilities(outputs: FloatArray, *, logits: bool = False) -> FloatArray:
    r"""Return probabilities of the classes that belong to the outputs of a classifier, (n, k), float64.

    Those of logits ``z`` are ``softmax(z)``. Least-squares outputs are themselves estimates of probabilities, but may leave
    [0, 1]: ``softmax(k z)`` agrees with them to first order where classes are about equally likely, and keeps the order of
    the classes everywhere. Neither is calibrated.

    Args:
        outputs: ``z``, (n, k).
        logits: whether they are logits (`Predictor.logits`).

    Example:
        >>> probabilities(np.array([[0.52, 0.48], [1.5, -0.5]])).round(2)
        array([[0.52, 0.48],
               [0.98, 0.02]])
    """
    scale = 1.0 if logits else float(outputs.shape[1])
    return SOFTMAX.predictions(scale * outputs.astype(np.float64))


def as_frame(values: Any) -> pd.DataFrame | None:
    """Return a frame of pandas or polars as one of pandas, or None for anything else.

    Example:
        >>> import polars
        >>> as_frame(polars.DataFrame({"age": [40, None], "ward": ["a", "b"]})).to_dict("list")
        {'age': [40.0, nan], 'ward': ['a', 'b']}
        >>> as_frame(np.zeros((2, 2))) is None
        True
    """
    if isinstance(values, pd.DataFrame):
        return values
    polars = sys.modules.get("polars")  # nobody has a frame of a package that was never imported
    if polars is None or not isinstance(values, polars.DataFrame | polars.LazyFrame):
        return None
    # Column by column, as the conversion of polars itself needs pyarrow.
    return pd.DataFrame({column.name: _values(column) for column in values.lazy().collect()})


def numeric_columns(frame: pd.DataFrame, names: tuple[str, ...], source: str) -> FloatArray:
    """Return columns of a frame as numbers, (n, p) in float64.

    Args:
        frame: the frame.
        names: its columns to return, in this order.
        source: its name in messages.

    Raises:
        InputError: if columns are missing, twice there, or not finite numbers.
    """
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise InputError(
            f"{source} lacks {len(missing)} column(s) that the model reads: {listing(missing)}; it has "
            f"{listing(map(str, frame.columns))}."
        )
    chosen = frame[list(names)]
    if chosen.shape[1] > len(names):
        twice = chosen.columns[chosen.columns.duplicated()].unique()
        raise InputError(
            f"{source} has several columns of the same name: {listing(twice)}; rename all but one of each."
        )
    odd = [name for name in names if not holds_numbers(chosen[name].dtype)]
    if odd:
        raise InputError(f"{source} has column(s) that are not numbers: {listing(odd)}; the model needs numbers there.")
    inputs: FloatArray = chosen.to_numpy(np.float64, na_value=np.nan)
    require_finite(source, inputs)
    return inputs


def _values(column: Any) -> Any:
    values = column.to_numpy()
    return values if values.ndim == 1 else column.to_list()
