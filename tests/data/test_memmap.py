from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from codedfl import typing
from codedfl.coding import Rows, compute_gram
from codedfl.data import Federation, is_federation_folder, load_dataset, open_federation, save_federation
from codedfl.data._federation import mapped_file
from codedfl.data._memmap import FILES, MATRICES
from codedfl.errors import InputError
from tests.problems import make_federation
from tests.support import refusal_of

Change = Callable[[Path], object]


def saved(tmp_path: Path, **changes: Any) -> Path:
    save_federation(make_federation(**changes), tmp_path / "big")
    return tmp_path / "big"


def with_array(name: str, values: npt.NDArray[Any]) -> Change:
    return lambda folder: np.save(folder / f"{name}.npy", values)


def with_about(about: Any) -> Change:
    return lambda folder: (folder / "federation.json").write_text(json.dumps(about))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_saved_federation_comes_back_mapped_and_the_same(tmp_path: Path, dtype: Any, task: Any) -> None:
    federation = make_federation(dtype=dtype, task=task)
    save_federation(federation, tmp_path / "new" / "big")
    opened = open_federation(tmp_path / "new" / "big")
    for name in (*MATRICES, "offsets"):
        np.testing.assert_array_equal(getattr(opened, name), getattr(federation, name))
        assert getattr(opened, name).dtype == getattr(federation, name).dtype
    for name in MATRICES:
        assert isinstance(getattr(opened, name), np.memmap)
    assert (opened.task, opened.target_names, opened.device_names) == (
        task,
        federation.target_names,
        federation.device_names,
    )
    assert opened.describe() == federation.describe()
    assert (opened.mapped, federation.mapped) == (True, False)


def test_numpy_reads_the_files_too(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    np.testing.assert_array_equal(np.load(folder / "features.npy"), make_federation().features)
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)


def test_large_arrays_are_written_in_many_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typing, "ENTRIES_PER_BLOCK", 7)
    federation = make_federation()
    np.testing.assert_array_equal(open_federation(saved(tmp_path)).features, federation.features)
    np.testing.assert_array_equal(open_federation(tmp_path / "big").offsets, federation.offsets)


def test_test_rows_in_any_order_of_memory_are_written_row_by_row(tmp_path: Path) -> None:
    federation = make_federation()
    save_federation(replace(federation, test_features=np.asfortranarray(federation.test_features)), tmp_path / "big")
    np.testing.assert_array_equal(open_federation(tmp_path / "big").test_features, federation.test_features)


