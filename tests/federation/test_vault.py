from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as stnp

from codedfl.errors import InputError
from codedfl.federation._vault import Vault, digest_of, open_privately
from codedfl.files import Arrays

KEY = "c0ded123" * 8


def never() -> Arrays:
    pytest.fail("drawn a second time")


def drawn() -> Arrays:
    rng = np.random.default_rng()
    return {"features": rng.random((3, 2), np.float32), "labels": rng.random((3, 1)), "rows": np.array(3)}


def assert_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    assert set(one) == set(other)
    for name, array in one.items():
        assert array.dtype == other[name].dtype
        assert array.shape == other[name].shape
        assert array.tobytes() == other[name].tobytes()


def release_file(folder: Path) -> Path:
    (path,) = folder.glob("release-*.npz")
    return path


def test_a_second_request_gets_the_same_bytes(tmp_path: Path) -> None:
    first = Vault(tmp_path).release(KEY, drawn)
    assert_same(Vault(tmp_path).release(KEY, never), first)
    assert_same(Vault(tmp_path).release(KEY, never), first)


def test_another_key_is_another_release(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    first, second = vault.release(KEY, drawn), vault.release("deadbeef", drawn)
    assert (first["features"] != second["features"]).any()
    assert vault.stored(KEY) is not None
    assert vault.stored("deadbee0") is None


@given(
    st.dictionaries(
        st.text(max_size=10).filter(lambda name: "\0" not in name and "/" not in name).filter(str.isprintable),
        stnp.arrays(st.sampled_from(["f4", "f8", "i8", "?"]), stnp.array_shapes(min_dims=0, min_side=0, max_side=4)),
        max_size=4,
    )
)
def test_any_arrays_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, arrays: dict[str, np.ndarray[Any, Any]]
) -> None:
    folder = tmp_path_factory.mktemp("vault")
    assert_same(Vault(folder).release(KEY, lambda: arrays), arrays)
    assert_same(Vault(folder).release(KEY, never), arrays)


def test_arrays_may_have_the_names_of_arguments_and_any_order(tmp_path: Path) -> None:
    arrays = {"file": np.zeros(2), "checksum": np.ones(1), "allow_pickle": np.arange(6).reshape(2, 3).T}
    Vault(tmp_path).release(KEY, lambda: arrays)
    assert_same(Vault(tmp_path).release(KEY, never), arrays)


def test_python_objects_are_not_stored(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="no digest"):
        Vault(tmp_path).release(KEY, lambda: {"x": np.array([object()])})
    assert not list(tmp_path.glob("*.npz"))


def test_a_draw_that_fails_leaves_nothing_and_can_be_repeated(tmp_path: Path) -> None:
    def dies() -> Arrays:
        raise KeyboardInterrupt

    vault = Vault(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        vault.release(KEY, dies)
    assert vault.stored(KEY) is None
    first = vault.release(KEY, drawn)
    assert_same(Vault(tmp_path).release(KEY, never), first)


def test_a_writer_that_was_killed_leaves_nothing_that_stays(tmp_path: Path) -> None:
    leftover = tmp_path / f".release-{KEY}.npz.a1b2c3d4.tmp"
    leftover.write_bytes(b"half of a")
    other = tmp_path / ".release-deadbeef.npz.a1b2c3d4.tmp"
    other.write_bytes(b"another process is still writing")
    Vault(tmp_path).release(KEY, drawn)
    assert not leftover.exists()
    assert other.exists()


def test_a_full_disk_is_refused_before_anything_is_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    vault = Vault(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(InputError, match=r"release-.* cannot be written \(No space left on device\): free space"):
            vault.release(KEY, drawn)
    assert vault.stored(KEY) is None
    assert not list(tmp_path.glob(".*.tmp"))


def test_a_release_truncated_anywhere_is_refused_and_not_drawn_again(tmp_path: Path) -> None:
    Vault(tmp_path).release(KEY, lambda: {"x": np.zeros(2, np.float32)})
    path = release_file(tmp_path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match="does not encode again by itself"):
            Vault(tmp_path).release(KEY, never)
    path.write_bytes(whole)
    Vault(tmp_path).release(KEY, never)


@pytest.mark.slow
def test_a_release_altered_anywhere_is_refused_or_the_same(tmp_path: Path) -> None:
    """Some bytes of an archive mean nothing, such as the time of a member."""
    stored = Vault(tmp_path).release(KEY, lambda: {"x": np.arange(2, dtype=np.float32)})
    path = release_file(tmp_path)
    whole = path.read_bytes()
    refused = 0
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x41]) + whole[place + 1 :])
        try:
            assert_same(Vault(tmp_path).release(KEY, never), stored)
        except InputError:
            refused += 1
    assert refused > len(whole) / 2


