from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from codedfl.data import Columns, Dataset, TaskChoice, load_dataset
from codedfl.errors import InputError, InputListError


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_the_same_randomness_gives_the_same_split() -> None:
    one, two = load_dataset("digits", rng=rng()), load_dataset("digits", rng=rng())
    np.testing.assert_array_equal(one.features, two.features)


def test_a_file_is_loaded_by_its_path_and_a_single_name_may_be_a_string(tmp_path: Path) -> None:
    path = tmp_path / "Homes.CSV"
    path.write_text("id,price,size\n" + "".join(f"{row},{row + 1},{row + 2}\n" for row in range(10)))
    data = load_dataset(str(path), target="price", drop="id", test_fraction=0.3, rng=rng())
    assert (data.task, data.feature_names, data.target_names) == ("regression", ("size",), ("price",))
    assert (len(data.features), len(data.test_features)) == (7, 3)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "mnits",
            r"'mnits' is neither a known dataset \(digits, mnist, fashion-mnist, cifar10-vgg\) .*Did you mean 'mnist'\?",
        ),
        ("file.xlsx", r"nor a path that ends in \.csv, \.tsv, \.npz, \.parquet\.$"),
        ("absent.csv", r"data\.dataset = 'absent\.csv' is not a file"),
        ("", "data.dataset = '' is neither"),
    ],
)
def test_an_unknown_source_is_refused(source: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_dataset(source, target=["y"], rng=rng())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": ["y"]}, r"data\.target = \['y'\] applies to a file, not to data\.dataset = 'digits'"),
        ({"device_column": "d"}, r"data\.device_column = 'd' applies to a file"),
        ({"drop": ["d"]}, r"data\.drop = \['d'\] applies to a file"),
        ({"test_file": "t.csv"}, r"data\.test_file = 't\.csv' applies to a file"),
        ({"task": "regression"}, r"data\.task = 'regression' does not fit data\.dataset = 'digits'"),
        ({"test_fraction": 1.0}, r"data\.test_fraction = 1\.0 must be"),
    ],
)
def test_options_of_files_are_refused_for_a_named_dataset(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_dataset("digits", rng=rng(), **options)


FRAME = pd.DataFrame(
    {
        "a": np.arange(20, dtype=np.float32) / 4,
        "b": np.arange(20) % 3,
        "who": ["left", "right"] * 10,
        "kind": ["cat"] * 10 + ["dog"] * 10,
    }
)
KIND = Columns(("kind",), "who")


def load(
    path: Path, columns: Columns = KIND, *, task: TaskChoice = "auto", fraction: float = 0.25, test_file: str = ""
) -> Dataset:
    return load_dataset(
        str(path),
        target=columns.target,
        device_column=columns.device,
        drop=columns.drop,
        bounds=columns.bounds,
        categories=columns.categories,
        task=task,
        test_fraction=fraction,
        test_file=test_file,
        rng=np.random.default_rng(0),
    )


def write(folder: Path, ending: str, frame: pd.DataFrame = FRAME, name: str = "pets") -> Path:
    path = folder / f"{name}{ending}"
    if ending == ".csv":
        frame.to_csv(path, index=False)
    elif ending == ".parquet":
        pytest.importorskip("pyarrow")
        frame.to_parquet(path)
    else:
        arrays: dict[str, Any] = {name: frame[name].to_numpy(dtype=np.str_) for name in ("kind", "who")}
        np.savez(path, X=frame[["a", "b"]].to_numpy(), **arrays)
    return path


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".npz"])
def test_every_format_gives_the_same_data(tmp_path: Path, ending: str) -> None:
    data = load(write(tmp_path, ending))
    assert (data.name, data.task, data.target_names) == ("pets", "classification", ("cat", "dog"))
    assert data.features.shape == (15, 2)
    assert data.features.dtype == np.float32
    assert data.devices is not None
    # Column a says which row it was, so that everything about a row can be looked up.
    for row, values in enumerate(data.features):
        original = FRAME.iloc[int(4 * values[0])]
        assert (original["b"], original["who"]) == (values[1], data.devices[row])
        assert original["kind"] == data.target_names[data.labels[row]]
    assert sorted(data.test_targets.sum(axis=0)) == [2, 3]


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".npz"])
def test_a_test_file_replaces_the_split(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path, ending)
    test_file = write(tmp_path, ending, FRAME.iloc[::5], "other")
    data = load(path, test_file=str(test_file), fraction=0)
    assert len(data.features) == 20
    np.testing.assert_array_equal(data.test_features[:, 0], FRAME["a"][::5])


