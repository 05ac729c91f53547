from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codedfl.data import FeatureMap
from codedfl.errors import InputError
from codedfl.models import Predictor
from codedfl.models._file import KEY, read_model_file, write_model_file
from tests.support import refusal_of

TENSORS = {"a": np.arange(6.0).reshape(2, 3), "flag": np.array(True), "count": np.array(3)}
DESCRIPTION = {"task": "regression", "names": ["Größe", "\ud800", '"quoted"'], "nothing": None}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    feature_map = FeatureMap(None, None, None, None, np.ones(1, np.float32), True, input_dimension=3)
    weights = np.random.default_rng(0).normal(size=(4, 2))
    Predictor(feature_map, weights, "regression", ("sum", "difference"), {"covers": "nothing"}).save(path)
    return path


def test_tensors_and_description_come_back_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_model_file(path, {**TENSORS, "turned": TENSORS["a"].T}, DESCRIPTION)
    tensors, description = read_model_file(path)
    assert description == DESCRIPTION
    assert set(tensors) == {*TENSORS, "turned"}
    for name, array in TENSORS.items():
        np.testing.assert_array_equal(tensors[name], array)
        assert tensors[name].dtype == array.dtype
    np.testing.assert_array_equal(tensors["turned"], TENSORS["a"].T)


def test_equal_content_gives_equal_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_model_file(tmp_path / f"{name}.safetensors", TENSORS, DESCRIPTION)
    assert (tmp_path / "one.safetensors").read_bytes() == (tmp_path / "two.safetensors").read_bytes()


def test_any_reader_of_safetensors_sees_the_tensors(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_model_file(path, TENSORS, DESCRIPTION)
    with safetensors.safe_open(path, framework="numpy") as file:
        assert set(file.keys()) == set(TENSORS)
        description = json.loads(file.metadata()[KEY])
    assert description["format"] == 1
    blank = path.read_bytes().replace(description["sha256"].encode(), b"0" * 64)
    assert sha256(blank).hexdigest() == description["sha256"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(position=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_anywhere_is_refused(saved: Path, tmp_path: Path, position: float, bit: int) -> None:
    content = bytearray(saved.read_bytes())
    content[int(position * len(content))] ^= 1 << bit
    damaged = tmp_path / "model.safetensors"
    damaged.write_bytes(content)
    assert refusal_of(lambda: Predictor.load(damaged)).startswith(f"'{damaged}' ")


def test_the_whole_header_is_guarded(saved: Path, tmp_path: Path) -> None:
    whole = saved.read_bytes()
    damaged = tmp_path / "model.safetensors"
    for position in range(0, 8 + int.from_bytes(whole[:8], "little"), 3):
        content = bytearray(whole)
        content[position] ^= 1 << position % 7
        damaged.write_bytes(content)
        assert len(refusal_of(lambda: Predictor.load(damaged)).splitlines()) == 1, position


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 1, exclude_max=True), tail=st.binary(max_size=40))
def test_a_truncated_file_is_refused(saved: Path, tmp_path: Path, share: float, tail: bytes) -> None:
    whole = saved.read_bytes()
    content = whole[: int(share * len(whole))] + tail
    damaged = tmp_path / "model.safetensors"
    damaged.write_bytes(content)
    assert content == whole or refusal_of(lambda: Predictor.load(damaged)).startswith(f"'{damaged}' ")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.dictionaries(
        st.sampled_from(
            ["task", "target_names", "input_names", "privacy", "provenance", "preprocessing", "logits", "class_type"]
        ),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
            max_leaves=5,
        ),
        min_size=1,
    )
)
def test_a_forged_description_is_accepted_or_refused_but_never_crashes(
    saved: Path, tmp_path: Path, values: dict[str, object]
) -> None:
    tensors, description = read_model_file(saved)
    forged = tmp_path / "forged.safetensors"
    write_model_file(forged, tensors, description | values)
    assert len(refusal_of(lambda: Predictor.load(forged)).splitlines()) <= 1


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("text.safetensors", b"a,b\n1,2\n", "cannot be read as a model of codedfl"),
        ("empty.safetensors", b"", "cannot be read as a model of codedfl"),
        ("torch.safetensors", safetensors.numpy.save({"weights": np.ones(2)}), "is not a model of codedfl"),
        ("format.safetensors", safetensors.numpy.save(TENSORS, {"format": "pt"}), "is not a model of codedfl"),
        ("list.safetensors", safetensors.numpy.save(TENSORS, {KEY: "[]"}), "is not a model of codedfl"),
        ("unsigned.safetensors", safetensors.numpy.save(TENSORS, {KEY: "{}"}), "does not match its checksum"),
        ("odd.safetensors", safetensors.numpy.save(TENSORS, {KEY: '{"sha256": ""}'}), "does not match its checksum"),
        ("deep.safetensors", safetensors.numpy.save(TENSORS, {KEY: "[" * 100_000}), "cannot be read as a model"),
        ("model.npz", b"PK\x03\x04", ".npz models of earlier versions have to be trained again"),
    ],
)
def test_foreign_files_are_refused(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    assert words in refusal_of(lambda: read_model_file(tmp_path / name))


def test_a_file_of_a_later_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "later.safetensors"
    write_model_file(path, TENSORS, {"format": 2})
    with pytest.raises(
        InputError, match=r"has the format 2, but this version of codedfl reads 1: use the version that wr"
    ):
        read_model_file(path)


def test_paths_that_are_no_files_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere.safetensors"):
        with pytest.raises(InputError, match="is not a file"):
            read_model_file(path)


def test_a_model_has_the_ending_that_says_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"model\.npz': give a name that ends in \.safetensors"):
        write_model_file(tmp_path / "model.npz", TENSORS, DESCRIPTION)
    with pytest.raises(
        InputError, match=r"model\.safetensors' cannot be written, as there is no folder .*: create it, or"
    ):
        write_model_file(tmp_path / "no" / "such" / "model.safetensors", TENSORS, DESCRIPTION)
    assert not list(tmp_path.iterdir())
