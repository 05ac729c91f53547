from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from codedfl.data._builtin import DIGITS, decode_vgg, load_cifar10_vgg, load_digits, load_idx_images
from codedfl.errors import InputError

Files = dict[str, Path]


def write_idx(path: Path, array: npt.NDArray[Any]) -> None:
    path.write_bytes(bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes())


@pytest.fixture
def idx_files(tmp_path: Path) -> Files:
    for part, rows in (("train", 5), ("t10k", 2)):
        images = np.arange(rows * 6, dtype=np.uint8).reshape(rows, 2, 3)
        write_idx(tmp_path / f"{part}-images-idx3-ubyte", images)
        write_idx(tmp_path / f"{part}-labels-idx1-ubyte", np.arange(rows, dtype=np.uint8))
    return {path.name: path for path in tmp_path.iterdir()}


@pytest.fixture
def vgg_files(tmp_path: Path) -> Files:
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "scale.npz",
        feature_scale=np.array([1, 2, 4], dtype=np.float32),
        code_values=np.array([0, 0.5, 3], dtype=np.float32),
    )
    for name, rows in (("train-1.npz", 4), ("train-2.npz", 3), ("test.npz", 2)):
        codes = rng.integers(3, size=(rows, 3), dtype=np.uint8)
        np.savez(tmp_path / name, features=codes, labels=np.arange(rows, dtype=np.uint8))
    return {path.name: path for path in tmp_path.iterdir()}


def test_digits_are_scaled_and_split_by_class() -> None:
    data = load_digits(0.2, np.random.default_rng(0))
    assert (data.features.min(), data.features.max()) == (0, 1)
    assert data.features.dtype == np.float32
    assert len(data.features) + len(data.test_features) == 1797
    assert np.abs(data.targets.mean(axis=0) - data.test_targets.mean(axis=0)).max() < 0.01
    assert data.target_names == DIGITS
    assert data.feature_names[9] == "pixel_1_1"


def test_idx_images_are_read_as_pixels_between_zero_and_one(idx_files: Files) -> None:
    data = load_idx_images("mnist", idx_files, DIGITS)
    np.testing.assert_array_equal(data.features, np.arange(30, dtype=np.float32).reshape(5, 6) / np.float32(255))
    assert data.features.dtype == np.float32
    assert data.labels.tolist() == [0, 1, 2, 3, 4]
    assert data.test_targets.shape == (2, 10)
    assert data.feature_names[-1] == "pixel_1_2"


@pytest.mark.parametrize(
    ("file", "array", "message"),
    [
        ("t10k-images-idx3-ubyte", np.zeros((2, 3, 3), np.uint8), r"training images of mnist are \(2, 3\) pixels"),
        (
            "train-labels-idx1-ubyte",
            np.zeros(4, np.uint8),
            "train-labels-idx1-ubyte' must hold a label from 0 to 9 for each of 5",
        ),
        ("t10k-labels-idx1-ubyte", np.full(2, 10, np.uint8), "t10k-labels-idx1-ubyte' must hold a label from 0 to 9"),
    ],
)
def test_idx_files_that_do_not_fit_are_refused(
    idx_files: Files, file: str, array: npt.NDArray[Any], message: str
) -> None:
    write_idx(idx_files[file], array)
    with pytest.raises(InputError, match=message):
        load_idx_images("mnist", idx_files, DIGITS)


def test_vgg_codes_are_decoded_as_their_formula_says(vgg_files: Files) -> None:
    data = load_cifar10_vgg(vgg_files)
    scale = np.load(vgg_files["scale.npz"])
    codes = np.concatenate([np.load(vgg_files[f"train-{part}.npz"])["features"] for part in (1, 2)])
    np.testing.assert_array_equal(data.features, scale["code_values"][codes] * scale["feature_scale"])
    assert data.features.dtype == np.float32
    assert data.labels.tolist() == [0, 1, 2, 3, 0, 1, 2]
    assert data.target_names[3] == "cat"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a | {"features": a["features"] + 3}, "'features' of .*test.npz' does not fit the code table"),
        (lambda a: a | {"features": a["features"][:, :2]}, "does not fit the code table"),
        (lambda a: a | {"features": a["features"].astype(float)}, "does not fit the code table"),
        (lambda a: a | {"labels": a["labels"] + 100}, "test.npz' must hold a label from 0 to 9 for each of 2"),
        (lambda a: {"features": a["features"]}, "has no array 'labels'"),
    ],
)
def test_vgg_files_that_do_not_fit_are_refused(
    vgg_files: Files, change: Callable[[dict[str, npt.NDArray[Any]]], dict[str, npt.NDArray[Any]]], message: str
) -> None:
    path = vgg_files["test.npz"]
    np.savez(path, **change(dict(np.load(path))))  # type: ignore[arg-type]
    with pytest.raises(InputError, match=message):
        decode_vgg([path], dict(np.load(vgg_files["scale.npz"])))
