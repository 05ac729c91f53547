from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from codedfl.paper import Cache
from tests.support import folder_contents, refusal_of


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


@pytest.mark.parametrize("content", [b"", b'{"accuracy": 0.9', b"\xff\xfe\x00", b"no json", b"{} {}"])
def test_a_truncated_or_spoilt_file_is_refused_by_name(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "ab12.json").write_bytes(content)
    sentence = refusal_of(lambda: Cache(tmp_path).get("ab12"))
    assert str(tmp_path / "ab12.json") in sentence
    assert "delete it" in sentence
    assert "\n" not in sentence


def test_a_folder_in_place_of_a_file_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "ab12.json").mkdir()
    assert str(tmp_path / "ab12.json") in refusal_of(lambda: Cache(tmp_path).get("ab12"))


def test_a_folder_that_cannot_be_made_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path / "file", tmp_path / "file" / "cache"):
        sentence = refusal_of(lambda folder=folder: Cache(folder).put("ab12", 1))  # type: ignore[misc]
        assert str(folder) in sentence
        assert "--cache" in sentence
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_that_cannot_be_written_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("codedfl.files.tempfile.mkstemp", refuse)
    sentence = refusal_of(lambda: Cache(tmp_path).put("ab12", 1))
    assert sentence == f"{tmp_path} cannot be written (Permission denied): give another --cache."