def test_the_data_of_a_device_is_a_view_of_the_file(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    federation = open_federation(folder)
    for values, file in zip(federation.device(1), ("features.npy", "labels.npy"), strict=True):
        assert mapped_file(values) == str((folder / file).resolve())
        assert values.flags.c_contiguous
        with pytest.raises(ValueError, match="read-only"):
            values[0, 0] = 1


def test_a_view_of_a_map_is_mapped_and_what_is_computed_from_it_is_not(tmp_path: Path) -> None:
    features = open_federation(saved(tmp_path)).features
    file = str((tmp_path / "big" / "features.npy").resolve())
    assert mapped_file(np.asarray(features)[2:5].T) == file
    for copy in (features + 1, features[[0, 2]], features[features[:, 0] > 0], np.array(features), features.copy()):
        assert mapped_file(copy) is None


def test_names_are_optional(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    with_about({"task": "classification"})(folder)
    federation = open_federation(folder)
    assert federation.target_names == ("0", "1")
    assert federation.device_names == ("device-1", "device-2", "device-3", "device-4")
    with_about({"task": "regression", "device_names": ["a", "b", "c", "d"]})(folder)
    federation = open_federation(str(folder))
    assert (federation.target_names, federation.device_names) == (("y_0", "y_1"), ("a", "b", "c", "d"))


def test_a_single_output_is_called_y(tmp_path: Path) -> None:
    folder = saved(tmp_path, outputs=1, task="regression")
    with_about({"task": "regression"})(folder)
    assert open_federation(folder).target_names == ("y",)


X = make_federation().features
NOT_FINITE = np.where(np.arange(X.size).reshape(X.shape) < 70, X, np.inf)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        *((lambda folder, file=file: (folder / file).unlink(), ("big' has no file", repr(file))) for file in FILES),
        (with_array("features", X[:, 0]), ("features.npy' has shape (25,)", "give a two-dimensional array")),
        (with_array("labels", X[:0]), ("labels.npy' has shape (0, 3)",)),
        (with_array("features", X.astype(np.int64)), ("features.npy' has dtype <i8", "float32 or float64")),
        (with_array("features", X.astype(np.float16)), ("features.npy' has dtype <f2",)),
        (with_array("features", X.astype(">f8")), ("features.npy' has dtype >f8",)),
        (with_array("features", np.asfortranarray(X)), ("features.npy' is in Fortran order", "save it in C order")),
        (with_array("test_labels", np.ones((40, 2), np.float32)), ("test_labels.npy' has dtype float32 but", "float64")),
        (with_array("labels", X[:24, :2]), ("features.npy' has 25 rows but", "labels.npy' has 24")),
        (with_array("test_labels", X[:5, :2]), ("test_features.npy' has 40 rows but", "test_labels.npy' has 5")),
        (with_array("test_features", np.ones((40, 4))), ("features.npy' has 3 columns but", "has 4: give both the same")),
        (with_array("test_labels", np.ones((40, 3))), ("labels.npy' has 2 columns but", "has 3: give both the same")),
        (with_array("features", NOT_FINITE), ("features.npy' has 5 value(s) that are NaN or infinite", "(23, 1)")),
        (with_array("test_labels", np.full((40, 2), np.nan)), ("test_labels.npy' has 80 value(s)", "(0, 0)")),
        (with_array("offsets", np.array([0.0, 25.0])), ("offsets.npy' has shape (2,) and dtype <f8", "int64")),
        (with_array("offsets", np.array([25])), ("offsets.npy' has shape (1,)",)),
        (with_array("offsets", np.array([[0, 25]])), ("offsets.npy' has shape (1, 2)",)),
        (with_array("offsets", np.array([1, 25])), ("offsets.npy' runs from 1 to 25", "from 0 to the 25 rows")),
        (with_array("offsets", np.array([0, 26])), ("offsets.npy' runs from 0 to 26",)),
        (with_array("offsets", np.array([0, 9, 8, 25])), ("offsets.npy' goes from 9 to 8 at index 2", "must increase")),
        (with_array("offsets", np.array([0, 9, 9, 25])), ("offsets.npy' goes from 9 to 9 at index 2",)),
        (with_about([]), ("federation.json' holds no JSON object",)),
        (with_about({}), ("task = None in", "federation.json' must be 'classification' or 'regression'")),
        (with_about({"task": ["regression"]}), ("task = ['regression'] in",)),
        (with_about({"task": "regression", "names": []}), ("has a key 'names' but only task, target_names",)),
        (with_about({"task": "regression", "target_name": []}), ("Did you mean 'target_names'?",)),
        (with_about({"task": "regression", "target_names": "ab"}), ("target_names in", "is no list of names")),
        (with_about({"task": "regression", "target_names": ["a", 1]}), ("target_names in", "is no list of names")),
        (with_about({"task": "regression", "target_names": ["a"]}), ("has 1 different name(s): give 2",)),
        (with_about({"task": "regression", "device_names": ["a", "a", "b", "c"]}), ("has 3 different name(s): give 4",)),
        (lambda folder: (folder / "federation.json").write_text("{"), ("federation.json' cannot be read as a JSON file",)),
        (lambda folder: (folder / "federation.json").write_bytes(b"\xff"), ("cannot be read as a JSON file",)),
        (lambda folder: (folder / "labels.npy").write_bytes(b""), ("labels.npy' cannot be read as an .npy file",)),
        (lambda folder: (folder / "labels.npy").write_bytes(b"PK\x03\x04" * 99), ("labels.npy' cannot be read as an .npy file",)),
        (with_array("labels", np.array([[None]])), ("labels.npy' cannot be read as an .npy file", "Python objects")),
    ],
)  # fmt: skip
def test_a_folder_that_does_not_fit_together_is_refused_in_one_sentence(
    tmp_path: Path, change: Change, words: tuple[str, ...]
) -> None:
    folder = saved(tmp_path)
    change(folder)
    refusal = refusal_of(lambda: open_federation(folder))
    for word in words:
        assert word in refusal
    assert "\n" not in refusal


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path) / "features.npy"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"features\.npy' cannot be read as an \.npy file .*replace it"):
        open_federation(path.parent)


def test_classes_need_a_column_each(tmp_path: Path) -> None:
    folder = saved(tmp_path, outputs=1, task="regression")
    with_about({"task": "classification"})(folder)
    with pytest.raises(InputError, match=r"'classification' in .* does not fit the single column of labels\.npy"):
        open_federation(folder)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    for name in ("file", "full"):
        with pytest.raises(InputError, match=f"{name}' exists and is not an empty folder"):
            save_federation(make_federation(), tmp_path / name)
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine"]
    with pytest.raises(InputError, match="cannot be written"):
        save_federation(make_federation(), tmp_path / "file" / "below")


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []

    def full(descriptor: int) -> None:
        synced.append(descriptor)
        if len(synced) == 3:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(InputError, match=r"big' cannot be written \(No space left on device\)"):
        save_federation(make_federation(), tmp_path / "big")
    assert list((tmp_path / "big").iterdir()) == []


