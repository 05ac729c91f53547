from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codedfl._reading import read_npz, refusing_damage, require_file
from codedfl.errors import InputError


def test_only_required_and_present_optional_arrays_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, a=np.arange(3), b=np.ones(2), c=np.zeros(1))
    assert set(read_npz(path, ["a"], ["b", "x"])) == {"a", "b"}


def test_a_missing_array_is_named_with_those_present(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, labels=np.arange(3))
    with pytest.raises(InputError, match=r"a\.npz' has no array 'label', only: labels\. Did you mean 'labels'\?"):
        read_npz(path, ["label"])


def test_python_objects_are_never_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, a=np.array([{"x": 1}], dtype=object))
    with pytest.raises(InputError, match=r"cannot be read as an \.npz file \(Object arrays cannot be loaded"):
        read_npz(path, ["a"])


def test_an_npy_file_under_another_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with path.open("wb") as file:
        np.save(file, np.arange(3))
    with pytest.raises(InputError, match=r"is not an \.npz archive"):
        read_npz(path, ["a"])


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.9, 0.99])
def test_a_truncated_file_is_refused_by_name(tmp_path: Path, kept: float) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, a=np.random.default_rng(0).normal(size=100))
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(InputError, match=r"a\.npz' cannot be read as an \.npz file"):
        read_npz(path, ["a"])


@settings(deadline=None)
@given(content=st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("npz") / "a.npz"
    path.write_bytes(content)
    with pytest.raises(InputError):
        read_npz(path, ["a"])


def test_a_missing_file_is_refused_with_its_field() -> None:
    with pytest.raises(InputError, match=r"data\.dataset = 'nowhere\.csv' is not a file"):
        require_file("data.dataset", Path("nowhere.csv"))


def test_an_exception_becomes_one_sentence() -> None:
    with pytest.raises(InputError) as caught, refusing_damage(Path("a.csv"), "a .csv file"):
        raise OSError("bad.\nsecond line")
    assert str(caught.value) == "'a.csv' cannot be read as a .csv file (bad): replace it with an undamaged file."
