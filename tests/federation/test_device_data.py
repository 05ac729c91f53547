from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from codedfl.coding import Rows
from codedfl.errors import InputError
from codedfl.federation import _device_data
from codedfl.federation._config_files import parse_federation
from codedfl.federation._device_data import load_rows
from codedfl.federation._federation_config import FederationConfig

TEXT = "patient,b,ill,a\nAnn,0.5,no,1\nBob,2,yes,3\nCid,-1,no,5\n"


def federation(features: dict[str, Any] | None = None, **data: Any) -> FederationConfig:
    given = {"columns": ["a", "b"], "target": ["ill"], "task": "classification", "classes": ["no", "maybe", "yes"]}
    return parse_federation({"devices": ["ward"], "data": {**given, **data}, "features": features or {}})


def regression(*targets: str, **data: Any) -> FederationConfig:
    return federation(target=list(targets), task="regression", classes=[], **data)


def csv(folder: Path, text: str = TEXT) -> Path:
    path = folder / "ward.csv"
    path.write_text(text)
    return path


def assert_same(one: Rows, other: Rows) -> None:
    np.testing.assert_array_equal(one.features, other.features, strict=True)
    np.testing.assert_array_equal(one.labels, other.labels, strict=True)


def test_columns_are_taken_in_the_order_of_the_federation(tmp_path: Path) -> None:
    rows = load_rows(csv(tmp_path), federation())
    expected = np.array([[1, 0.5, 1], [3, 2, 1], [5, -1, 1]], np.float32)
    np.testing.assert_array_equal(rows.features, expected, strict=True)
    np.testing.assert_array_equal(rows.labels, np.array([[1, 0, 0], [0, 0, 1], [1, 0, 0]], np.float32), strict=True)


def test_a_device_may_have_one_class_alone(tmp_path: Path) -> None:
    rows = load_rows(csv(tmp_path, "a,b,ill\n1,2,yes\n3,4,yes\n"), federation())
    assert rows.labels.tolist() == [[0, 0, 1], [0, 0, 1]]


def test_public_constants_shift_and_scale(tmp_path: Path) -> None:
    features = {"mean": [1.0, 0.0], "scale": [2.0, 0.5], "output_scale": 4.0, "intercept": False}
    rows = load_rows(csv(tmp_path), federation(features))
    np.testing.assert_array_equal(rows.features, np.array([[0, 0.25], [0.25, 1], [0.5, -0.5]], np.float32), strict=True)


def test_times_keep_the_digits_in_which_rows_differ(tmp_path: Path) -> None:
    features = {"mean": [1.7e9, 0.0], "scale": [100.0, 1.0], "intercept": False}
    at = 1_700_000_000 + np.arange(50)
    text = "a,b,ill\n" + "".join(f"{seconds},1,no\n" for seconds in at)
    rows = load_rows(csv(tmp_path, text), federation(features))
    assert rows.features.dtype == np.float32
    np.testing.assert_allclose(rows.features[:, 0], np.arange(50) / 100, rtol=1e-6)
    assert_same(load_rows(csv(tmp_path, text), federation(features), tmp_path / "cache"), rows)


def test_random_features_are_those_of_the_federation(tmp_path: Path) -> None:
    agreed = federation({"map": "rff", "dimension": 7, "gamma": 0.1, "seed": 3})
    rows = load_rows(csv(tmp_path), agreed)
    raw = np.array([[1, 0.5], [3, 2], [5, -1]], np.float32)
    np.testing.assert_array_equal(rows.features, agreed.map().transform(raw), strict=True)


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz", "named npz"])
def test_every_kind_of_file_gives_the_same_rows(tmp_path: Path, kind: str) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    frame = pd.read_csv(csv(tmp_path))
    path = tmp_path / f"table.{kind.split()[-1]}"
    names = {"a": "a", "b": "b"}
    if kind == "csv":
        frame.to_csv(path, index=False)
    elif kind == "parquet":
        frame.set_index("patient").to_parquet(path)
    else:
        arrays: dict[str, Any] = {"X": frame[["b", "a"]].to_numpy(), "ill": frame["ill"].to_numpy(dtype="U")}
        if kind == "npz":
            names = {"a": "x1", "b": "x0"}
            np.savez(path, **arrays)
        else:
            np.savez(path, columns=np.array(["b", "a"]), **arrays)
    agreed = federation(columns=list(names.values()))
    assert_same(load_rows(path, agreed), load_rows(csv(tmp_path), federation()))


