"""What a device released and remembers, on its own disk: nothing is drawn twice, and all of it is there before it is sent."""

from __future__ import annotations

import io
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from codedfl._messages import shown
from codedfl.errors import InputError
from codedfl.federation._locks import locked
from codedfl.files import PRIVATE, Arrays, make_private_folder, open_atomically, read_npz, sync_folder
from codedfl.training import record_arrays, record_from

_KEY = re.compile(r"[0-9a-f]{8,128}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_MEMBER = "array."
"""Before the names in an archive, so that an array may have any name."""


class Vault:
    """The folder in which a device keeps what it released, its secrets and the state of protocols.

    A release is stored before it is sent: a crash in between repeats the same data. While one process draws, another one that
    wants the same release waits, also if the first is killed meanwhile. Everything is readable by the owner alone.

    Args:
        folder: created if it is missing, and closed to others if it is open.

    Raises:
        InputError: the folder or a file in it cannot be written, or a file is damaged.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     vault = Vault(folder)
        ...     first = vault.release("c0ded123", lambda: {"x": np.random.default_rng().random(2)})
        ...     again = vault.release("c0ded123", lambda: {"x": np.random.default_rng().random(2)})
        >>> bool((first["x"] == again["x"]).all())
        True
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        with refusing_failure(self.folder):
            make_private_folder(self.folder)

    def __repr__(self) -> str:
        return f"Vault({str(self.folder)!r})"

    def stored(self, key: str) -> Arrays | None:
        """Return the stored arrays of a release; None if there are none.

        Raises:
            InputError: the stored file is damaged.
        """
        path = self._release_file(key)
        return _read_release(path, key) if path.exists() else None

    def release(self, key: str, make: Callable[[], Mapping[str, npt.NDArray[Any]]]) -> Arrays:
        """Return the stored arrays of a release; if there are none, make them, store them and return them.

        Args:
            key: identity of the release, in hexadecimal digits.
            make: draws the arrays; called at most once, and by one process at a time. What it draws is lost if it raises.

        Raises:
            InputError: the stored file is damaged. The arrays are not made again: another encoding of the same data would
                reveal more of it.
        """
        path = self._release_file(key)
        with self._locked(path):
            if path.exists():
                return _read_release(path, key)
            arrays = {name: np.asarray(array, order="C") for name, array in make().items()}
            members = {f"{_MEMBER}{name}": array for name, array in arrays.items()}
            with open_privately(path) as file:
                np.savez(file, allow_pickle=False, checksum=np.array(_release_checksum(key, arrays)), **members)
            return arrays

    def secret(self, name: str, size: int) -> bytes:
        """Return a secret of ``size`` bytes, drawn from the operating system at the first call and kept since."""
        path = self._file("secret", name)
        with self._locked(path):
            if not path.exists():
                _write_checked(path, secrets.token_bytes(size))
            found = _read_checked(path, "delete it to draw a new one, if nothing that was sent depends on it")
        if len(found) != size:
            raise InputError(
                f"the secret {shown(path)} has {len(found)} bytes where {size} are wanted: use another name."
            )
        return found

    def put(self, name: str, content: bytes) -> None:
        """Store the state of a protocol, in place of an earlier one; a crash leaves the one or the other."""
        path = self._file("state", name)
        with self._locked(path):
            _write_checked(path, content)

    def get(self, name: str) -> bytes | None:
        """Return what `put` stored last; None if there is nothing."""
        path = self._file("state", name)
        return (
            _read_checked(path, "restore it from a backup, or delete it to start that protocol again")
            if path.exists()
            else None
        )

    def _release_file(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise InputError(f"key = {shown(key)} is no identity: give 8 to 128 hexadecimal digits in lower case.")
        return self.folder / f"release-{key}.npz"

    def _file(self, kind: str, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise InputError(
                f"name = {shown(name)} cannot be that of a file: give letters, digits, dots, dashes and underscores."
            )
        return self.folder / f"{kind}-{name}.bin"

    @contextmanager
    def _locked(self, path: Path) -> Iterator[None]:
        """Wait for the right to write a file."""
        with ExitStack() as stack:
            with refusing_failure(path):
                stack.enter_context(locked(path.with_name(f"{path.name}.lock")))
            # Random parts have 8 characters, so that no leftover of another file matches.
            for leftover in self.folder.glob(f".{path.name}.????????.tmp"):
                leftover.unlink(missing_ok=True)
            yield


def digest_of(arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    """Return the SHA-256 digest of named arrays, in hexadecimal digits, without a copy of them.

    Example:
        >>> digest_of({"x": np.zeros(2)})[:8], digest_of({"x": np.zeros((2, 1))})[:8]
        ('3b8458a8', '3683148c')
    """
    digest = sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name], order="C")
        if array.dtype.hasobject:
            raise TypeError(f"an array of {array.dtype} has no digest")
        header = f"{name}\0{array.dtype.str}{array.shape}".encode()
        digest.update(len(header).to_bytes(8, "little") + header)
        digest.update(array.reshape(-1).view(np.uint8).data if array.size else b"")
    return digest.hexdigest()


@contextmanager
def open_privately(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that only its owner can read, and that takes its name once it is complete and on disk.

    The name is on disk as well afterwards: what is sent next relies on it.

    Raises:
        InputError: the file cannot be written.
    """
    with refusing_failure(path):
        with open_atomically(path, PRIVATE) as file:
            yield file
        sync_folder(path.parent)


@contextmanager
def refusing_failure(path: Path) -> Iterator[None]:
    """Turn an error of the system into one sentence."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{shown(path)} cannot be written ({error.strerror or error}): free space on its disk, or check who may write there; "
            "nothing was sent."
        ) from error


def _release_checksum(key: str, arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    """Return a checksum that a file renamed to another key does not pass."""
    return sha256(f"{key}\0{digest_of(arrays)}".encode()).hexdigest()


def _read_release(path: Path, key: str) -> Arrays:
    try:
        members = read_npz(path, required=("checksum",), optional=None)
        checksum = str(members.pop("checksum"))
        arrays = {name.removeprefix(_MEMBER): array for name, array in members.items()}
        if len(arrays) == len(members) and checksum == _release_checksum(key, arrays):
            return arrays
    except (InputError, OSError, TypeError) as error:
        raise _damaged_release(path) from error
    raise _damaged_release(path)


def _damaged_release(path: Path) -> InputError:
    return InputError(
        f"the stored release {shown(path)} is damaged, and this device does not encode again by itself, as a second encoding of "
        "the same data reveals more of it: restore the file from a backup, or delete it, which makes the next upload one more "
        "release in the ledger and in policy.most_uploads."
    )


def _write_checked(path: Path, content: bytes) -> None:
    with open_privately(path) as file:
        file.write(_checksum(path, content))
        file.write(content)


def _read_checked(path: Path, fix: str) -> bytes:
    try:
        stored = path.read_bytes()
    except OSError as error:
        raise InputError(f"{shown(path)} cannot be read ({error.strerror}): check who may read it.") from error
    checksum, content = stored[:32], stored[32:]
    if checksum != _checksum(path, content):
        raise InputError(f"{shown(path)} is damaged: {fix}.")
    return content


def _checksum(path: Path, content: bytes) -> bytes:
    return sha256(path.name.encode() + b"\0" + content).digest()


NEVER = -1
"""Stands for a round in which no message of a device has been counted yet."""


@dataclass(frozen=True)
class Memory:
    """Two memories: the one that the last counted message left, and the one that the last message would leave.

    A device moves on once the next request says that its message was counted. A message that came late, or that a server forgot
    when it was killed, leaves no trace, so device and server never disagree about what was added up.

    Args:
        vault: the disk of the device.
        federation: the fingerprint of what devices agreed on: another federation has another memory.
        first: the memory before the first round, whose shapes all others have.
    """

    vault: Vault
    federation: str
    first: Any

    @property
    def _name(self) -> str:
        return f"memory-{self.federation[:16]}"

    def at(self, counted: int) -> Any:
        """Return the memory with which to compute, given the round of the last message that was counted.

        Raises:
            InputError: the server has counted a message that this device does not remember.
        """
        rounds, memories = self._kept()
        if counted not in rounds:
            raise InputError(
                f"counted = {shown(counted)} is not a round that this device remembers, only {rounds[0]} and {rounds[1]}: its"
                " state folder is not the one that it had then; begin the federation again under another name."
            )
        return memories[rounds.index(counted)]

    def keep(self, counted: int, round: int, memory: Any) -> None:
        """Keep what the message of a round leaves, besides what the last counted one left."""
        now = self.at(counted)
        arrays = {"rounds": np.array([counted, round])}
        arrays |= record_arrays("now", now) | record_arrays("next", memory)
        content = io.BytesIO()
        np.savez(content, allow_pickle=False, **arrays)
        self.vault.put(self._name, content.getvalue())

    def _kept(self) -> tuple[list[int], tuple[Any, Any]]:
        content = self.vault.get(self._name)
        if content is None:
            return [NEVER, NEVER], (self.first, self.first)
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays = dict(file)
        rounds = [int(round) for round in arrays["rounds"]]
        return rounds, (record_from("now", arrays, self.first), record_from("next", arrays, self.first))
