from __future__ import annotations

import errno
import json
import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from codedfl.errors import InputError
from codedfl.federation._store import Checkpoint, ServerStore
from codedfl.uploads import Received
from tests.support import folder_contents, refusal_of

ARRAYS = {"state.model": np.arange(6.0).reshape(3, 2), "values": np.array(7), "checksum": np.ones(2, np.float32)}
VALUES: dict[str, Any] = {"rate": 0.1, "names": ["a", "b"], "standing": {"a": {"late": 3}}, "loss": float("inf")}


def upload(kind: str = "rows", seed: int = 0) -> Received:
    rng = np.random.default_rng(seed)
    arrays = {"features": rng.standard_normal((6, 3), np.float32), "labels": rng.standard_normal((6, 2), np.float32)}
    return Received(arrays, 0.25, 0.0, 5, kind)


def loaded(store: ServerStore) -> Checkpoint:
    checkpoint = store.load()
    assert checkpoint is not None
    return checkpoint


def with_checkpoints(folder: Path, *rounds: int) -> ServerStore:
    store = ServerStore(folder)
    for round in rounds:
        store.save(round, {"model": np.full((3, 2), float(round))}, {"round": round})
    return store


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def assert_is_round(checkpoint: Checkpoint, round: int) -> None:
    """Check that nothing of a checkpoint has changed."""
    assert checkpoint.round == round
    assert np.array_equal(checkpoint.arrays["model"], np.full((3, 2), float(round)))
    assert checkpoint.values == {"round": round}


# Checkpoints


def test_a_checkpoint_comes_back(tmp_path: Path) -> None:
    store = ServerStore(tmp_path / "deep" / "server")
    assert store.load() is None
    assert not (tmp_path / "deep").exists(), "looking makes no folder"
    store.save(4, ARRAYS, VALUES)
    back = loaded(ServerStore(store.folder))
    assert (back.round, back.values, back.note) == (4, VALUES, "")
    assert set(back.arrays) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert back.arrays[name].dtype == array.dtype
        assert np.array_equal(back.arrays[name], array)


def test_numbers_of_numpy_may_be_among_the_values(tmp_path: Path) -> None:
    store = ServerStore(tmp_path)
    store.save(0, {}, {"a": np.float32(0.5), "b": np.int64(3), "c": np.bool_(True)})
    assert loaded(store).values == {"a": 0.5, "b": 3, "c": True}


def test_exactly_one_older_checkpoint_is_kept(tmp_path: Path) -> None:
    store = with_checkpoints(tmp_path, 0)
    assert names(tmp_path) == ["checkpoint-0.npz"]
    for round in range(1, 12):
        with_checkpoints(tmp_path, round)
        assert names(tmp_path) == sorted(f"checkpoint-{kept}.npz" for kept in (round - 1, round))
    assert_is_round(loaded(store), 11)


def test_a_round_saved_again_replaces_its_checkpoint(tmp_path: Path) -> None:
    store = with_checkpoints(tmp_path, 1, 2)
    store.save(2, {"model": np.zeros(1)}, {"again": True})
    assert names(tmp_path) == ["checkpoint-1.npz", "checkpoint-2.npz"]
    assert loaded(store).values == {"again": True}


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    others = ["checkpoint-.npz", "checkpoint-x.npz", "my-checkpoint-1.npz", "checkpoint-3.npz.bak"]
    for name in others:
        (tmp_path / name).write_text("mine")
    store = with_checkpoints(tmp_path, 1, 2, 3)
    assert_is_round(loaded(store), 3)
    assert {*others} < {*names(tmp_path)}


