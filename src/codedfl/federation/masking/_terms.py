"""What all parties of a sum-only upload agree on beforehand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from codedfl._messages import listing, shown
from codedfl._validation import require_at_least
from codedfl.errors import InputError

_RING_BITS = 62
_MOST_FRACTION_BITS = 52


def default_threshold(devices: int) -> int:
    """Return the least number of devices of a sum: more than two thirds of ``devices``.

    Example:
        >>> [default_threshold(devices) for devices in (2, 3, 4, 6, 10)]
        [2, 3, 3, 5, 7]
    """
    return 2 * devices // 3 + 1


@dataclass(frozen=True)
class MaskingTerms:
    """What all parties of a sum-only upload agree on, each from its own disk and never from a message.

    The threshold ``t`` is the number of shares that recover a secret, the least number of senders and of survivors that a
    device accepts, and the number of devices that must have signed the same before one of them helps to remove masks. It refers
    to the ``n`` devices that the federation names, not to those that the server presents, so that a server cannot lower it by
    presenting few.

    A device's upload is hidden by a self mask, which is recovered if the device survives, and by pairwise masks, which are
    recovered if it drops out. Whoever recovers both secrets of a device, or its self mask and the pairwise secrets of all its
    peers, reads its upload. To get there, a server that lies forwards different shares or names different survivors to
    different devices. That is why a device signs what it was told (participants, senders, survivors) once, and gives shares
    away if ``t`` devices signed exactly that, itself included. Devices that collude with the server sign anything and hand over
    both kinds of shares. Let ``m`` be their number. Two different statements with ``t`` signatures each have ``2 t - n`` or more
    signers in common, and only those that collude sign two. So if ``2 t > n + m``, all other devices that answer were told the
    same, and therefore:

    - they give one kind of share per device, and those that collude, fewer than ``t``, do not recover the other kind;
    - the server learns one sum at most, over all survivors that do not collude, of which there are ``t - m`` or more. Any two
      that signed have a mask in common that nobody else learns. A survivor that was told something else and signed nothing of
      this has ``t - m - 1`` or more peers that do not collude; ``t - m`` or more signed, and there are ``n - m - 1`` in all but
      itself, so it has such a mask in common with ``2 t - n - m`` or more that signed.

    The default of more than two thirds withstands ``m <= n / 3``. If ``2 t <= n + m``, all of this fails: two groups of the
    other devices, each told that the other group dropped out, have ``t`` signatures each with those that collude, and give away
    both secrets of every device.

    Values travel in fixed point, in the ring of integers modulo ``2^64``.

    Attributes:
        federation: Name of the federation. Signatures, keys and masks are bound to it; use another name for another upload.
        devices: Names of all devices that may take part.
        roster: Public identity key (P-384, PEM) of every device, or None to skip signatures. Without a roster, a server that
            invents devices, or tells devices different things, can read the upload of a real one.
        threshold: Least number of devices of a sum; 0 means ``default_threshold``.
        fraction_bits: Binary digits after the point.

    Raises:
        InputError: If a name repeats, the roster misses a device, or a number is out of range.

    Example:
        >>> terms = MaskingTerms("ward", ("a", "b", "c", "d"), roster=None)
        >>> terms.threshold, terms.largest_value
        (3, 68719476736.0)
    """

    federation: str
    devices: tuple[str, ...]
    roster: Mapping[str, bytes] | None
    threshold: int = 0
    fraction_bits: int = 24

    def __post_init__(self) -> None:
        for field, name in [("federation", self.federation), *(("devices", device) for device in self.devices)]:
            if not (isinstance(name, str) and name and name.isprintable()):
                raise InputError(f"{field}: the name {shown(name)} must be a text of printable characters.")
        count = len(self.devices)
        if len(set(self.devices)) < count:
            raise InputError(f"devices = {listing(self.devices)}: every name must be there once.")
        if count < 2:
            raise InputError(
                f"devices = {listing(self.devices)}: a sum hides nothing unless there are 2 or more devices."
            )
        if self.roster is not None and (missing := [name for name in self.devices if name not in self.roster]):
            raise InputError(f"roster: there is no public key of {listing(missing)}; add it to the roster.")
        require_at_least("threshold", self.threshold, 0)
        object.__setattr__(self, "threshold", self.threshold or default_threshold(count))
        if not count < 2 * self.threshold <= 2 * count:
            raise InputError(
                f"threshold = {self.threshold} must be more than half of the {count} devices and at most all of them."
            )
        require_at_least("fraction_bits", self.fraction_bits, 0)
        if self.fraction_bits > _MOST_FRACTION_BITS:
            raise InputError(f"fraction_bits = {self.fraction_bits} must be {_MOST_FRACTION_BITS} or less.")

    @property
    def largest_value(self) -> float:
        """Largest absolute value that a device may upload, so that no sum over all devices overflows."""
        return 2.0 ** (_RING_BITS - self.fraction_bits) / len(self.devices)

    def error_bound(self, summands: int) -> float:
        """Return how far an entry of the sum can be from the exact sum: ``summands * 2^-(fraction_bits + 1)``."""
        return summands * 2.0 ** -(self.fraction_bits + 1)

    def require_enough(self, what: str, count: int) -> None:
        """Refuse fewer than ``threshold`` devices of a kind.

        Raises:
            InputError: If ``count`` is below the threshold.
        """
        if count < self.threshold:
            raise InputError(
                f"{what}: {count} of {len(self.devices)} devices are too few, a sum-only upload needs {self.threshold} or more."
            )
