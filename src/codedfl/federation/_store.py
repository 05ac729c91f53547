"""The folder of a server: uploads, checkpoints, events and status, none of which a crash or a full disk may destroy."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from codedfl._messages import shown
from codedfl.errors import InputError
from codedfl.federation._locks import locked
from codedfl.files import PRIVATE, Arrays, open_atomically, read_npz, remove_leftovers, sync_folder, write_atomically
from codedfl.identity import identity
from codedfl.uploads import Received

_CHECKPOINT = re.compile(r"checkpoint-([0-9]+)\.npz")
_DEVICE = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ARRAY = "array."
"""Prefix of the names of arrays in a file, so that none is taken for the values or the checksum."""


def state_folder(folder: Path) -> Path:
    """Return the folder in which the server keeps its progress."""
    return folder / "server" / "state"


@dataclass
class NewEvents:
    """Reads events as they are written; each is read once.

    Args:
        path: ``events.jsonl``, which may not be there yet.
    """

    path: Path
    _read: int = field(init=False, repr=False, default=0)

    def read_new(self) -> list[dict[str, Any]]:
        """Return the events since the last call, without lines that a crash cut off."""
        if not self.path.is_file():
            return []
        events = []
        with self.path.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    break  # it is still being written
                self._read += len(line)
                try:
                    event = json.loads(line)
                except ValueError:
                    continue
                if isinstance(event, dict):
                    events.append(event)
        return events


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Where training stood after a round.

    Args:
        round: rounds completed.
        arrays: arrays by name.
        values: plain values by name.
        note: a sentence for the user if this is not the newest checkpoint, because that one is damaged; otherwise empty.
    """

    round: int
    arrays: Mapping[str, npt.NDArray[Any]]
    values: Mapping[str, Any]
    note: str = ""


class ServerStore:
    """Everything that a server must not lose.

    The folder holds ``uploads/<device>.npz``, two files ``checkpoint-<round>.npz``, ``events.jsonl`` and ``status.json``. Every
    file but the events takes its name only when it is complete and on disk; uploads and checkpoints carry a checksum. The folder
    is made when something is first written to it.

    Args:
        folder: the folder.

    Raises:
        InputError: by every method that writes, if that fails; what was there before is still there.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self._damaged: set[Path] = set()

    # Uploads ---------------------------------------------------------------------------------------------------------

    def put_upload(self, device: str, upload: Received) -> None:
        """Keep the upload of a device, readable by the owner of the folder only."""
        path = self._upload_path(device)
        values = {
            "device": device,
            "kind": upload.kind,
            "noise_variance": upload.noise_variance,
            "label_noise_variance": upload.label_noise_variance,
            "rows": upload.rows,
        }
        _write_sealed(path, upload.arrays, values)

    def has_upload(self, device: str) -> bool:
        """Return whether the upload of a device has been kept."""
        return self._upload_path(device).is_file()

    def upload(self, device: str, kind: str) -> Received:
        """Return the upload of a device, with read-only arrays.

        Args:
            device: its name.
            kind: name of the upload that it must be.

        Raises:
            InputError: there is none, or it is damaged.
        """
        path = self._upload_path(device)
        try:
            arrays, values = _read_sealed(path)
            if values["device"] != device:
                raise ValueError(f"it is that of device {shown(values['device'])}")
            if values["kind"] != kind:
                raise ValueError(f"it is of the kind {shown(values['kind'])}, not {shown(kind)}")
            upload = Received(
                arrays, values["noise_variance"], values["label_noise_variance"], values["rows"], values["kind"]
            )
        except (ValueError, KeyError) as error:
            raise InputError(
                f"{shown(path)} is not a usable upload of device {shown(device)} ({_reason(error)}): delete it and resume, and"
                " the device sends the same upload again."
            ) from error
        for array in arrays.values():
            array.flags.writeable = False
        return upload

    def _upload_path(self, device: str) -> Path:
        if not _DEVICE.fullmatch(device):
            raise InputError(
                f"device {shown(device)} must have a name of 1 to 64 letters, digits, dots, dashes or underscores."
            )
        return self.folder / "uploads" / f"{device}.npz"

    # Checkpoints -----------------------------------------------------------------------------------------------------

    def save(self, round: int, arrays: Mapping[str, npt.NDArray[Any]], values: Mapping[str, Any]) -> None:
        """Write a checkpoint, keep the last one of an earlier round, and delete the others.

        Checkpoints of later rounds are deleted too: training that continues before them has found them damaged.

        Args:
            round: rounds completed.
            arrays: arrays by name.
            values: plain values by name, anything that JSON can hold.
        """
        path = self.folder / f"checkpoint-{round}.npz"
        _write_sealed(path, arrays, {"round": round, "values": dict(values)})
        self._damaged.discard(path)
        others = [other for other in self._checkpoints() if other != path]
        older = next((other for other in others if _round_of(other) < round and other not in self._damaged), None)
        with _writing(path):
            for other in others:
                if other != older:
                    other.unlink(missing_ok=True)
                    self._damaged.discard(other)

    def load(self) -> Checkpoint | None:
        """Return the newest checkpoint that is undamaged, or None if none was ever written.

        Raises:
            InputError: all of them are damaged.
        """
        problems: dict[Path, str] = {}
        for path in self._checkpoints():
            try:
                arrays, values = _read_sealed(path)
                if values["round"] != _round_of(path):
                    raise ValueError(f"it is that of round {shown(values['round'])}")
                content = values["values"]
            except (ValueError, KeyError) as error:
                problems[path] = _reason(error)
                self._damaged.add(path)
                continue
            return Checkpoint(_round_of(path), arrays, content, _note(problems, path))
        if problems:
            damage = " and ".join(f"{shown(path)} ({problem})" for path, problem in problems.items())
            raise InputError(
                f"no checkpoint can be used, {damage}: restore one from a backup, or delete them to train again from the start"
                " with the uploads that are kept."
            )
        return None

    def _checkpoints(self) -> list[Path]:
        """Return all checkpoints, the newest first."""
        found = [path for path in self.folder.glob("checkpoint-*.npz") if _CHECKPOINT.fullmatch(path.name)]
        return sorted(found, key=_round_of, reverse=True)

    # Events and status -----------------------------------------------------------------------------------------------

    def append_event(self, event: Mapping[str, Any]) -> None:
        """Append one line to ``events.jsonl``; numbers that are not finite become null."""
        path = self.folder / "events.jsonl"
        with _writing(path), path.open("a+b") as file:
            file.write((b"" if _ends_a_line(file) else b"\n") + _plain_json(event).encode() + b"\n")

    def read_events(self) -> NewEvents:
        """Return a reader of the events, from the first on."""
        return NewEvents(self.folder / "events.jsonl")

    def events(self) -> list[dict[str, Any]]:
        """Return all events in order, without lines that a crash cut off."""
        return self.read_events().read_new()

    def write_status(self, status: Mapping[str, Any]) -> None:
        """Replace ``status.json``; numbers that are not finite become null."""
        path = self.folder / "status.json"
        with _writing(path):
            write_atomically(path, _plain_json(status, indent=2) + "\n")

    def read_status(self) -> dict[str, Any] | None:
        """Return the last status, or None if none was ever written.

        Raises:
            InputError: the file is damaged.
        """
        path = self.folder / "status.json"
        if not path.is_file():
            return None
        try:
            status = json.loads(path.read_bytes())
            if not isinstance(status, dict):
                raise ValueError("it is not a JSON object")
        except (OSError, ValueError) as error:
            raise InputError(
                f"{shown(path)} is not a usable status ({_reason(error)}): delete it, and the server writes it again."
            ) from error
        return status

    # One server at a time ----------------------------------------------------------------------------------------------

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other servers out of the folder, and remove what a killed one left half written.

        The lock ends with the process, however that ends.

        Raises:
            InputError: another server holds it.
        """
        path = self.folder / "lock"

        def in_use(descriptor: int) -> InputError:
            holder = os.read(descriptor, 20).decode("ascii", "replace").strip()
            return InputError(
                f"{shown(self.folder)} is in use by the server with process id {holder or 'unknown'}: wait for it, stop it,"
                " or choose another folder."
            )

        with ExitStack() as stack:
            with _writing(path):
                descriptor = stack.enter_context(locked(path, in_use))
                os.ftruncate(descriptor, 0)
                os.write(descriptor, str(os.getpid()).encode())
                remove_leftovers(self.folder)
            yield


