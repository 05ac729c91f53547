"""One guarantee for everything that devices sent: made here from what was released, printed everywhere, recomputed nowhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from codedfl.privacy._composition import epsilon_of
from codedfl.privacy._mechanisms import GaussianMechanism, Mechanism

Covers = Literal["everything", "upload", "nothing"]
"""What an epsilon covers: everything that was sent, the uploads alone, or nothing."""

Against = Literal["each message", "sums only"]
"""What the server sees."""

RoundingDelta = Callable[[int, float], float]
"""What the arithmetic of a device adds to its delta, given the index of the device and its epsilon with ideal arithmetic."""

SOLVED = 1e-6
"""Relative distance from a target at which noise that was solved for keeps it."""

_LEAST_FIRST: tuple[Covers, ...] = ("nothing", "upload", "everything")


@dataclass(frozen=True)
class Release:
    """A kind of message that a device sent, and the mechanism that it is to whoever sees it.

    Args:
        message: what it is, such as ``coded rows`` or ``update``.
        mechanism: its mechanism; None if nothing protects it.
        upload: whether it was sent once, before the rounds.
        preparation: whether it only served to set up what follows, such as the clip norm.
    """

    message: str
    mechanism: Mechanism | None
    upload: bool = True
    preparation: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return the message, the name of its mechanism, and what that depends on.

        Example:
            >>> Release("updates", None, upload=False).as_dict()
            {'message': 'updates', 'mechanism': 'none'}
        """
        if self.mechanism is None:
            return {"message": self.message, "mechanism": "none"}
        return {"message": self.message, "mechanism": type(self.mechanism).__name__, **asdict(self.mechanism)}


@dataclass(frozen=True)
class Guarantee:
    """What may be claimed about everything that devices sent, per sample added or removed.

    Args:
        epsilon: of what is covered, the largest over devices, in nats; infinite if nothing is covered.
        delta: probability with which the bound may fail, what the arithmetic of real devices adds included.
        covers: everything that was sent, the uploads alone, or nothing.
        against: what the server sees.
        devices: epsilon of each device.
        messages: what the device with the largest epsilon sent.
        outside: what no number covers, one clause each.
    """

    epsilon: float
    delta: float
    covers: Covers
    against: Against
    devices: tuple[float, ...]
    messages: tuple[Release, ...]
    outside: tuple[str, ...] = ()

    def as_dict(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Return the guarantee for reports, as JSON files and models keep it.

        Args:
            names: of the devices, by which their epsilons are then listed.
        """
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "covers": self.covers,
            "threat_model": self.against,
            "adjacency": "one sample more or less",
            "devices": list(self.devices) if names is None else dict(zip(names, self.devices, strict=True)),
            "messages": [release.as_dict() for release in self.messages],
            "outside": list(self.outside),
        }


def keeps(statement: Mapping[str, Any], epsilon: float) -> bool:
    """Return whether a statement, as `Guarantee.as_dict` and JSON files have it, keeps an epsilon for everything that was sent.

    Example:
        >>> keeps({"covers": "everything", "epsilon": 2.0}, 2.0), keeps({"covers": "everything", "epsilon": 17.9}, 2.0)
        (True, False)
        >>> keeps({"covers": "upload", "epsilon": 1.0}, 2.0)
        False
    """
    stated = statement.get("epsilon")
    return statement.get("covers") == "everything" and stated is not None and stated <= epsilon * (1 + SOLVED)


def guarantee_of(
    everything: Sequence[tuple[Release, ...]],
    delta: float,
    *,
    against: Against = "each message",
    outside: Sequence[str] = (),
    rounding_delta: RoundingDelta | None = None,
) -> Guarantee:
    """Return the guarantee of what devices sent, composed by `epsilon_of`.

    It covers no more for one device than for any other. A message without a mechanism is covered by nothing; if all such
    messages are updates, what was sent before the rounds is covered by itself. Where devices compute in floats, what that is
    worth is added to delta, of the device for which it is most.

    Args:
        everything: what each device sent.
        delta: probability with which the bound may fail if arithmetic is ideal.
        against: what the server sees.
        outside: what no number covers, one clause each.
        rounding_delta: what arithmetic adds to delta; None for ideal arithmetic.

    Example:
        >>> mean, update = Release("mean", GaussianMechanism(8.0)), Release("updates", GaussianMechanism(4.0), upload=False)
        >>> both = guarantee_of([(mean, update), (mean,)], 1e-5)
        >>> both.covers, round(both.epsilon, 4), [release.message for release in both.messages]
        ('everything', 1.0471, ['mean', 'updates'])
        >>> guarantee_of([(mean, Release("updates", None, upload=False))], 1e-5).covers
        'upload'
    """
    covers = min(map(_covers, everything), key=_LEAST_FIRST.index)
    epsilons = tuple(_epsilon(releases, covers, delta) for releases in everything)
    worst = max(range(len(epsilons)), key=lambda device: (epsilons[device], len(everything[device])))
    if rounding_delta is not None and covers != "nothing":
        delta = min(delta + max(rounding_delta(device, epsilon) for device, epsilon in enumerate(epsilons)), 1.0)
    return Guarantee(epsilons[worst], delta, covers, against, epsilons, tuple(everything[worst]), tuple(outside))


def update_releases(updates: int, precision: float, sampling_rate: float = 1.0) -> tuple[Release, ...]:
    """Return the updates of a device as one release; none if there were none.

    Args:
        updates: how many it sent.
        precision: the sum of ``1 / z^2`` over them; 0 if they have no noise.
        sampling_rate: ``q``.
    """
    if updates == 0:
        return ()
    if precision == 0:
        return (Release("updates", None, upload=False),)
    mechanism = (
        GaussianMechanism(1 / math.sqrt(precision))
        if sampling_rate == 1
        else GaussianMechanism(math.sqrt(updates / precision), updates, sampling_rate)
    )
    return (Release("updates", mechanism, upload=False),)


def _covers(releases: tuple[Release, ...]) -> Covers:
    """Return what a guarantee for one device covers."""
    if all(release.mechanism is not None for release in releases):
        return "everything"
    uploads = [release for release in releases if release.upload and not release.preparation]
    if uploads and all(release.mechanism is not None for release in uploads):
        return "upload"
    return "nothing"


def _epsilon(releases: tuple[Release, ...], covers: Covers, delta: float) -> float:
    """Return the epsilon of what is covered."""
    if covers == "nothing":
        return math.inf
    counted = (release for release in releases if covers == "everything" or release.upload)
    return epsilon_of([release.mechanism for release in counted if release.mechanism is not None], delta)
