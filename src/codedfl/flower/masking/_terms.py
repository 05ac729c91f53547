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

    The threshold ``t`` is the number of shares that recover a secret, and the least number of survivors that a device accepts.
    A device's upload is hidden by a self mask, which is recovered if the device survives, and by pairwise masks, which are
    recovered if it drops out. Whoever recovers both secrets of a device reads its upload. A server that lies may tell some
    devices that a device survived and others that it dropped out, but every device answers once, with one kind of share per
    device. Both kinds take ``2 t`` answers, more than there are if ``t`` is more than half of the ``n`` devices. A device that
    colludes with the server hands over both kinds, so against ``m`` of those ``2 t > n + m`` must hold: the default of more
    than two thirds holds for ``m <= n / 3``. The threshold refers to the devices that the federation names, not to those that
    the server presents, so that a server cannot lower it by presenting few.

    What this does not rule out: by naming different survivors to different devices, a server may unmask a sum over fewer than
    ``t`` devices. To single one out, it would need ``t`` answers that drop each of the ``t - 1`` or more others in its upload,
    ``t (t - 1)`` in all; every answer drops at most ``n - t``. With the default threshold ``n (n - t) < t (t - 1)``, so
    devices that do not collude are never singled out.

    Values travel in fixed point, in the ring of integers modulo ``2^64``.

    Attributes:
        federation: Name of the federation. Signatures, keys and masks are bound to it; use another name for another upload.
        devices: Names of all devices that may take part.
        roster: Public identity key (P-384, PEM) of every device, or None to skip signatures. Without a roster, a server that
            invents devices can read the upload of a real one.
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
