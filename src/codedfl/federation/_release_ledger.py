"""The ledger of a device: everything that it ever released, in a chain of lines that shows what is missing or altered."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from codedfl._messages import shown
from codedfl._validation import require_at_least, require_non_negative
from codedfl.errors import InputError
from codedfl.federation._locks import locked
from codedfl.federation._vault import open_privately
from codedfl.files import sync_folder
from codedfl.privacy import CodedMechanism, GaussianMechanism, Mechanism, epsilon_of

UPLOAD, UPDATE, REPEAT, TORN = "upload", "update", "repeat", "torn"
"""Kinds of entries with a meaning of their own; a device may use others, such as "evaluation" and "answer"."""

_START = "0" * 64
_KIND = re.compile(r"[a-z][a-z-]{0,31}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One line of the ledger.

    Args:
        sequence: number of the line, from 1.
        time: when it was written, in UTC.
        kind: what was released: ``upload``, ``update``, ``evaluation``, ``answer`` and so on; ``repeat`` for what had been sent
            before, ``torn`` for a line that a crash cut short, so that nothing was sent.
        federation: name of the federation that it was sent to.
        round: round of training; None outside of rounds.
        size_bytes: size of what was sent.
        noise_variance: noise in every number about features; None if that has no meaning.
        label_noise_variance: the same about labels.
        epsilon: worst-case privacy loss in nats; None if it is unknown or unbounded.
        key: identity of an upload or of a private update; empty for everything else.
        digest: SHA-256 digest of what was sent.
        previous: SHA-256 hash of the previous line.
        mu: sensitivity over noise, of a Gaussian mechanism whose releases add up by ``mu^2``; None for everything else.
        coded: arguments of the `CodedMechanism` that it is and that all devices agreed on; lines of anything else have none.
    """

    sequence: int
    time: str
    kind: str
    federation: str
    round: int | None
    size_bytes: int
    noise_variance: float | None
    label_noise_variance: float | None
    epsilon: float | None
    key: str
    digest: str
    previous: str
    mu: float | None = None  # lines of earlier versions have none
    coded: dict[str, Any] | None = None

    @property
    def mechanism(self) -> Mechanism | None:
        """The mechanism that it is; see `mechanism_of`."""
        return mechanism_of(self.mu, self.coded)

    def line(self) -> bytes:
        """Return the entry as a line of JSON."""
        values = {name: getattr(self, name) for name in _NAMES}
        if self.coded is None:
            del values["coded"]
        return json.dumps(values, separators=(",", ":"), allow_nan=False).encode() + b"\n"


_NAMES = tuple(item.name for item in fields(LedgerEntry))


def mechanism_of(mu: float | None, coded: Mapping[str, Any] | None = None) -> Mechanism | None:
    """Return the mechanism that a line is about, with which others compose; None if there is an epsilon at most."""
    if coded is not None:
        return CodedMechanism(**coded)
    if mu is None:
        return None
    return GaussianMechanism(1 / mu if mu > 0 else math.inf)


def recorded(mechanism: Mechanism | None) -> dict[str, Any]:
    """Return a mechanism as a line has it: Gaussian ones by ``mu``."""
    if mechanism is None or mechanism.mu is not None:
        return {"mu": None if mechanism is None else mechanism.mu}
    return {"mu": None, "coded": asdict(mechanism)}


