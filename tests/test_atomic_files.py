from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NoReturn

import pytest

from codedfl.files import write_atomically


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("plain", b"plain"),
        ("σ² and 日本\n", "σ² and 日本\n".encode()),
        ("a\r\nb\nc", b"a\r\nb\nc"),
        (b"\x00\xff\n\r", b"\x00\xff\n\r"),
        ("", b""),
        (b"", b""),
    ],
)
def test_content_is_written_as_it_is(tmp_path: Path, content: str | bytes, expected: bytes) -> None:
    path = tmp_path / "result.json"
    write_atomically(path, content)
    assert path.read_bytes() == expected
    assert list(tmp_path.iterdir()) == [path]


def test_an_old_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text("a long old content")
    write_atomically(path, "new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_reader_of_the_old_file_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_atomically(path, "old")
    with path.open() as reader:
        write_atomically(path, "new")
        assert reader.read() == "old"
    assert path.read_text() == "new"


def test_content_is_on_disk_and_complete_before_it_takes_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "result.json"
    events: list[str] = []
    real_replace, real_sync = Path.replace, os.fsync

    def sync(descriptor: int) -> None:
        events.append(f"sync of {os.fstat(descriptor).st_size} bytes")
        real_sync(descriptor)

    def replace(self: Path, target: Path) -> Path:
        events.append(f"replace with {len(self.read_bytes())} bytes")
        assert self.parent == path.parent  # a rename across file systems would not be one step
        return real_replace(self, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", replace)
    write_atomically(path, b"x" * 1000)
    assert events == ["sync of 1000 bytes", "replace with 1000 bytes"]


@pytest.mark.parametrize(("owner", "name"), [(os, "fsync"), (Path, "replace"), (Path, "chmod")])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()], ids=["error", "interrupt"])
@pytest.mark.parametrize("existed", [True, False])
def test_a_failure_leaves_what_was_there_and_nothing_else(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: object,
    name: str,
    error: BaseException,
    existed: bool,
) -> None:
    path = tmp_path / "result.json"
    if existed:
        path.write_text("old")

    def fail(*_: object, **__: object) -> NoReturn:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fail)
        with pytest.raises(type(error)):
            write_atomically(path, "new")
    assert [p.name for p in tmp_path.iterdir()] == (["result.json"] if existed else [])
    if existed:
        assert path.read_text() == "old"
    write_atomically(path, "new")  # and the next attempt succeeds
    assert path.read_text() == "new"


def test_a_folder_in_the_way_stays(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    (path / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match=r"result\.json"):
        write_atomically(path, "new")
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]
    assert (path / "inside").is_dir()


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_atomically(tmp_path / "missing" / "result.json", "new")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_others_may_read_the_file(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_atomically(path, "new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
