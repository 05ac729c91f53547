from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from codedfl.files import read_npz, write_npz
from codedfl.schemes import make_scheme
from codedfl.training import record_arrays, record_from
from tests.problems import make_setting


@dataclass(frozen=True)
class Kept:
    round: int
    model: npt.NDArray[Any]
    rate: float
    settled: bool
    label: str


KEPT = Kept(7, np.arange(6, dtype=np.float32).reshape(3, 2), 0.1, True, "half")
LIKE = Kept(0, np.zeros((3, 2), np.float32), 1.0, False, "none")


def test_every_field_becomes_an_array_and_comes_back() -> None:
    arrays = record_arrays("state", KEPT)
    assert sorted(arrays) == ["state.label", "state.model", "state.rate", "state.round", "state.settled"]
    back = record_from("state", arrays, LIKE)
    assert (back.round, back.rate, back.settled, back.label) == (7, 0.1, True, "half")
    assert [type(getattr(back, name)) for name in ("round", "rate", "settled")] == [int, float, bool]
    np.testing.assert_array_equal(back.model, KEPT.model)
    assert back.model.dtype == np.float32


def test_fields_that_are_left_out_must_be_given() -> None:
    arrays = record_arrays("state", KEPT, skip=["label"])
    assert "state.label" not in arrays
    assert record_from("state", arrays, LIKE, label="given").label == "given"
    with pytest.raises(ValueError, match=r"it holds no state\.label"):
        record_from("state", arrays, LIKE)


def test_another_prefix_is_another_record() -> None:
    with pytest.raises(ValueError, match=r"it holds no pace\.round"):
        record_from("pace", record_arrays("state", KEPT), LIKE)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", np.zeros((2, 3), np.float32)),
        ("model", np.zeros((3, 2), np.int64)),
        ("round", np.array(7.0)),
        ("round", np.array([7])),
        ("settled", np.array(1)),
    ],
)
def test_values_of_another_shape_or_kind_are_refused(name: str, value: npt.NDArray[Any]) -> None:
    arrays = {**record_arrays("state", KEPT), f"state.{name}": value}
    with pytest.raises(ValueError, match=rf"state\.{name} has shape"):
        record_from("state", arrays, LIKE, label="")


def test_numbers_come_back_in_the_precision_of_the_run() -> None:
    wide = {**record_arrays("state", KEPT), "state.model": KEPT.model.astype(np.float64)}
    assert record_from("state", wide, LIKE, label="").model.dtype == np.float32


@pytest.mark.parametrize("name", ["fedavg", "scfl", "momentum", "ccfl"])
def test_the_state_of_a_scheme_survives_a_file(name: str, tmp_path: Path) -> None:
    prepared = make_scheme(name, {}).prepare(make_setting())
    state = prepared.scheme.init(prepared, np.ones(prepared.model_shape))
    write_npz(tmp_path / "state.npz", record_arrays("state", state))
    arrays = read_npz(tmp_path / "state.npz", required=(), optional=None)
    back = record_from("state", arrays, prepared.scheme.init(prepared, np.zeros(prepared.model_shape)))
    assert type(back) is type(state)
    restored = record_arrays("state", back)
    assert sorted(restored) == sorted(arrays)
    for path, array in record_arrays("state", state).items():
        np.testing.assert_array_equal(restored[path], array)


@dataclass(frozen=True)
class Nested:
    inner: tuple[Kept, npt.NDArray[Any]]
    nothing: None = None


def test_records_nest_to_any_depth() -> None:
    arrays = record_arrays("state", Nested((KEPT, np.arange(3))))
    assert "state.inner.0.model" in arrays
    assert "state.inner.1" in arrays
    back = record_from("state", arrays, Nested((LIKE, np.zeros(3, np.int64))))
    assert (back.inner[0].round, back.inner[1].tolist(), back.nothing) == (7, [0, 1, 2], None)


def test_a_path_of_an_earlier_version_is_found() -> None:
    arrays = {"state.inner.1": np.arange(3), **record_arrays("state.kept", KEPT)}
    formerly = {f"inner.0.{item.name}": f"kept.{item.name}" for item in fields(Kept)}
    back = record_from("state", arrays, Nested((LIKE, np.zeros(3, np.int64))), formerly)
    assert back.inner[0].label == "half"
    with pytest.raises(ValueError, match=r"it holds no state\.inner\.0\.round"):
        record_from("state", arrays, Nested((LIKE, np.zeros(3, np.int64))))


def test_objects_are_refused() -> None:
    with pytest.raises(TypeError, match=r"state\.1 is of the type ndarray with objects, which no checkpoint can hold"):
        record_arrays("state", (np.zeros(1), np.array([None])))
    with pytest.raises(TypeError, match=r"state is of the type dict with objects"):
        record_arrays("state", {"a": 1})