def test_a_test_file_may_have_its_columns_in_another_order(tmp_path: Path) -> None:
    path = write(tmp_path, ".csv")
    test_file = write(tmp_path, ".csv", FRAME[["kind", "b", "a"]], "other")
    np.testing.assert_array_equal(load(path, test_file=str(test_file)).test_features[:, 0], FRAME["a"])


def test_test_rows_within_an_npz_file_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, X=np.eye(3), y=np.arange(3.0), X_test=np.ones((1, 3)), y_test=np.ones(1))
    data = load(path, Columns(()))
    assert (data.task, data.target_names, data.test_features.shape) == ("regression", ("y",), (1, 3))
    with pytest.raises(InputError, match=r"data\.test_file = .* although .* has its own X_test"):
        load(path, Columns(()), test_file=str(path))


@pytest.mark.parametrize(
    ("test_file", "message"),
    [
        ("absent.csv", r"data\.test_file = .*absent\.csv' is not a file"),
        ("pets.txt", r"data\.test_file = .*pets\.txt' must end in \.csv, \.tsv, \.npz, \.parquet"),
        ("birds.csv", r"birds\.csv' has the class\(es\) bird, of which the training rows have none"),
        ("short.csv", r"short\.csv' has no column 'b' \(found: a\): add what is missing"),
    ],
)
def test_a_test_file_that_does_not_fit_is_refused(tmp_path: Path, test_file: str, message: str) -> None:
    path = write(tmp_path, ".csv")
    write(tmp_path, ".csv", FRAME.assign(kind="bird"), "birds")
    write(tmp_path, ".csv", FRAME.drop(columns="b"), "short")
    with pytest.raises(InputError, match=message):
        load(path, test_file=str(tmp_path / test_file))


def load_or_refuse(path: Path, columns: Columns, task: TaskChoice) -> None:
    """Whatever is in a file, the result is a valid dataset, or a line for everything that is wrong."""
    refusal: InputError | None = None
    try:
        data = load(path, columns, task=task)
        assert data.features.dtype == data.targets.dtype == np.float32
    except InputError as error:
        refusal = error
    first, *problems = str(refusal).split("\n")
    assert first.endswith(f" has {len(problems)} problems:") == isinstance(refusal, InputListError) == bool(problems)
    assert all(line.startswith("- ") for line in problems)


TASKS = st.sampled_from(["auto", "classification", "regression"])
CELLS = st.sampled_from(
    [
        "",
        "1",
        "2",
        "-0.5",
        "1e300",
        "inf",
        "nan",
        "a",
        "b",
        "True",
        '"',
        "é",
        "NA",
        "9" * 30,
        "2024-02-29",
        "3/4/2024",
        "1,5",
    ]
)
RECORDS = st.lists(st.lists(CELLS, min_size=1, max_size=4).map(";".join), max_size=8).map("\n".join)


@given(
    text=st.one_of(
        RECORDS.map(lambda records: f"x;y;z\n{records}\n".encode()),
        RECORDS.map(lambda records: f"x,y,z\n{records}\n".replace(";", ",").encode()),
        st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")),
        st.binary(max_size=60),
    ),
    columns=st.sampled_from([Columns(("y",)), Columns(("y",), "z"), Columns(("y", "z")), Columns(())]),
    task=TASKS,
)
def test_any_csv_file_is_loaded_or_refused(
    tmp_path_factory: pytest.TempPathFactory, text: bytes, columns: Columns, task: TaskChoice
) -> None:
    path = tmp_path_factory.mktemp("csv") / "any.csv"
    path.write_bytes(text)
    load_or_refuse(path, columns, task)