@pytest.mark.parametrize(
    ("column", "classes"),
    [([1, 0, 2], ["0", "1", "2"]), ([1.0, 0.0, 2.0], ["0", "1", "2"]), ([True, False, True], ["False", "True"])],
)
@pytest.mark.parametrize("kind", ["csv", "npz"])
def test_classes_that_are_numbers_or_truths(tmp_path: Path, column: list[Any], classes: list[str], kind: str) -> None:
    path = tmp_path / f"table.{kind}"
    if kind == "csv":
        pd.DataFrame({"a": [1, 2, 3], "b": [4, 5, 6], "ill": column}).to_csv(path, index=False)
    else:
        np.savez(path, X=np.ones((3, 2)), ill=np.array(column), columns=np.array(["a", "b"]))
    labels = load_rows(path, federation(classes=classes)).labels
    assert [classes[index] for index in labels.argmax(axis=1)] == [
        str(value if isinstance(value, bool) else int(value)) for value in column
    ]


def test_several_numbers_to_predict(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1.0, 2], "b": [3.0, 4], "u": [5.0, 6], "v": [7.0, 8]})
    frame.to_csv(tmp_path / "table.csv", index=False)
    np.savez(
        tmp_path / "table.npz",
        X=frame[["a", "b"]].to_numpy(),
        columns=np.array(["a", "b"]),
        u=frame["u"].to_numpy(),
        v=frame["v"].to_numpy(),
    )
    for name in ("table.csv", "table.npz"):
        rows = load_rows(tmp_path / name, regression("v", "u"))
        np.testing.assert_array_equal(rows.labels, np.array([[7, 5], [8, 6]], np.float32), strict=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a,ill\n1,no\n",
            r"has no column 'b', which data\.columns of federation\.toml names, only a, ill: add that column\.",
        ),
        ("a,b,sick\n1,2,no\n", r"has no column 'ill', which data\.target of federation\.toml names"),
        ("a,B1,ill\n1,2,no\n", r"has no column 'b'"),
        ("a,b,ill\n1,two,no\n", r"the feature column 'b' of .* is not numeric or boolean: encode it as numbers\.$"),
        (
            "a,b,ill\n1,2,zebra\n1,2,yes\n1,2,ape\n",
            r"the target 'ill' of '.*ward\.csv' has the class\(es\) ape, zebra, which data\.classes of federation\.toml does not "
            r"name: remove their rows, or agree on classes that have them\.",
        ),
        ("a,b,ill\n1,2,1.5\n", r"has the class\(es\) 1\.5, which"),
        ("a,b,ill\n1,,no\n", r"column 'b' of .* has 1 missing value"),
        ("a,b,ill\n1,nan,no\n", r"column 'b' of .* has 1 missing value"),
        ("a,b,ill\n1,inf,no\n", r"column 'b' of .* has 1 value\(s\) that are infinite"),
        ("a,b,ill\n1,1e39,no\n", r"infinite or beyond"),
        ("a,b,ill\n1,2,\n", r"column 'ill' of .* has 1 missing value"),
        ("a,b,ill\n", "has no rows"),
        ("", r"has no column 'a'"),
        ("a,a,b,ill\n1,1,2,no\n", "more than one column 'a'"),
        ("a,b,ill\n1,2,no,4\n", r"line 2 of '.*ward\.csv' has 4 values, the header 3"),
    ],
)
@pytest.mark.parametrize("cached", [False, True])
def test_what_the_federation_does_not_prescribe_is_refused(
    tmp_path: Path, text: str, message: str, cached: bool
) -> None:
    cache = tmp_path / "state" if cached else None
    with pytest.raises(InputError, match=message):
        load_rows(csv(tmp_path, text), federation(), cache)
    assert not cached or not list((tmp_path / "state").iterdir())


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": np.ones((2, 2))}, "has no array 'ill'"),
        (
            {"X": np.ones((2, 2)), "ill": np.array(["no", "yes"])},
            "has no column 'a', .* add that column of X, or name the columns",
        ),
        (
            {"X": np.ones((2, 2)), "ill": np.array(["no", "yes"]), "columns": np.array(["a", "c"])},
            r"has no column 'b', .*: add that column of X\.",
        ),
        (
            {"X": np.ones((2, 2)), "ill": np.array(["no", "yes"]), "columns": np.array(["a", "a"])},
            "the array 'columns' of .* repeats a name",
        ),
        (
            {"X": np.ones((2, 2)), "ill": np.array(["no", "yes"]), "columns": np.array([1, 2])},
            r"the array 'columns' of .* has shape \(2,\) and dtype int64: give the names of the 2 column\(s\) of X, as text",
        ),
        (
            {"X": np.ones((2, 2)), "ill": np.array([["no", "yes"]] * 2), "columns": np.array(["a", "b"])},
            r"the array\(s\) ill of .* have 2 columns, but data\.target of federation\.toml names 1",
        ),
        ({"X": np.full((2, 2), np.nan), "ill": np.array(["no", "yes"])}, "missing value"),
        ({"X": np.ones((0, 2)), "ill": np.array([], "U3")}, "non-empty"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "ward.npz", **arrays)
    with pytest.raises(InputError, match=message):
        load_rows(tmp_path / "ward.npz", federation())