def test_what_to_do_about_a_damaged_release(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.release(KEY, drawn)
    path = release_file(tmp_path)
    path.write_bytes(b"")
    with pytest.raises(InputError) as refusal:
        vault.release(KEY, never)
    assert str(refusal.value) == (
        f"the stored release '{path}' is damaged, and this device does not encode again by itself, as a second encoding of the "
        "same data reveals more of it: restore the file from a backup, or delete it, which makes the next upload one more "
        "release in the ledger and in policy.most_uploads."
    )
    path.unlink()
    vault.release(KEY, drawn)


def test_a_release_under_another_key_is_refused(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.release(KEY, drawn)
    release_file(tmp_path).rename(tmp_path / "release-deadbeef.npz")
    with pytest.raises(InputError, match="is damaged"):
        vault.release("deadbeef", never)


@pytest.mark.parametrize("key", ["", "c0de", "C0DED123", "../../etc/passwd", "c0ded12g", "a" * 129])
def test_a_key_is_an_identity(tmp_path: Path, key: str) -> None:
    with pytest.raises(InputError, match="is no identity"):
        Vault(tmp_path).release(key, drawn)


RACER = """
import sys, time
from pathlib import Path
import numpy as np
from codedfl.federation._vault import Vault, digest_of

folder, key, number, racers = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])

def slowly():
    print("drawn")
    time.sleep(0.2)  # so that the others get in the way
    return {"x": np.random.default_rng().random(3)}

vault = Vault(folder)
(folder / f"ready-{number}").touch()
while len(list(folder.glob("ready-*"))) < racers:
    time.sleep(0.001)
print(digest_of(vault.release(key, slowly)))
"""


@pytest.mark.slow
def test_processes_that_race_for_a_release_draw_once(tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", RACER, str(tmp_path), KEY]
    racers = [
        subprocess.Popen([*arguments, str(number), "3"], stdout=subprocess.PIPE, text=True) for number in range(3)
    ]
    outputs = [racer.communicate(timeout=60)[0].split() for racer in racers]
    assert sum(output.count("drawn") for output in outputs) == 1
    assert len({output[-1] for output in outputs}) == 1
    assert {racer.returncode for racer in racers} == {0}


KILLED = """
import os, sys
from codedfl.federation._vault import Vault
Vault(sys.argv[1]).release(sys.argv[2], lambda: os.kill(os.getpid(), 9))
"""


@pytest.mark.slow
def test_a_process_killed_while_drawing_holds_nobody_up(tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), KEY], timeout=60)
    assert killed.returncode == -9
    vault = Vault(tmp_path)
    first = vault.release(KEY, drawn)
    assert_same(vault.release(KEY, never), first)


def test_only_the_owner_can_read_anything(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o755)
    before = os.umask(0)
    try:
        vault = Vault(folder)
        vault.release(KEY, drawn)
        vault.secret("batches", 8)
        vault.put("masks", b"state")
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    files = list(folder.iterdir())
    assert len(files) == 6
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        Vault(tmp_path / "file" / "state")


def test_a_secret_is_drawn_once_and_kept(tmp_path: Path) -> None:
    first = Vault(tmp_path).secret("batches", 16)
    assert len(first) == 16
    assert Vault(tmp_path).secret("batches", 16) == first
    assert Vault(tmp_path).secret("masks", 16) != first
    with pytest.raises(InputError, match="has 16 bytes where 32 are wanted"):
        Vault(tmp_path).secret("batches", 32)


def test_states_are_replaced(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    assert vault.get("masks") is None
    vault.put("masks", b"one")
    vault.put("masks", b"")
    assert Vault(tmp_path).get("masks") == b""
    vault.put("masks", b"two")
    assert Vault(tmp_path).get("masks") == b"two"


@pytest.mark.parametrize("kind", ["secret", "state"])
def test_damaged_secrets_and_states_are_refused(tmp_path: Path, kind: str) -> None:
    vault = Vault(tmp_path)
    vault.put("x", b"content")
    vault.secret("x", 8)
    path = tmp_path / f"{kind}-x.bin"
    whole = path.read_bytes()
    damaged = [whole[:length] for length in range(len(whole))]
    damaged += [whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :] for place in range(len(whole))]
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(InputError, match=f"{kind}-x.bin' is damaged: .*delete it"):
            vault.get("x") if kind == "state" else vault.secret("x", 8)


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 101])
def test_a_name_cannot_lead_out_of_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="cannot be that of a file"):
        Vault(tmp_path).put(name, b"")


def test_a_private_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with suppress(KeyboardInterrupt), open_privately(path) as file:
        file.write(b"new")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old"
    with open_privately(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_digests_tell_names_types_and_shapes_apart() -> None:
    arrays: list[Arrays] = [
        {},
        {"x": np.zeros(2)},
        {"y": np.zeros(2)},
        {"x": np.zeros((2, 1))},
        {"x": np.zeros(4, np.float32)},
        {"x": np.zeros(1), "y": np.zeros(1)},
        {"x": np.zeros(0)},
    ]
    assert len({digest_of(each) for each in arrays}) == len(arrays)
    fortran = np.arange(6.0).reshape(2, 3).T
    assert digest_of({"x": fortran}) == digest_of({"x": fortran.copy(order="C")})