def _write_sealed(path: Path, arrays: Mapping[str, npt.NDArray[Any]], values: Mapping[str, Any]) -> None:
    """Write arrays and values with their checksum, readable by their owner only."""
    text = json.dumps(values, sort_keys=True, default=_plain_number).encode()
    content: Arrays = {f"{_ARRAY}{name}": np.asarray(array) for name, array in arrays.items()}
    content["values"] = np.frombuffer(text, np.uint8)
    content["checksum"] = np.array(identity(content))
    with _writing(path):
        # Straight into the file: an upload can be larger than what is left of the memory.
        with open_atomically(path, PRIVATE) as file:
            np.savez(file, allow_pickle=False, **content)
        sync_folder(path.parent)


def _read_sealed(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """Read what `_write_sealed` wrote.

    Raises:
        ValueError: the file is damaged.
    """
    content = read_npz(path, required=("values", "checksum"), optional=None)
    if str(content.pop("checksum")) != identity(content):
        raise ValueError("its content does not match its checksum")
    values = json.loads(content.pop("values").tobytes())
    if not isinstance(values, dict):
        raise ValueError("its values have no names")
    return {name.removeprefix(_ARRAY): array for name, array in content.items()}, values


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Make the folder of a file, and turn a failure to write into one sentence."""
    try:
        # A folder that exists is left as it is: its owner may let others read status and events.
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise InputError(
            f"{shown(path)} cannot be written ({_reason(error)}): free space on its disk or make its folder writable, then"
            " resume; nothing that was written before is lost."
        ) from error


def _round_of(path: Path) -> int:
    return int(path.stem.removeprefix("checkpoint-"))


def _note(problems: Mapping[Path, str], used: Path) -> str:
    if not problems:
        return ""
    damage = " and ".join(f"{shown(path)} is damaged ({problem})" for path, problem in problems.items())
    return f"{damage}, so training continues from {used.name}."


def _reason(error: BaseException) -> str:
    """Return what is wrong in a few words: the first cause, without the sentences around it."""
    while isinstance(error, InputError) and error.__cause__ is not None:
        error = error.__cause__
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return (text.strip() or type(error).__name__).splitlines()[0].rstrip(". ")[:200]


def _ends_a_line(file: BinaryIO) -> bool:
    """Return whether a file is empty or its last line complete; the next write goes to the end in any case."""
    if file.seek(0, os.SEEK_END) == 0:
        return True
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


def _plain_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(_without_non_finite(value), indent=indent, default=_plain_number, allow_nan=False)


def _without_non_finite(value: Any) -> Any:
    """Return a value that JSON proper can hold: it has neither NaN nor infinities."""
    if isinstance(value, Mapping):
        return {key: _without_non_finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_non_finite(item) for item in value]
    return None if isinstance(value, float | np.floating) and not math.isfinite(value) else value


def _plain_number(value: object) -> object:
    """Let JSON write numpy's numbers as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON")
