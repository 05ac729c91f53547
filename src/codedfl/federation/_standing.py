"""How every device has behaved so far, and who is excluded for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from codedfl._messages import shown
from codedfl._validation import require_at_least
from codedfl.errors import InputError

_LONGEST_REASON = 300


@dataclass(frozen=True)
class Conduct:
    """What one device has sent.

    Args:
        accepted: messages that were used.
        refused: messages that were not what they should have been.
        late: messages that were asked for and missed their deadline.
        refused_in_a_row: messages refused since the last accepted one.
        excluded: whether the device is asked no more; this is never taken back.
        last_reason: why its last refused message was refused.
    """

    accepted: int = 0
    refused: int = 0
    late: int = 0
    refused_in_a_row: int = 0
    excluded: bool = False
    last_reason: str = ""


class Standing:
    """Counts accepted, refused and late messages by device, and excludes a device after several bad ones in a row.

    Being late is no fault: it changes neither the count of refusals in a row nor the exclusion.

    Args:
        most_refusals: refused messages in a row at which a device is excluded.

    Example:
        >>> standing = Standing(most_refusals=2)
        >>> standing.refuse("north", "update has 6 value(s) such as nan, expected finite numbers.")
        False
        >>> standing.refuse("north", "round = 3, expected 4."), standing.is_excluded("north"), standing.is_excluded("south")
        (True, True, False)
    """

    def __init__(self, most_refusals: int) -> None:
        require_at_least("training.most_refusals", most_refusals, 1)
        self.most_refusals = most_refusals
        self._conduct: dict[str, Conduct] = {}

    def of(self, device: str) -> Conduct:
        """Return what is known about a device; nothing is held against one that is unknown."""
        return self._conduct.get(device, Conduct())

    def accept(self, device: str) -> None:
        """Count a message that is used, and forget refusals in a row."""
        before = self.of(device)
        self._conduct[device] = replace(before, accepted=before.accepted + 1, refused_in_a_row=0)

    def late(self, device: str) -> None:
        """Count a message that missed its deadline."""
        before = self.of(device)
        self._conduct[device] = replace(before, late=before.late + 1)

    def refuse(self, device: str, reason: str) -> bool:
        """Count a bad message.

        Returns:
            Whether the device is excluded.
        """
        before = self.of(device)
        in_a_row = before.refused_in_a_row + 1
        self._conduct[device] = replace(
            before,
            refused=before.refused + 1,
            refused_in_a_row=in_a_row,
            excluded=before.excluded or in_a_row >= self.most_refusals,
            last_reason=reason if len(reason) <= _LONGEST_REASON else f"{reason[:_LONGEST_REASON]}...",
        )
        return self._conduct[device].excluded

    def is_excluded(self, device: str) -> bool:
        """Return whether a device is asked no more."""
        return self.of(device).excluded

    @property
    def excluded(self) -> tuple[str, ...]:
        """The devices that are asked no more, in the order of their names."""
        return tuple(sorted(device for device, conduct in self._conduct.items() if conduct.excluded))

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Return all counts by device, as plain values for a checkpoint.

        Example:
            >>> standing = Standing(3)
            >>> standing.late("north")
            >>> Standing.from_dict(standing.to_dict(), most_refusals=3).of("north").late
            1
        """
        return {device: asdict(conduct) for device, conduct in sorted(self._conduct.items())}

    @classmethod
    def from_dict(cls, values: Mapping[str, Mapping[str, Any]], most_refusals: int) -> Standing:
        """Rebuild what `to_dict` returned.

        Raises:
            InputError: the values are none of its.
        """
        standing = cls(most_refusals)
        expected = {item.name: type(item.default) for item in fields(Conduct)}
        for device, counts in values.items():
            found = {name: type(value) for name, value in counts.items()} if isinstance(counts, Mapping) else None
            if found != expected:
                raise InputError(
                    f"the standing of device {shown(device)} is {shown(counts)}, which this version did not write: resume with"
                    " the version that wrote the checkpoint."
                )
            standing._conduct[device] = Conduct(**counts)
        return standing
