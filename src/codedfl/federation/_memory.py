"""What a device remembers between rounds, where its scheme has a memory: on disk before anything is sent."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np

from codedfl._messages import shown
from codedfl.errors import InputError
from codedfl.federation._vault import Vault
from codedfl.training import record_arrays, record_from

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
