from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.data import list_datasets
from codedfl.data._registry import (
    CIFAR10,
    DIGITS,
    REGISTRY,
    dataset_folder,
    decode_vgg,
    load_cifar10_vgg,
    load_digits,
    load_idx_images,
    load_named,
    read_idx,
)
from codedfl.errors import InputError


def fill(folder: Path, ending: str = "") -> None:
    folder.mkdir(parents=True)
    for name in REGISTRY["mnist"].files:
        shape = (3, 2, 2) if "images" in name else (3,)
        content = bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + bytes(int(np.prod(shape)))
        (folder / (name + ending)).write_bytes(gzip.compress(content) if ending else content)


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_idx_datasets_load_compressed_or_not(tmp_path: Path, name: str, ending: str) -> None:
    fill(tmp_path / name, ending)
    for data_dir in (tmp_path, tmp_path / name):
        data = load_named(name, data_dir, 0.2, np.random.default_rng(0))
        assert (data.name, data.features.shape, data.test_features.shape) == (name, (3, 4), (3, 4))


def test_the_folder_comes_from_the_argument_then_the_environment_then_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEDFL_DATA", "elsewhere")
    assert dataset_folder("mnist", tmp_path) == tmp_path / "mnist"
    assert dataset_folder("mnist", None) == Path("elsewhere/mnist")
    monkeypatch.setenv("CODEDFL_DATA", "")
    assert dataset_folder("mnist", None) == Path("data/mnist")
    (tmp_path / "mnist").mkdir()
    monkeypatch.chdir(tmp_path / "mnist")
    assert dataset_folder("mnist", Path()) == Path()


def test_missing_files_are_named_with_the_folder_and_a_remedy(tmp_path: Path) -> None:
    fill(tmp_path / "mnist")
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(InputError) as caught:
        load_named("mnist", tmp_path, 0.2, np.random.default_rng(0))
    assert str(caught.value) == (
        f"data.dataset = 'mnist' needs the file(s) t10k-labels-idx1-ubyte, which are not in {str(tmp_path / 'mnist')!r}: get "
        "the four IDX files of the MNIST database, from its home page or a mirror, put them in a folder called mnist, and set "
        "data.data_dir or CODEDFL_DATA to the folder that holds it."
    )


def test_the_list_says_what_is_available(tmp_path: Path) -> None:
    fill(tmp_path / "mnist", ".gz")
    listed = {status.name: status for status in list_datasets(tmp_path)}
    assert list(listed) == ["digits", "mnist", "fashion-mnist", "cifar10-vgg"]
    assert [status.available for status in listed.values()] == [True, True, False, False]
    assert listed["digits"].location == "embedded"
    assert listed["mnist"].location == str(tmp_path / "mnist")
    assert listed["mnist"].hint == ""
    assert "zalandoresearch/fashion-mnist" in listed["fashion-mnist"].hint
    assert listed["cifar10-vgg"].files == ("scale.npz", "train-1.npz", "train-2.npz", "test.npz")


def require_real(name: str) -> None:
    if not {status.name: status.available for status in list_datasets()}[name]:
        pytest.skip(f"the files of {name} are not in {dataset_folder(name, None)}: set CODEDFL_DATA")


@pytest.mark.slow
@pytest.mark.data
def test_real_mnist_has_its_known_counts() -> None:
    require_real("mnist")
    data = load_named("mnist", None, 0.2, np.random.default_rng(0))
    assert (data.features.shape, data.test_features.shape) == ((60000, 784), (10000, 784))
    assert np.bincount(data.labels).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert data.test_targets.sum(axis=0).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert data.features.mean(dtype=np.float64) == pytest.approx(0.13066, abs=1e-5)
    assert data.features.std(dtype=np.float64) == pytest.approx(0.30811, abs=1e-5)


@pytest.mark.slow
@pytest.mark.data
def test_real_cifar10_test_rows_have_their_known_counts() -> None:
    require_real("cifar10-vgg")
    files = REGISTRY["cifar10-vgg"].find(dataset_folder("cifar10-vgg", None))
    features, targets = decode_vgg([files["test.npz"]], dict(np.load(files["scale.npz"])))
    assert features.shape == (10000, 4096)
    assert features.dtype == np.float32
    assert targets.sum(axis=0).tolist() == [1000] * len(CIFAR10)
    # Each feature was scaled by its root mean square on the training rows, which test rows share up to sampling error.
    mean_square = np.einsum("ij,ij->j", features, features, dtype=np.float64) / len(features)
    assert np.median(np.sqrt(mean_square) / np.load(files["scale.npz"])["feature_scale"]) == pytest.approx(1, abs=0.05)


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


def idx_bytes(array: npt.NDArray[Any]) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


IMAGES = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_reads_back_what_was_written(tmp_path: Path, compress: Any) -> None:
    path = tmp_path / "images"
    path.write_bytes(compress(idx_bytes(IMAGES)))
    np.testing.assert_array_equal(read_idx(path, dimensions=3), IMAGES)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "starts with the bytes of an empty file instead of 00 00 08 03"),
        (b"\x00\x00\x08\x01\x00\x00\x00\x01\x07", "starts with the bytes 00 00 08 01 instead of 00 00 08 03"),
        (idx_bytes(IMAGES)[:10], "is truncated within its header"),
        (idx_bytes(IMAGES)[:-1], "is truncated: its header promises 24 bytes and 23 follow"),
        (idx_bytes(IMAGES) + b"x", "is too long: its header promises 24 bytes and 25 follow"),
        (idx_bytes(IMAGES[:0]), "has no entries"),
        (gzip.compress(idx_bytes(IMAGES), mtime=0)[:-9], "cannot be read as an IDX file"),
        (b"\x1f\x8bnonsense", "cannot be read as an IDX file"),
    ],
)
def test_a_bad_file_is_refused_by_name(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "train-images"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"train-images' {message}"):
        read_idx(path, dimensions=3)


def test_an_unreadable_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read as an IDX file"):
        read_idx(tmp_path, dimensions=1)


@given(prefix=st.sampled_from([b"", b"\x00\x00\x08\x01", b"\x00\x00\x08\x01\x00\x00\x00"]), rest=st.binary(max_size=40))
def test_arbitrary_bytes_give_labels_or_a_refusal(
    tmp_path_factory: pytest.TempPathFactory, prefix: bytes, rest: bytes
) -> None:
    path = tmp_path_factory.mktemp("idx") / "labels"
    path.write_bytes(prefix + rest)
    refusal = "labels"
    try:
        assert read_idx(path, dimensions=1).ndim == 1
    except InputError as error:
        refusal = str(error)
    assert "labels" in refusal
