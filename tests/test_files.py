from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.errors import InputError
from codedfl.files import (
    PRIVATE,
    make_private_folder,
    open_atomically,
    read_npz,
    refusing_damage,
    remove_leftovers,
    require_file,
    require_room_for,
    sync_folder,
    write_atomically,
    write_npz,
)


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


def test_a_place_where_nothing_can_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_room_for(tmp_path / "result.json")
    (tmp_path / "file").touch()
    for path, words in (
        (tmp_path / "missing" / "result.json", f"as there is no folder '{tmp_path / 'missing'}': create it, or give"),
        (tmp_path / "file" / "result.json", "as there is no folder"),
        (tmp_path, "is a folder: give the name of a file"),
    ):
        with pytest.raises(InputError, match=re.escape(words)):
            require_room_for(path)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(InputError, match="its folder is closed to you"):
        require_room_for(tmp_path / "result.json")


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_others_may_read_the_file(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_atomically(path, "new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
@pytest.mark.parametrize("umask", [0o000, 0o077])
@pytest.mark.parametrize("mode", [PRIVATE, 0o640, 0o755])
def test_a_file_has_the_permissions_that_were_asked_for(tmp_path: Path, mode: int, umask: int) -> None:
    path = tmp_path / "result.json"
    path.write_text("old")
    path.chmod(0o666)
    before = os.umask(umask)
    try:
        write_atomically(path, "new", mode)
        write_npz(tmp_path / "result.npz", {"x": np.zeros(2)}, mode)
    finally:
        os.umask(before)
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {mode}


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
@pytest.mark.parametrize("mode", [PRIVATE, 0o644])
def test_nobody_else_can_read_a_file_before_it_is_complete(tmp_path: Path, mode: int) -> None:
    before = os.umask(0)
    try:
        with open_atomically(tmp_path / "device.key", mode) as file:
            assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == PRIVATE
            file.write(b"secret")
            file.flush()
            assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == PRIVATE
    finally:
        os.umask(before)


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_only_its_owner_can_enter_a_private_folder(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "keys"
    before = os.umask(0)
    try:
        assert make_private_folder(folder) == folder
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o755)
    (folder / "a.key").write_text("secret")
    make_private_folder(str(folder))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert (folder / "a.key").read_text() == "secret"


def test_a_file_in_the_way_of_a_private_folder_stays(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("mine")
    with pytest.raises(FileExistsError):
        make_private_folder(tmp_path / "keys")
    assert (tmp_path / "keys").read_text() == "mine"


@pytest.mark.skipif(os.name != "posix", reason="folders cannot be opened elsewhere")
def test_the_folder_itself_is_synced_and_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []

    def sync(descriptor: int) -> None:
        assert os.path.samestat(os.fstat(descriptor), tmp_path.stat())
        synced.append(descriptor)
        raise OSError("disk failure")

    monkeypatch.setattr(os, "fsync", sync)
    with pytest.raises(OSError, match="disk failure"):
        sync_folder(tmp_path)
    (descriptor,) = synced
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


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


def test_parts_of_a_path_that_are_not_unicode_are_escaped(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.json")
    write_atomically(str(path), os.fsdecode(b"caf\xe9"))
    assert path.read_text(encoding="utf-8") == "caf\\udce9"


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_the_leftover_of_a_killed_writer_is_recognised_and_removed(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    script = (
        "import os, signal, sys\n"
        "from codedfl.files import write_atomically\n"
        "os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"
        "write_atomically(sys.argv[1], 'new')\n"
    )
    killed = subprocess.run([sys.executable, "-c", script, str(tmp_path / "models" / "scfl.npz")], check=False)
    assert killed.returncode == -signal.SIGKILL
    kept = [tmp_path / "curves.csv", tmp_path / ".hidden.tmp", tmp_path / ".gitignore", tmp_path / "a.abcdefgh.tmp"]
    for path in kept:
        path.write_text("mine")
    (leftover,) = (tmp_path / "models").iterdir()
    assert re.fullmatch(r"\.scfl\.npz\.[a-z0-9_]{8}\.tmp", leftover.name)
    assert remove_leftovers(str(tmp_path)) == 1
    assert not leftover.exists()
    assert all(path.exists() for path in kept)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_pipes_and_devices_are_refused_without_opening_them(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npz")
    for path in (tmp_path / "pipe.npz", Path(os.devnull)):
        with pytest.raises(InputError, match="is a pipe or a device"):
            require_file("data.dataset", path)
        with pytest.raises(InputError, match="is a pipe or a device"):
            read_npz(path, ["X"])


def test_names_that_cannot_be_files_are_refused(tmp_path: Path) -> None:
    for path in ("x" * 5000, "a\0b", str(tmp_path), ""):
        with pytest.raises(InputError, match="is not a file"):
            require_file("data.dataset", path)


def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.csv")
    path.write_text("a,y\n1,2\n")
    with pytest.raises(InputError, match=r"caf\\udce9\.csv' has a name that is not valid UTF-8"):
        require_file("data.dataset", path)