def test_targets_that_cannot_be_squared_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the target of .* has values beyond 1e"):
        load_rows(csv(tmp_path, "a,b,y\n1,2,1e20\n"), regression("y"))


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is no table: give a file that ends in \.csv, \.tsv, \.npz or \.parquet"):
        load_rows(tmp_path / "ward.txt", federation())
    with pytest.raises(InputError, match="is not a file"):
        load_rows(tmp_path / "ward.csv", federation())


RFF = {"map": "rff", "dimension": 30, "seed": 1}


def forbid_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        pytest.fail("read again")

    monkeypatch.setattr(_device_data, "_read", fail)


def test_a_restart_maps_the_rows_from_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, agreed, state = csv(tmp_path), federation(RFF), tmp_path / "state"
    first = load_rows(path, agreed, state)
    assert_same(first, load_rows(path, agreed))
    forbid_reading(monkeypatch)
    again = load_rows(path, agreed, state)
    assert isinstance(again.features, np.memmap)
    assert isinstance(again.labels, np.memmap)
    assert not again.features.flags.writeable
    assert_same(again, first)


def test_rows_are_mapped_block_by_block_as_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codedfl.typing.ENTRIES_PER_BLOCK", 64)  # two rows
    lines = [f"{0.1 * row},{row % 7},{'no' if row % 2 else 'yes'}" for row in range(21)]
    path, agreed = csv(tmp_path, "\n".join(["a,b,ill", *lines]) + "\n"), federation(RFF)
    assert_same(load_rows(path, agreed, tmp_path / "state"), load_rows(path, agreed))


def test_only_the_owner_can_read_the_cache(tmp_path: Path) -> None:
    load_rows(csv(tmp_path), federation(), tmp_path / "state")
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    files = list((tmp_path / "state").iterdir())
    assert len(files) == 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_a_table_that_changed_is_read_again_and_replaces_the_old_one(tmp_path: Path) -> None:
    path, state = csv(tmp_path), tmp_path / "state"
    load_rows(path, federation(), state)
    status = path.stat()
    csv(tmp_path, TEXT.replace("0.5", "0.7"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # same size, same time: the content decides
    rows = load_rows(path, federation(), state)
    assert rows.features[0, 1] == np.float32(0.7)
    assert len(list(state.iterdir())) == 2


def test_another_prescription_is_another_cache(tmp_path: Path) -> None:
    path, state = csv(tmp_path), tmp_path / "state"
    load_rows(path, federation(), state)
    for agreed in (federation({"intercept": False}), federation(classes=["yes", "no"]), federation(columns=["b", "a"])):
        assert_same(load_rows(path, agreed, state), load_rows(path, agreed))


@pytest.mark.slow
@pytest.mark.parametrize("which", ["features", "labels"])
def test_a_cache_that_is_not_whole_is_made_again(tmp_path: Path, which: str) -> None:
    path, state = csv(tmp_path), tmp_path / "state"
    expected = load_rows(path, federation())
    load_rows(path, federation(), state)
    (cached,) = state.glob(f"*-{which}.npy")
    whole = cached.read_bytes()
    for length in range(len(whole)):
        cached.unlink()
        cached.write_bytes(whole[:length])
        assert_same(load_rows(path, federation(), state), expected)
    cached.unlink()
    np.save(cached, np.zeros((2, 2), np.float32))
    assert_same(load_rows(path, federation(), state), expected)


def test_a_table_that_changes_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read = csv(tmp_path), _device_data._read

    def read_and_change(*arguments: Any) -> Any:
        found = read(*arguments)
        csv(tmp_path, TEXT + "Dan,1,no,1\n")
        return found

    monkeypatch.setattr(_device_data, "_read", read_and_change)
    with pytest.raises(InputError, match="changed while it was read"):
        load_rows(path, federation(), tmp_path / "state")