ANY_ARRAY = hnp.arrays(
    dtype=st.one_of(
        hnp.floating_dtypes(endianness="="),
        hnp.integer_dtypes(),
        hnp.boolean_dtypes(),
        hnp.unicode_string_dtypes(max_len=3),
    ),
    shape=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
MATRIX = hnp.arrays(np.float64, (4, 2), elements=st.floats(-1e3, 1e3))
TARGET_TYPES: list[np.dtype[Any]] = [np.dtype(np.int64), np.dtype(np.float32), np.dtype("U2"), np.dtype(bool)]
TARGETS = hnp.arrays(st.sampled_from(TARGET_TYPES), (4,))


@pytest.mark.slow
@given(
    arrays=st.fixed_dictionaries(
        {"X": MATRIX | ANY_ARRAY, "y": TARGETS | ANY_ARRAY}, optional={"device": TARGETS | ANY_ARRAY, "X_test": MATRIX}
    ),
    task=TASKS,
)
def test_any_npz_file_is_loaded_or_refused(
    tmp_path_factory: pytest.TempPathFactory, arrays: dict[str, npt.NDArray[Any]], task: TaskChoice
) -> None:
    path = tmp_path_factory.mktemp("npz") / "any.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]
    load_or_refuse(path, Columns(()), task)


def load_own(path: Path, **options: Any) -> Dataset:
    return load_dataset(str(path), rng=np.random.default_rng(0), **options)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize("name", ["pipe.csv", "pipe.npz", "pipe.parquet"])
def test_a_pipe_is_refused_and_does_not_hang(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(InputError, match=r"data\.dataset = .* is a pipe or a device"):
        load_own(tmp_path / name, target=["y"])


@pytest.mark.slow
def test_a_table_with_a_million_columns_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    path.write_text(",".join(f"c{i}" for i in range(1_000_000)) + "\n" + ",".join(["0"] * 1_000_000) + "\n")
    with pytest.raises(InputError, match="has 1000000 columns, more than the 50000 that a table may have"):
        load_own(path, target=["c0"])


@pytest.mark.parametrize("value", [0, 3.5])
def test_features_without_any_variation_are_refused(tmp_path: Path, value: float) -> None:
    path = tmp_path / "flat.csv"
    path.write_text("a,b,y\n" + "".join(f"{value},{value},{i}\n" for i in range(10)))
    with pytest.raises(InputError, match=r"every feature of '.*flat\.csv' is constant"):
        load_own(path, target=["y"])


def test_a_constant_target_is_refused_and_a_zero_column_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "half.csv"
    path.write_text("a,b,c,y\n" + "".join(f"{i},0,{i % 3},1\n" for i in range(10)))
    with pytest.raises(InputError, match=r"the target 'y' of .* is the same in every row"):
        load_own(path, target=["y"])
    data = load_own(path, target=["a"], drop=["y"])
    assert data.feature_names == ("c",)
    assert data.features.shape == (8, 1)
    assert "columns left out: b (the same value in all training rows)." in data.remarks


@pytest.mark.parametrize("value", ["1e30", "-2e15"])
def test_targets_too_large_to_be_squared_are_refused(tmp_path: Path, value: str) -> None:
    path = tmp_path / "large.csv"
    path.write_text("a,y\n" + "".join(f"{i},{value if i == 3 else i}\n" for i in range(10)))
    with pytest.raises(InputError, match=r"has values beyond 1e\+15, .*: rescale the target"):
        load_own(path, target=["y"], test_file=str(path))


@pytest.mark.parametrize(
    "device", [np.array([1.0, np.nan, 2.0]), np.array(["a", "NaN", "b"]), np.array(["a", "", "b"])]
)
def test_a_missing_device_id_is_refused(tmp_path: Path, device: npt.NDArray[Any]) -> None:
    path = tmp_path / "my.npz"
    np.savez(path, X=np.eye(3), y=np.arange(3.0), device=device)
    with pytest.raises(InputError, match=r"the array 'device' of .* has 1 missing value"):
        load_own(path)


def test_class_names_that_are_not_ascii_survive(tmp_path: Path) -> None:
    path = tmp_path / "données.csv"
    path.write_text("a,y\n" + "".join(f"{i},{'naïve' if i % 2 else '日本'}\n" for i in range(10)), encoding="utf-8")
    assert load_own(path, target=["y"]).target_names == ("naïve", "日本")


def test_messages_do_not_repeat_long_input(tmp_path: Path) -> None:
    path = tmp_path / "my.csv"
    path.write_text(f"{'c' * 5000},y\n1,2\n2,3\n")
    for options in ({"target": ["z" * 5000]}, {"target": ["c" * 4999]}, {"target": ["y"], "task": "x" * 5000}):
        with pytest.raises(InputError) as caught:
            load_own(path, **options)
        assert len(str(caught.value)) < 800
    with pytest.raises(InputError) as caught:
        load_dataset("d" * 5000, rng=np.random.default_rng(0))
    assert len(str(caught.value)) < 800