@pytest.mark.parametrize("change", [{"labels": np.float32}, dict.fromkeys(MATRICES, np.float16)])
def test_types_that_could_not_be_opened_are_not_saved(tmp_path: Path, change: dict[str, Any]) -> None:
    federation = make_federation()
    other = replace(federation, **{name: getattr(federation, name).astype(dtype) for name, dtype in change.items()})
    with pytest.raises(InputError, match="make all of them float32 or all of them float64"):
        save_federation(other, tmp_path / "big")
    assert not (tmp_path / "big").exists()


def test_rows_of_mapped_data_are_not_held_out(tmp_path: Path) -> None:
    federation = open_federation(saved(tmp_path))
    with pytest.raises(
        InputError, match=r"learning_rate\.scale = 'grid' holds rows out .* give learning_rate\.scale a"
    ):
        federation.split_validation(0.2, np.random.default_rng(0))
    copied = replace(federation, features=federation.features[np.arange(25)])
    assert len(copied.split_validation(0.2, np.random.default_rng(0)).test_features) == 4


def test_folders_are_told_from_names_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("digits", "big", "odd.csv"):
        (tmp_path / name).mkdir()
    assert [is_federation_folder(name) for name in ("big", "./digits", "odd.csv")] == [True] * 3
    assert [is_federation_folder(name) for name in ("digits", "", "absent", "a" * 5000, "\0")] == [False] * 5
    with pytest.raises(InputError, match=r"data\.dataset = 'big' is a folder.* use open_federation"):
        load_dataset("big", rng=np.random.default_rng(0))


def test_opening_and_the_gram_matrix_take_a_fraction_of_the_memory_of_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(typing, "ENTRIES_PER_BLOCK", 2**16)
    monkeypatch.setattr("codedfl.coding._gram.BLOCK_ROWS", 256)
    save_federation(make_federation((20_000, 30_000), dimension=100, dtype=np.float32), tmp_path / "big")
    tracemalloc.start()
    federation = open_federation(tmp_path / "big")
    compute_gram([Rows(*federation.device(i)) for i in range(federation.devices)])
    save_federation(federation, tmp_path / "copy")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert federation.features.nbytes == 20_000_000
    assert peak < 0.1 * federation.features.nbytes


def test_refusing_a_nan_takes_a_fraction_of_the_memory_of_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(typing, "ENTRIES_PER_BLOCK", 2**16)
    folder = saved(tmp_path, samples=(50_000,), dimension=100, dtype=np.float32)
    features = np.lib.format.open_memmap(folder / "features.npy", mode="r+")
    features[1:, 1] = np.nan
    del features
    tracemalloc.start()
    refusal = refusal_of(lambda: open_federation(folder))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "has 49999 value(s) that are NaN or infinite, the first at index (1, 1)" in refusal
    assert peak < 0.1 * 20_000_000


def test_mapped_and_other_arrays_may_be_mixed(tmp_path: Path) -> None:
    opened = open_federation(saved(tmp_path))
    federation: Federation = replace(opened, labels=np.array(opened.labels))
    assert federation.mapped
    assert mapped_file(federation.labels) is None


@pytest.mark.parametrize("name", ["labels", "test_labels"])
@pytest.mark.parametrize("row", [[0.5, 0.5], [1.0, 1.0], [0.0, 0.0], [2.0, -1.0]])
def test_labels_of_a_classification_must_be_one_hot(tmp_path: Path, name: str, row: list[float]) -> None:
    folder = saved(tmp_path, task="classification")
    labels = np.load(folder / f"{name}.npy")
    labels[2] = 0
    labels[2, :2] = row
    np.save(folder / f"{name}.npy", labels)
    with pytest.raises(InputError, match=rf"row 2 of '.*{name}\.npy' is not one-hot"):
        open_federation(folder)


def test_labels_of_a_regression_must_not_be_too_large(tmp_path: Path) -> None:
    folder = saved(tmp_path, task="regression")
    np.save(folder / "labels.npy", np.load(folder / "labels.npy") * np.float32(1e30))
    with pytest.raises(InputError, match=r"labels\.npy' has values beyond 1e\+15"):
        open_federation(folder)


def test_features_that_are_all_zero_are_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    np.save(folder / "features.npy", 0 * np.load(folder / "features.npy"))
    with pytest.raises(InputError, match=r"features\.npy' holds nothing but zeros"):
        open_federation(folder)