class ReleaseLedger:
    """The append-only ledger of a device, one JSON object per line.

    Every line has the hash of the one before, and a second file, ``{name}.head``, the number and the hash of the last one. So a
    line that is altered, swapped or removed shows when the ledger is opened, the last ones included, but not if somebody
    rewrites both files from there on: the ledger is evidence for its owner, not against its owner.

    A line is on disk before `append` returns, so call it before sending. A line that a crash cut short was never sent; opening
    the ledger replaces it by a line of the kind ``torn``. Several processes may append at the same time.

    Args:
        path: the file; created if it is missing.

    Raises:
        InputError: the ledger does not verify, or cannot be read or written.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     ledger = ReleaseLedger(Path(folder) / "ledger.jsonl")
        ...     for _ in range(2):
        ...         entry = ledger.append("upload", federation="wards", size_bytes=8, digest="ab" * 32, key="c0de", epsilon=1.5)
        ...         print(entry.sequence, entry.kind)
        ...     ledger.uploads(), ledger.updates(), ledger.other_epsilon()
        1 upload
        2 repeat
        (('c0de',), 0, 1.5)
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.head = self.path.with_name(f"{self.path.name}.head")
        self._end = self._lines = self._updates = 0
        self._last = _START
        self._uploads: dict[tuple[str, str], None] = {}
        self._private_updates: set[tuple[str, str]] = set()
        self._losses: dict[tuple[str, str], _Loss] = {}  # by federation and kind
        self._gaussian: dict[str, float] = {}
        self._coded: dict[str, list[Mechanism]] = {}
        with self._opened() as descriptor:
            head = self._read_head(os.fstat(descriptor).st_size)
            self._catch_up(descriptor, head)
            if head != (self._lines, self._last):
                self._write_head()

    def __len__(self) -> int:
        """Return the number of lines."""
        return self._lines

    def __iter__(self) -> Iterator[LedgerEntry]:
        """Read the entries that are known to this object, from the first to the last."""
        with self.path.open("rb") as file:
            for number in range(1, self._lines + 1):
                yield self._parsed(file.readline(), number)

    def updates(self) -> int:
        """Return how many updates were sent."""
        return self._updates

    def uploads(self) -> tuple[str, ...]:
        """Return the keys of all distinct uploads, in order; a key comes twice if its upload was drawn a second time."""
        return tuple(key for key, _ in self._uploads)

    def upload_epsilon(self, delta: float = 1e-5) -> float | None:
        """Return the epsilon of all uploads and private updates together; None if that of an upload is unknown.

        Mechanisms that all devices of a federation agreed on compose, at ``delta``; the epsilons of all other uploads are added.
        Updates in the clear and answers have no epsilon.
        """
        uploads = _total(loss for (_, kind), loss in self._losses.items() if kind == UPLOAD)
        return None if uploads is None else uploads + epsilon_of(self.mechanisms(), delta)

    def other_epsilon(self, federation: str | None = None) -> float | None:
        """Return the sum of the epsilons of all releases but those of `mechanisms`; None if one is unknown.

        Args:
            federation: name of the federation that they were sent to; None for all.
        """
        return _total(loss for (to, _), loss in self._losses.items() if federation in (None, to))

    def gaussian_mu(self, federation: str | None = None) -> float:
        """Return ``mu`` of all releases by Gaussian mechanisms together, to one federation or to all."""
        squares = self._gaussian.values() if federation is None else (self._gaussian.get(federation, 0.0),)
        return math.sqrt(sum(squares))

    def mechanisms(self, federation: str | None = None) -> tuple[Mechanism, ...]:
        """Return the agreed mechanisms of all releases to one federation or to all, Gaussian ones as one."""
        gaussian = mechanism_of(self.gaussian_mu(federation))
        assert gaussian is not None
        return gaussian, *(each for to, some in self._coded.items() if federation in (None, to) for each in some)

    def has(self, kind: str, key: str, digest: str) -> bool:
        """Tell whether an upload or a private update with this content is in the ledger."""
        return (key, digest) in (self._uploads if kind == UPLOAD else self._private_updates)

    def append(
        self,
        kind: str,
        *,
        federation: str,
        size_bytes: int,
        digest: str,
        round: int | None = None,
        key: str = "",
        noise_variance: float | None = None,
        label_noise_variance: float | None = None,
        epsilon: float | None = None,
        mechanism: Mechanism | None = None,
    ) -> LedgerEntry:
        """Record a release, before it is sent.

        An upload or a private update that was recorded before, with the same key and digest, is recorded as ``repeat``: it
        reveals nothing new.

        Args:
            kind: what is released; ``repeat`` and ``torn`` cannot be asked for.
            federation: name of the federation.
            size_bytes: size of what is sent.
            digest: SHA-256 digest of what is sent, in hexadecimal digits.
            round: round of training.
            key: identity of an upload or of a private update.
            noise_variance: noise in every number about features.
            label_noise_variance: noise in every number about labels.
            epsilon: worst-case privacy loss; None or infinite if there is no bound, 0 for what depends on no data.
            mechanism: what it is by agreement of all devices, so that it composes with others; None if there is an epsilon alone.

        Returns:
            The entry as it was recorded.

        Raises:
            InputError: a value is out of range, or the ledger cannot be written; then nothing may be sent.
        """
        if not _KIND.fullmatch(kind) or kind in (REPEAT, TORN):
            raise InputError(
                f"kind = {shown(kind)} is not possible: give a word such as 'upload', 'update' or 'evaluation'."
            )
        if not _DIGEST.fullmatch(digest):
            raise InputError(
                f"digest = {shown(digest)} is no SHA-256 digest: give 64 hexadecimal digits in lower case."
            )
        require_at_least("size_bytes", size_bytes, 0)
        if round is not None:
            require_at_least("round", round, 0)
        if epsilon == math.inf:
            epsilon = None
        numbers = {
            "noise_variance": noise_variance,
            "label_noise_variance": label_noise_variance,
            "epsilon": epsilon,
        }
        for name, value in numbers.items():
            if value is not None:
                require_non_negative(name, value)
                numbers[name] = float(value)
        with self._opened() as descriptor:
            self._catch_up(descriptor)
            if (kind == UPLOAD or (kind == UPDATE and mechanism is not None)) and self.has(kind, key, digest):
                kind = REPEAT
            whole = None if round is None else int(round)
            values = {"kind": kind, "federation": federation, "round": whole, "size_bytes": int(size_bytes), **numbers}
            return self._append(descriptor, {**values, **recorded(mechanism), "key": key, "digest": digest})

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """Open the file and keep other processes from writing."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            is_new = not self.path.exists()
            with locked(self.path, flags=os.O_APPEND) as descriptor:
                if is_new:
                    sync_folder(self.path.parent)
                yield descriptor
        except OSError as error:
            raise InputError(
                f"the ledger {shown(self.path)} cannot be written ({error.strerror or error}): free space on its disk, or check "
                "who may write there; nothing was sent."
            ) from error

    def _catch_up(self, descriptor: int, head: tuple[int, str] = (0, _START)) -> None:
        """Verify the lines that are not known yet, and note a last one that is torn.

        Args:
            descriptor: the file.
            head: number and hash of a line that must be there.
        """
        if os.fstat(descriptor).st_size < self._end:
            raise self._refusal("its last lines are missing")
        torn = b""
        with self.path.open("rb") as file:
            file.seek(self._end)
            for line in file:
                if not line.endswith(b"\n"):
                    torn = line
                    break
                self._accept(line)
                if self._lines == head[0] and self._last != head[1]:
                    raise self._refusal(f"line {self._lines} was altered")
        if self._lines < head[0]:
            raise self._refusal(f"it has {self._lines} of at least {head[0]} lines")
        if torn:
            os.ftruncate(descriptor, self._end)
            values = dict.fromkeys(("round", "noise_variance", "label_noise_variance", "epsilon", "mu"))
            about = {
                "kind": TORN,
                "federation": "",
                "size_bytes": len(torn),
                "key": "",
                "digest": sha256(torn).hexdigest(),
            }
            self._append(descriptor, {**values, **about})

    def _accept(self, line: bytes) -> LedgerEntry:
        """Take a complete line into account that follows the last one."""
        entry = self._parsed(line, self._lines + 1)
        if entry.sequence != self._lines + 1 or entry.previous != self._last:
            raise self._refusal(f"line {self._lines + 1} does not follow the line before it")
        self._end += len(line)
        self._lines += 1
        self._last = sha256(line).hexdigest()
        if entry.kind == UPDATE:
            self._updates += 1
            if entry.mu is not None:
                self._private_updates.add((entry.key, entry.digest))
        if entry.kind == UPLOAD:
            self._uploads[entry.key, entry.digest] = None
        if entry.kind in (REPEAT, TORN):
            return entry
        if entry.mu is not None:
            self._gaussian[entry.federation] = self._gaussian.get(entry.federation, 0.0) + entry.mu**2
        elif entry.mechanism is not None:
            self._coded.setdefault(entry.federation, []).append(entry.mechanism)
        else:
            self._losses.setdefault((entry.federation, entry.kind), _Loss()).add(entry.epsilon)
        return entry

    def _parsed(self, line: bytes, number: int) -> LedgerEntry:
        try:
            entry = LedgerEntry(**json.loads(line))
            well_typed = _is_well_typed(entry)
        except (TypeError, ValueError, RecursionError) as error:
            raise self._refusal(f"line {number} is not an entry") from error
        if not well_typed:
            raise self._refusal(f"line {number} is not an entry")
        return entry

    def _append(self, descriptor: int, values: dict[str, Any]) -> LedgerEntry:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        entry = LedgerEntry(sequence=self._lines + 1, time=now, previous=self._last, **values)
        line, start = entry.line(), self._end
        try:
            if os.write(descriptor, line) < len(line):
                raise OSError("the disk is full")
            os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, start)
            raise
        self._accept(line)
        self._write_head()
        return entry

    def _read_head(self, size: int) -> tuple[int, str]:
        """Return the number and the hash of a line that must be there: the last one, or one before it after a crash."""
        try:
            lines, last = self.head.read_text(encoding="ascii").split()
            return int(lines), last
        except FileNotFoundError as error:
            if size:
                raise self._refusal(f"its file {shown(self.head.name)} is missing") from error
            # Written before the first line, so that it can be missing beside an empty ledger alone.
            self._write_head()
            return 0, _START
        except ValueError as error:
            raise self._refusal(f"its file {shown(self.head.name)} is damaged") from error

    def _write_head(self) -> None:
        with open_privately(self.head) as file:
            file.write(f"{self._lines} {self._last}\n".encode())

    def _refusal(self, problem: str) -> InputError:
        return InputError(
            f"the ledger {shown(self.path)} does not verify, as {problem}: restore it and {shown(self.head.name)} from a backup, "
            "or move both away to begin a new one, knowing that earlier releases are then counted no more."
        )


def _is_well_typed(entry: LedgerEntry) -> bool:
    numbers = entry.noise_variance, entry.label_noise_variance, entry.epsilon, entry.mu
    return (
        isinstance(entry.kind, str)
        and isinstance(entry.key, str)
        and isinstance(entry.digest, str)
        and all(number is None or (isinstance(number, float) and 0 <= number < math.inf) for number in numbers)
        and (entry.coded is None or (entry.mu is None and entry.mechanism is not None))
    )


class _Loss:
    """A sum of epsilons, unknown as soon as one of them is."""

    def __init__(self) -> None:
        self._known, self._unknown = 0.0, False

    def add(self, epsilon: float | None) -> None:
        self._known += epsilon or 0.0
        self._unknown |= epsilon is None

    def total(self) -> float | None:
        return None if self._unknown else self._known


def _total(losses: Iterable[_Loss]) -> float | None:
    """Return the sum of sums of epsilons, None if one is unknown."""
    totals = [loss.total() for loss in losses]
    known = [total for total in totals if total is not None]
    return sum(known, 0.0) if len(known) == len(totals) else None
