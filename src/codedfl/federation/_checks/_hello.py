"""Checks of how a device introduces itself."""

from __future__ import annotations

from dataclasses import dataclass

from codedfl.federation._checks._fields import number, require_names, require_same, text, whole
from codedfl.federation.transport import Packet
from codedfl.uploads import LARGEST_PRODUCT

MOST_SAMPLES = 2**40
LONGEST_VERSION = 64


@dataclass(frozen=True)
class Hello:
    """How a device introduces itself.

    Args:
        samples: ``l_i``, the samples that it trains on.
        smoothness: the largest eigenvalue of its Hessian, if it says so.
        choice: the item of the contract's menu that it accepts, from 0; None if it accepts none.
        joins: whether it takes part; False if it declines the contract.
        version: that of its software, empty if it does not say.
    """

    samples: int
    smoothness: float | None
    choice: int | None
    joins: bool
    version: str


def checked_hello(packet: Packet, *, device: str, prescription: str, menu_items: int = 0) -> Hello:
    """Check how a device introduces itself.

    It holds the values ``device``, ``prescription``, ``samples`` and, if the device likes, ``smoothness``, ``version`` and
    ``choice``: the index of a menu item, or -1 to decline the contract.

    Args:
        packet: the message.
        device: the name of the device that it comes from.
        prescription: fingerprint of what all devices must agree on.
        menu_items: how many items of a contract were offered.

    Raises:
        BadMessage: it is anything else.

    Example:
        >>> packet = Packet({}, {"device": "north", "prescription": "ab12", "samples": 360, "choice": -1})
        >>> checked_hello(packet, device="north", prescription="ab12")
        Hello(samples=360, smoothness=None, choice=None, joins=False, version='')
        >>> checked_hello(packet, device="south", prescription="ab12")
        Traceback (most recent call last):
        codedfl.federation._checks._fields.BadMessage: device = 'north', expected 'south'.
    """
    require_names("array", packet.arrays, ())
    values = packet.values
    require_names("value", values, ("device", "prescription", "samples"), ("smoothness", "choice", "version"))
    require_same("device", values, device)
    require_same("prescription", values, prescription)
    samples = whole("samples", values, 1, MOST_SAMPLES)
    smoothness = number("smoothness", values, LARGEST_PRODUCT, positive=True) if "smoothness" in values else None
    choice = whole("choice", values, -1, menu_items - 1) if "choice" in values else None
    version = text("version", values, LONGEST_VERSION) if "version" in values else ""
    declines = choice == -1
    return Hello(samples, smoothness, None if declines else choice, not declines, version)
