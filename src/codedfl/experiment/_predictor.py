"""A trained model that works on raw inputs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import numpy.typing as npt

from codedfl.data import FeatureMap, Task
from codedfl.errors import InputError
from codedfl.files import read_npz, write_npz
from codedfl.typing import FloatArray


@dataclass(frozen=True, eq=False)
class Predictor:
    """A linear model with the feature map that it was trained on.

    Args:
        feature_map: from raw inputs to features.
        weights: ``W``, (d, o).
        task: classification or regression.
        target_names: classes, or names of the outputs.
        privacy: the privacy of the run that trained it, as `codedfl.experiment.privacy_statement` says it; None if it is unknown.

    Example:
        >>> from codedfl.data import fit_feature_map
        >>> X = np.array([[1.0], [2.0], [4.0]])
        >>> feature_map = fit_feature_map(X, kind="none", scaling="column", rng=np.random.default_rng(0))
        >>> Predictor(feature_map, np.array([[8.0]]), "regression", ("y",)).predict(X).ravel()
        array([2., 4., 8.], dtype=float32)
    """

    feature_map: FeatureMap
    weights: FloatArray
    task: Task
    target_names: tuple[str, ...]
    privacy: Mapping[str, Any] | None = None

    def outputs(self, raw: FloatArray) -> FloatArray:
        """Return the model's outputs for raw inputs, (n, o)."""
        outputs: FloatArray = self.feature_map.transform(raw) @ self.weights.astype(np.float32)
        return outputs

    def predict(self, raw: FloatArray) -> npt.NDArray[Any]:
        """Return the name of the class with the largest output, (n,), or the outputs of a regression, (n, o)."""
        outputs = self.outputs(raw)
        return np.array(self.target_names)[outputs.argmax(axis=1)] if self.task == "classification" else outputs

    def save(self, path: Path | str) -> None:
        """Write the model to one ``.npz`` file, without pickle."""
        arrays = {f"map.{name}": array for name, array in self.feature_map.to_arrays().items()}
        if self.privacy is not None:
            arrays["privacy"] = np.array(json.dumps(self.privacy))
        names = np.array(self.target_names)
        write_npz(path, {"weights": self.weights, "task": np.array(self.task), "target_names": names, **arrays})

    @classmethod
    def load(cls, path: Path | str) -> Predictor:
        """Read a model back.

        Raises:
            InputError: if the file is not a saved model.
        """
        try:
            arrays = read_npz(Path(path), required=("weights", "task", "target_names"), optional=None)
            feature_map = FeatureMap.from_arrays(
                {name.removeprefix("map."): array for name, array in arrays.items() if name.startswith("map.")}
            )
            task, names = str(arrays["task"]), tuple(str(name) for name in arrays["target_names"].ravel())
            if arrays["weights"].shape != (feature_map.dimension, len(names)) or task not in get_args(Task):
                raise InputError("its weights do not fit its features and targets")
            privacy = json.loads(str(arrays["privacy"])) if "privacy" in arrays else None
            if privacy is not None and not isinstance(privacy, dict):
                raise InputError("its privacy statement is not an object")
        except (InputError, json.JSONDecodeError) as error:
            raise InputError(f"{path} is not a model saved by codedfl ({error}): give a file from models/.") from error
        return cls(feature_map, arrays["weights"], cast(Task, task), names, privacy)
