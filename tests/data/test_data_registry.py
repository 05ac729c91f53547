from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from codedfl.data._builtin import CIFAR10, decode_vgg
from codedfl.data._registry import REGISTRY, dataset_folder, list_datasets, load_named
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
        "data.data_dir (--data-dir) or CODEDFL_DATA to the folder that holds it."
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


@pytest.mark.data
def test_real_mnist_has_its_known_counts() -> None:
    require_real("mnist")
    data = load_named("mnist", None, 0.2, np.random.default_rng(0))
    assert (data.features.shape, data.test_features.shape) == ((60000, 784), (10000, 784))
    assert np.bincount(data.labels).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert data.test_targets.sum(axis=0).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert data.features.mean(dtype=np.float64) == pytest.approx(0.13066, abs=1e-5)
    assert data.features.std(dtype=np.float64) == pytest.approx(0.30811, abs=1e-5)


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
