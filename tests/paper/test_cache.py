from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest

from codedfl.paper import Cache
from codedfl.paper._executor import DamagedEntryError
from tests.support import folder_contents, refusal_of


def damage_of(cache: Cache, key: str) -> str:
    with pytest.raises(DamagedEntryError) as caught:
        cache.get(key)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("value", [{"a": [1, 2.5, "x", None, True]}, [], {"score": -math.inf}, 0.1 + 0.2])
def test_what_is_put_can_be_got(value: Any, tmp_path: Path) -> None:
    Cache(tmp_path / "deep" / "cache").put("ab12", value)
    assert Cache(tmp_path / "deep" / "cache").get("ab12") == value


def test_nothing_is_there_before_it_is_put(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    assert cache.get("ab12") is None
    assert not cache.folder.exists()
    cache.put("ab12", 1)
    assert cache.get("ab13") is None


def test_the_newest_value_counts_and_leaves_no_other_file(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.put("ab12", 1)
    cache.put("ab12", 2)
    assert cache.get("ab12") == 2
    assert list(folder_contents(tmp_path)) == ["ab12.json"]


@pytest.mark.parametrize(
    "content", [b"", b'{"accuracy": 0.9', b"\xff\xfe\x00", b"no json", b"{} {}", b"[" * 100_000, b"[]", b"{}", b"0.9"]
)
def test_what_is_no_entry_is_not_believed(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "ab12.json").write_bytes(content)
    assert str(tmp_path / "ab12.json") in damage_of(Cache(tmp_path), "ab12")


@pytest.mark.parametrize("length", [1, 0.5, 0.99])
def test_a_truncated_entry_is_not_believed(length: float, tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.put("ab12", {"accuracy": 0.9})
    content = cache.path("ab12").read_bytes()
    cache.path("ab12").write_bytes(content[: int(length * len(content)) if length < 1 else -1])
    assert str(tmp_path / "ab12.json") in damage_of(cache, "ab12")


@pytest.mark.parametrize("edited", ["0.8", "NaN", "7", '"0.9"'])
def test_an_edited_entry_is_not_believed(edited: str, tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.put("ab12", {"accuracy": 0.9})
    cache.path("ab12").write_text(cache.path("ab12").read_text().replace("0.9", edited))
    assert "checksum" in damage_of(cache, "ab12")


def test_an_entry_of_another_key_is_not_believed(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    for key, value in (("ab12", 1), ("cd34", 2)):
        cache.put(key, value)
    one, other = (cache.path(key).read_bytes() for key in ("ab12", "cd34"))
    cache.path("ab12").write_bytes(other)
    cache.path("cd34").write_bytes(one)
    for key in ("ab12", "cd34"):
        assert "another key" in damage_of(cache, key)


def test_a_folder_or_a_pipe_in_place_of_a_file_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "ab12.json").mkdir()
    os.mkfifo(tmp_path / "cd34.json")
    for key in ("ab12", "cd34"):
        assert f"{tmp_path / key}.json is not a file" in refusal_of(lambda key=key: Cache(tmp_path).get(key))  # type: ignore[misc]


def test_a_folder_that_cannot_be_made_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path / "file", tmp_path / "file" / "cache"):
        sentence = refusal_of(lambda folder=folder: Cache(folder).put("ab12", 1))  # type: ignore[misc]
        assert str(folder) in sentence
        assert "another folder" in sentence
        assert "--" not in sentence
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_that_cannot_be_written_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("codedfl.files.tempfile.mkstemp", refuse)
    sentence = refusal_of(lambda: Cache(tmp_path).put("ab12", 1))
    assert sentence == f"{tmp_path} cannot be written (Permission denied): choose another folder for the cache."
