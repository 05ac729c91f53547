"""The roster: which devices joined, and what they said about themselves."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from codedfl._messages import shown
from codedfl.errors import InputError
from codedfl.federation._checks import Hello
from codedfl.federation._standing import Standing
from codedfl.files import write_atomically
from codedfl.typing import IntArray


@dataclass(frozen=True)
class Roster:
    """The devices of a run, fixed once everybody has joined.

    Args:
        names: in the order of the federation.
        samples: ``l_i`` of each.
        smoothness: the largest eigenvalue of each device's Hessian, if asked for.
        uploads: whether each is to upload; one that declined the contract is not.
        items: the item of the contract that each picked, from 0; -1 for none.
        seed: the server's own randomness, which devices never see.
        prescription: fingerprint of what was agreed on.
    """

    names: tuple[str, ...]
    samples: tuple[int, ...]
    smoothness: tuple[float, ...]
    uploads: tuple[bool, ...]
    items: tuple[int, ...]
    seed: int
    prescription: str

    @classmethod
    def of(cls, hellos: dict[str, Hello], order: tuple[str, ...], seed: int, prescription: str) -> Roster:
        """Return the roster of the devices that introduced themselves."""
        names = tuple(name for name in order if name in hellos)
        return cls(
            names,
            tuple(hellos[name].samples for name in names),
            tuple(hellos[name].smoothness or 0.0 for name in names),
            tuple(hellos[name].joins for name in names),
            tuple(-1 if (choice := hellos[name].choice) is None else choice for name in names),
            seed,
            prescription,
        )

    @property
    def sizes(self) -> IntArray:
        """``l_i``, (N,)."""
        return np.array(self.samples, np.int64)

    def index(self, name: str) -> int:
        """Return the index of a device."""
        return self.names.index(name)

    def uploading(self, standing: Standing) -> tuple[str, ...]:
        """Return the devices that are to upload and are not excluded."""
        expected = zip(self.names, self.uploads, strict=True)
        return tuple(name for name, uploads in expected if uploads and not standing.is_excluded(name))

    def write(self, path: Path) -> None:
        """Write it, atomically."""
        write_atomically(path, json.dumps(asdict(self), indent=2))

    @classmethod
    def read(cls, path: Path, prescription: str) -> Roster | None:
        """Read it back; None if nobody has joined yet.

        Raises:
            InputError: the file is damaged, or belongs to a federation that has been changed since.
        """
        if not path.is_file():
            return None
        try:
            values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            fields: dict[str, Any] = {
                key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
            }
            roster = cls(**fields)
        except (ValueError, TypeError, AttributeError) as error:
            raise InputError(f"{shown(path)} is damaged ({error}): delete it, and devices join again.") from error
        if roster.prescription != prescription:
            raise InputError(
                f"federation.toml has been changed since the devices joined, which {shown(path)} records: undo the change, or"
                " begin again with an empty server/state folder."
            )
        return roster