def test_every_truncation_of_the_newest_falls_back(tmp_path: Path) -> None:
    store = with_checkpoints(tmp_path, 7, 8)
    newest = tmp_path / "checkpoint-8.npz"
    whole = newest.read_bytes()
    for length in range(0, len(whole), max(1, len(whole) // 50)):
        newest.write_bytes(whole[:length])
        checkpoint = loaded(store)
        assert_is_round(checkpoint, 7)
        assert checkpoint.note.startswith(f"'{newest}' is damaged (")
        assert checkpoint.note.endswith("), so training continues from checkpoint-7.npz.")
        assert "\n" not in checkpoint.note
    newest.write_bytes(whole)
    assert loaded(store).note == ""


def test_no_bit_flip_is_taken_for_content(tmp_path: Path) -> None:
    """A flip in what the archive says about itself, such as a date, may go unnoticed; one in the content may not."""
    store = with_checkpoints(tmp_path, 7, 8)
    newest = tmp_path / "checkpoint-8.npz"
    whole = newest.read_bytes()
    fell_back = 0
    positions = range(0, len(whole), 5)
    for position in positions:
        damaged = bytearray(whole)
        damaged[position] ^= 1 << (position % 8)
        newest.write_bytes(damaged)
        checkpoint = loaded(store)
        fell_back += checkpoint.round == 7
        assert_is_round(checkpoint, checkpoint.round)
    assert fell_back > len(positions) / 2


def test_content_that_was_replaced_does_not_match_its_checksum(tmp_path: Path) -> None:
    """The archive is sound, so that only the checksum tells."""
    store = with_checkpoints(tmp_path, 7, 8)
    newest = tmp_path / "checkpoint-8.npz"
    with np.load(newest) as file:
        arrays = {name: file[name] for name in file.files}
    for name in set(arrays) - {"checksum"}:
        changed = arrays[name].copy()
        changed.flat[0] += 1
        np.savez(newest, **{**arrays, name: changed})
        assert "its content does not match its checksum" in loaded(store).note
        np.savez(newest, **{other: array for other, array in arrays.items() if other != name})
        assert loaded(store).round == 7
    np.savez(newest, **arrays)
    assert loaded(store).note == ""


def test_a_checkpoint_under_the_name_of_another_round_is_damaged(tmp_path: Path) -> None:
    store = with_checkpoints(tmp_path, 7, 8)
    (tmp_path / "checkpoint-8.npz").rename(tmp_path / "checkpoint-9.npz")
    checkpoint = loaded(store)
    assert_is_round(checkpoint, 7)
    assert "(it is that of round 8)" in checkpoint.note


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    store = with_checkpoints(tmp_path, 7)
    np.savez(tmp_path / "checkpoint-8.npz", values=np.array([{}], object), checksum=np.array("x"))
    assert "Object arrays cannot be loaded" in loaded(store).note


def test_two_damaged_checkpoints_are_refused_with_what_to_do(tmp_path: Path) -> None:
    store = with_checkpoints(tmp_path, 7, 8)
    for name in names(tmp_path):
        (tmp_path / name).write_bytes(b"")
    sentence = refusal_of(store.load)
    assert sentence.startswith(f"no checkpoint can be used, '{tmp_path / 'checkpoint-8.npz'}' (")
    assert f" and '{tmp_path / 'checkpoint-7.npz'}' (" in sentence
    assert "restore one from a backup, or delete them to train again" in sentence
    assert names(tmp_path) == ["checkpoint-7.npz", "checkpoint-8.npz"], "nothing is deleted"


def test_a_single_damaged_checkpoint_is_not_a_fresh_start(tmp_path: Path) -> None:
    store = with_checkpoints(tmp_path, 7)
    (tmp_path / "checkpoint-7.npz").write_bytes(b"PK")
    assert "no checkpoint can be used" in refusal_of(store.load)


def test_after_a_fall_back_the_sound_checkpoint_is_the_one_that_is_kept(tmp_path: Path) -> None:
    store = with_checkpoints(tmp_path, 7, 8)
    (tmp_path / "checkpoint-8.npz").write_bytes(b"")
    assert loaded(store).round == 7
    store.save(9, {"model": np.full((3, 2), 9.0)}, {"round": 9})
    assert names(tmp_path) == ["checkpoint-7.npz", "checkpoint-9.npz"]
    (tmp_path / "checkpoint-9.npz").write_bytes(b"")
    assert_is_round(loaded(store), 7)


def test_a_damaged_checkpoint_is_replaced_by_the_round_done_again(tmp_path: Path) -> None:
    store = with_checkpoints(tmp_path, 7, 8)
    (tmp_path / "checkpoint-8.npz").write_bytes(b"")
    assert loaded(store).round == 7
    with_checkpoints(tmp_path, 8)
    assert_is_round(loaded(store), 8)
    assert names(tmp_path) == ["checkpoint-7.npz", "checkpoint-8.npz"]


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["os.fsync", "pathlib.Path.replace"])
def test_a_kill_before_the_file_has_its_name_loses_nothing(tmp_path: Path, moment: str) -> None:
    store = with_checkpoints(tmp_path, 7, 8)
    before = folder_contents(tmp_path)
    script = (
        "import os, pathlib, signal, sys, numpy\n"
        "from codedfl.federation._store import ServerStore\n"
        f"{moment} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "ServerStore(sys.argv[1]).save(9, {'model': numpy.zeros(1000)}, {})\n"
    )
    killed = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(names(tmp_path)) == 3, "half a file is left"
    assert_is_round(loaded(store), 8)
    with store.lock():
        assert {name: content for name, content in folder_contents(tmp_path).items() if name != "lock"} == before


def test_a_kill_before_old_checkpoints_are_deleted_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = with_checkpoints(tmp_path, 7, 8)

    def die(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", die)
        with pytest.raises(KeyboardInterrupt):
            with_checkpoints(tmp_path, 9)
    assert len(names(tmp_path)) == 3
    assert_is_round(loaded(store), 9)
    with_checkpoints(tmp_path, 10)
    assert names(tmp_path) == ["checkpoint-10.npz", "checkpoint-9.npz"]


def test_file_and_folder_are_on_disk_before_older_ones_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_checkpoints(tmp_path, 7, 8)
    steps: list[str] = []
    sync, unlink, replace = os.fsync, Path.unlink, Path.replace

    def noted_sync(descriptor: int) -> None:
        steps.append("sync folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "sync file")
        sync(descriptor)

    def noted_unlink(self: Path, missing_ok: bool = False) -> None:
        steps.append(f"delete {self.name}")
        unlink(self, missing_ok)

    def noted_replace(self: Path, target: Path) -> Path:
        steps.append(f"name {target.name}")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(Path, "unlink", noted_unlink)
    monkeypatch.setattr(Path, "replace", noted_replace)
    with_checkpoints(tmp_path, 9)
    assert steps == ["sync file", "name checkpoint-9.npz", "sync folder", "delete checkpoint-7.npz"]


# A full disk


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """Let the system refuse to write more than so many bytes to any file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [0, 100, 5000, 100_000])
def test_a_write_that_the_system_refuses_leaves_everything_as_it_was(tmp_path: Path, size: int) -> None:
    store = with_checkpoints(tmp_path, 7, 8)
    store.put_upload("north", upload())
    before = folder_contents(tmp_path)
    with at_most(size):
        sentence = refusal_of(lambda: store.save(9, {"model": np.zeros(100_000)}, {}))
        again = refusal_of(lambda: store.put_upload("north", Received({"x": np.zeros(100_000)}, kind="rows")))
    assert sentence == (
        f"'{tmp_path / 'checkpoint-9.npz'}' cannot be written (File too large): free space on its disk or make its folder"
        " writable, then resume; nothing that was written before is lost."
    )
    assert "north.npz' cannot be written (File too large)" in again
    assert folder_contents(tmp_path) == before
    assert_is_round(loaded(store), 8)
    with_checkpoints(tmp_path, 9)
    assert_is_round(loaded(store), 9)


@pytest.mark.parametrize("owner", [(os, "fsync"), (Path, "chmod"), (Path, "replace")], ids=lambda owner: owner[1])
@pytest.mark.parametrize(
    "write",
    [
        lambda store: store.save(9, {"model": np.full((3, 2), 9.0)}, {"round": 9}),
        lambda store: store.put_upload("north", upload(seed=1)),
        lambda store: store.write_status({"round": 9}),
    ],
    ids=["checkpoint", "upload", "status"],
)
def test_a_full_disk_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: tuple[Any, str], write: Any
) -> None:
    store = with_checkpoints(tmp_path, 7, 8)
    store.put_upload("north", upload())
    store.write_status({"round": 8})
    before = folder_contents(tmp_path)

    def fail(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(*owner, fail)
        sentence = refusal_of(lambda: write(store))
    assert f"'{tmp_path}" in sentence
    assert "cannot be written (No space left on device): free space on its disk" in sentence
    assert folder_contents(tmp_path) == before
    assert_is_round(loaded(store), 8)
    write(store)
    assert folder_contents(tmp_path) != before


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "server").write_text("a file")
    store = ServerStore(tmp_path / "server")
    assert "cannot be written (" in refusal_of(lambda: store.save(1, {}, {}))
    with pytest.raises(InputError, match=r"lock' cannot be written \("), store.lock():
        pass


# Uploads


@pytest.mark.parametrize("device", ["north", "a.b", ".", "..", "-", "x" * 64, ".npz", "North_1"])
def test_an_upload_comes_back(tmp_path: Path, device: str) -> None:
    store = ServerStore(tmp_path)
    assert not store.has_upload(device)
    given = upload("subspace")
    store.put_upload(device, given)
    assert store.has_upload(device)
    back = ServerStore(tmp_path).upload(device, "subspace")
    assert (back.kind, back.noise_variance, back.label_noise_variance, back.rows) == ("subspace", 0.25, 0.0, 5)
    assert set(back.arrays) == set(given.arrays)
    for key, array in given.arrays.items():
        assert back.arrays[key].dtype == array.dtype
        assert np.array_equal(back.arrays[key], array)
        assert not back.arrays[key].flags.writeable
    assert {path.parent for path in tmp_path.rglob("*.npz")} == {tmp_path / "uploads"}


@pytest.mark.parametrize("device", ["", "a/b", "../a", "a\0", "a b", "x" * 65, "ä", "a\n"])
def test_a_name_that_is_none_of_a_device_is_refused(tmp_path: Path, device: str) -> None:
    store = ServerStore(tmp_path)
    for action in (lambda: store.put_upload(device, upload()), lambda: store.has_upload(device)):
        assert "must have a name of 1 to 64 letters" in refusal_of(action)
    assert not list(tmp_path.iterdir())


def test_uploads_and_checkpoints_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    store = with_checkpoints(tmp_path / "server", 1)
    store.put_upload("north", upload())
    for path in (store.folder / "uploads" / "north.npz", store.folder / "checkpoint-1.npz"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for folder in (store.folder, store.folder / "uploads"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_every_truncation_of_an_upload_is_refused(tmp_path: Path) -> None:
    store = ServerStore(tmp_path)
    store.put_upload("north", upload())
    path = tmp_path / "uploads" / "north.npz"
    whole = path.read_bytes()
    for length in range(0, len(whole), max(1, len(whole) // 50)):
        path.write_bytes(whole[:length])
        sentence = refusal_of(lambda: store.upload("north", "rows"))
        assert sentence.startswith(f"'{path}' is not a usable upload of device 'north' (")
        assert sentence.endswith("): delete it and resume, and the device sends the same upload again.")


def test_the_upload_of_one_device_is_not_taken_for_that_of_another(tmp_path: Path) -> None:
    store = ServerStore(tmp_path)
    store.put_upload("north", upload())
    (tmp_path / "uploads" / "north.npz").rename(tmp_path / "uploads" / "south.npz")
    assert "(it is that of device 'north')" in refusal_of(lambda: store.upload("south", "rows"))
    assert "'north' (" in refusal_of(lambda: store.upload("north", "rows"))


def test_an_upload_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    store = ServerStore(tmp_path)
    store.put_upload("north", upload("stat"))
    assert "it is of the kind 'stat', not 'rows'" in refusal_of(lambda: store.upload("north", "rows"))


# Events and status


def test_events_are_lines_of_json(tmp_path: Path) -> None:
    store = ServerStore(tmp_path)
    assert list(store.events()) == []
    store.append_event({"event": "refused", "reason": "a\nb é", "loss": float("nan"), "all": [1, np.inf]})
    store.append_event({"event": "round", "round": np.int64(3)})
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"event": "refused", "reason": "a\nb é", "loss": None, "all": [1, None]},
        {"event": "round", "round": 3},
    ]
    assert list(store.events()) == [json.loads(line) for line in lines]


def test_a_line_that_a_crash_cut_off_spoils_no_other(tmp_path: Path) -> None:
    store = ServerStore(tmp_path)
    store.append_event({"n": 1})
    whole = (tmp_path / "events.jsonl").read_bytes()
    for length in range(1, len(whole)):
        (tmp_path / "events.jsonl").write_bytes(whole + whole[:length])
        store.append_event({"n": 2})
        store.append_event({"n": 3})
        kept = [event["n"] for event in store.events()]
        assert kept in ([1, 2, 3], [1, 1, 2, 3])
        assert kept == [1, 2, 3] or length == len(whole) - 1, "complete but for its end"


def test_an_event_on_a_full_disk_is_one_sentence_and_keeps_the_others(tmp_path: Path) -> None:
    store = ServerStore(tmp_path)
    store.append_event({"n": 1})
    with at_most((tmp_path / "events.jsonl").stat().st_size + 3):
        assert "events.jsonl' cannot be written (File too large)" in refusal_of(lambda: store.append_event({"n": 2}))
    store.append_event({"n": 3})
    assert [event["n"] for event in store.events()] == [1, 3]


def test_the_status_is_replaced_whole(tmp_path: Path) -> None:
    store = ServerStore(tmp_path)
    assert store.read_status() is None
    store.write_status({"round": 1, "devices": {"a": 1}, "loss": float("inf")})
    store.write_status({"round": 2, "loss": float("nan")})
    assert store.read_status() == {"round": 2, "loss": None}
    assert names(tmp_path) == ["status.json"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe"])
def test_a_damaged_status_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "status.json").write_bytes(content)
    sentence = refusal_of(ServerStore(tmp_path).read_status)
    assert sentence.startswith(f"'{tmp_path / 'status.json'}' is not a usable status (")


# The lock


@pytest.mark.slow
def test_a_second_server_is_refused_with_the_process_of_the_first(tmp_path: Path) -> None:
    store = ServerStore(tmp_path / "server")
    with store.lock():
        script = (
            "import sys\nfrom codedfl.errors import InputError\nfrom codedfl.federation._store import ServerStore\n"
            "try:\n    with ServerStore(sys.argv[1]).lock(): pass\nexcept InputError as error: print(error)\n"
        )
        command = [sys.executable, "-c", script, str(store.folder)]
        other = subprocess.run(command, check=True, capture_output=True, text=True)
        assert other.stdout == (
            f"'{store.folder}' is in use by the server with process id {os.getpid()}: wait for it, stop it, or choose another"
            " folder.\n"
        )
        with pytest.raises(InputError, match="is in use by"), ServerStore(store.folder).lock():
            pass
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == ""


@pytest.mark.slow
def test_a_killed_server_holds_no_lock(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\nfrom codedfl.federation._store import ServerStore\n"
        "with ServerStore(sys.argv[1]).lock(): os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    with ServerStore(tmp_path).lock():
        assert (tmp_path / "lock").read_text() == str(os.getpid())


def test_the_lock_ends_with_its_block_even_by_an_exception(tmp_path: Path) -> None:
    store = ServerStore(tmp_path)
    with pytest.raises(RuntimeError, match="inside"), store.lock():
        raise RuntimeError("inside")
    with store.lock():
        pass


def test_an_error_inside_the_lock_is_not_taken_for_one_of_the_lock(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="inside"), ServerStore(tmp_path).lock():
        raise FileNotFoundError("inside")
