"""Loaders of the datasets that are known by name: from a folder to a ``Dataset``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits as sklearn_digits

from codedfl._reading import read_npz
from codedfl.data._blocks import row_blocks
from codedfl.data._dataset import Dataset, one_hot
from codedfl.data._idx import read_idx
from codedfl.data._splits import split_rows
from codedfl.errors import InputError
from codedfl.typing import FloatArray

Labels = npt.NDArray[np.integer[Any]]
Codes = npt.NDArray[np.uint8]

DIGITS = tuple("0123456789")
GARMENTS = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def load_digits(test_fraction: float, rng: np.random.Generator) -> Dataset:
    """Return the 8x8 digits that come with scikit-learn, split at random with every class in both parts."""
    bunch = sklearn_digits()
    features = (bunch.data / 16).astype(np.float32)
    targets = one_hot(bunch.target, len(DIGITS))
    train, test = split_rows(len(features), test_fraction, bunch.target, rng)
    return Dataset(
        name="digits",
        task="classification",
        features=features[train],
        targets=targets[train],
        test_features=features[test],
        test_targets=targets[test],
        target_names=DIGITS,
        feature_names=tuple(bunch.feature_names),
    )


def load_idx_images(name: str, files: dict[str, Path], classes: tuple[str, ...]) -> Dataset:
    """Return the images of four IDX files, with pixels in [0, 1].

    Args:
        name: name of the dataset.
        files: where the files are, by their standard names.
        classes: names of the classes.
    """
    features, targets, shape = _images_and_labels(files, "train", classes)
    test_features, test_targets, test_shape = _images_and_labels(files, "t10k", classes)
    if shape != test_shape:
        raise InputError(
            f"the training images of {name} are {shape} pixels but its test images {test_shape}: download them again."
        )
    return Dataset(
        name=name,
        task="classification",
        features=features,
        targets=targets,
        test_features=test_features,
        test_targets=test_targets,
        target_names=classes,
        feature_names=tuple(f"pixel_{row}_{column}" for row in range(shape[0]) for column in range(shape[1])),
    )


def _images_and_labels(
    files: dict[str, Path], part: str, classes: tuple[str, ...]
) -> tuple[FloatArray, FloatArray, tuple[int, int]]:
    images_path, labels_path = files[f"{part}-images-idx3-ubyte"], files[f"{part}-labels-idx1-ubyte"]
    images, labels = read_idx(images_path, dimensions=3), read_idx(labels_path, dimensions=1)
    _, height, width = images.shape
    pixels = images.reshape(len(images), height * width) / np.float32(255)
    return pixels, _one_hot_of_file(labels, len(images), labels_path, classes), (height, width)


def load_cifar10_vgg(files: dict[str, Path]) -> Dataset:
    """Return CIFAR-10 as 4,096 quantised VGG16 features: x_j = code_values[code_j] feature_scale_j."""
    scale = read_npz(files["scale.npz"], required=("code_values", "feature_scale"))
    features, targets = decode_vgg([files["train-1.npz"], files["train-2.npz"]], scale)
    test_features, test_targets = decode_vgg([files["test.npz"]], scale)
    return Dataset(
        name="cifar10-vgg",
        task="classification",
        features=features,
        targets=targets,
        test_features=test_features,
        test_targets=test_targets,
        target_names=CIFAR10,
        feature_names=tuple(f"vgg_{column}" for column in range(features.shape[1])),
    )


def decode_vgg(paths: list[Path], scale: dict[str, npt.NDArray[Any]]) -> tuple[FloatArray, FloatArray]:
    """Decode the rows of quantised files, one after the other, into one float32 matrix and their one-hot classes."""
    code_values = scale["code_values"].astype(np.float32, copy=False)
    feature_scale = scale["feature_scale"].astype(np.float32, copy=False)
    parts = [_read_codes(path, code_values, feature_scale) for path in paths]
    features = np.empty((sum(len(codes) for codes, _ in parts), len(feature_scale)), dtype=np.float32)
    start = 0
    for codes, _ in parts:
        rows = features[start : start + len(codes)]
        for block in row_blocks(*rows.shape):
            # With codes already checked, "clip" only spares the copy that "raise" makes.
            np.take(code_values, codes[block], out=rows[block], mode="clip")
            rows[block] *= feature_scale
        start += len(codes)
    return features, np.concatenate([targets for _, targets in parts])


def _read_codes(path: Path, code_values: FloatArray, feature_scale: FloatArray) -> tuple[Codes, FloatArray]:
    arrays = read_npz(path, required=("features", "labels"))
    codes, labels = arrays["features"], arrays["labels"]
    shapes_fit = code_values.ndim == feature_scale.ndim == 1 and codes.shape[1:] == feature_scale.shape
    if not shapes_fit or codes.dtype != np.uint8 or codes.size == 0 or codes.max() >= len(code_values):
        raise InputError(
            f"the array 'features' of {str(path)!r} does not fit the code table in scale.npz: download both again."
        )
    return codes, _one_hot_of_file(labels, len(codes), path, CIFAR10)


def _one_hot_of_file(labels: Labels, rows: int, path: Path, classes: tuple[str, ...]) -> FloatArray:
    if labels.shape != (rows,) or labels.dtype != np.uint8 or (labels >= len(classes)).any():
        raise InputError(
            f"{str(path)!r} must hold a label from 0 to {len(classes) - 1} for each of {rows} rows: download it again."
        )
    return one_hot(labels, len(classes))
