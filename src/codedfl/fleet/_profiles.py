"""The devices: how fast each computes and how strongly it transmits (Sec. VI-A)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from codedfl._messages import shown
from codedfl._validation import require_positive
from codedfl.errors import InputError
from codedfl.fleet._inputs import float_vector, require_powers_dbm
from codedfl.typing import FloatArray, IntArray, ShortRepr


@dataclass(frozen=True, eq=False, repr=False)
class Fleet(ShortRepr):
    """The fixed properties of N devices: names, compute rates and transmit powers.

    Args:
        names: one unique name per device.
        mac_rate: MACR_i, multiply-accumulate operations per second, (N,).
        transmit_power_dbm: P_i in dBm, (N,).

    Example:
        >>> fleet = Fleet(names=("phone", "tablet"), mac_rate=np.array([1.3e6, 1.5e6]),
        ...               transmit_power_dbm=np.array([17.0, 23.0]))
        >>> fleet.devices
        2
    """

    names: tuple[str, ...]
    mac_rate: FloatArray
    transmit_power_dbm: FloatArray

    radio: ClassVar[Literal[True]] = True
    """Whether its answers follow from the radio model, and devices can adapt to the channel."""

    recorded_rounds: ClassVar[None] = None
    """How many rounds were recorded; None as answers are drawn."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", checked_names(self.names))
        for field in ("mac_rate", "transmit_power_dbm"):
            values = float_vector(f"fleet.{field}", getattr(self, field))
            if values.size != self.devices:
                raise InputError(
                    f"fleet.{field} has {values.size} value(s) for {self.devices} device(s): give one for each device."
                )
            object.__setattr__(self, field, values)
        slow = self.mac_rate <= 0
        if slow.any():
            first = int(np.argmax(slow))
            raise InputError(
                f"fleet.mac_rate = {self.mac_rate[first]} of device {self.names[first]!r} must be a positive number "
                "of multiply-accumulate operations per second."
            )
        require_powers_dbm("fleet.transmit_power_dbm", self.transmit_power_dbm)

    @property
    def devices(self) -> int:
        """The number of devices, N."""
        return len(self.names)

    def columns(self) -> dict[str, FloatArray]:
        """Return what is known about every device, by the name of its column in a file, (N,) each."""
        return {"mac_rate": self.mac_rate, "transmit_power_dbm": self.transmit_power_dbm}

    def among(self, devices: IntArray) -> Fleet:
        """Return the fleet of the devices with these indices."""
        names = tuple(self.names[i] for i in devices.tolist())
        return Fleet(names, self.mac_rate[devices], self.transmit_power_dbm[devices])


def checked_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names as a tuple; refuse an empty sequence and repeated names."""
    if isinstance(names, str):
        raise InputError(f"fleet.names = {shown(names)} is one string: give a sequence of device names.")
    devices = tuple(names)
    if not devices:
        raise InputError("fleet.names is empty: a fleet needs at least one device.")
    if len(set(devices)) < len(devices):
        seen: set[str] = set()
        twice = next(name for name in devices if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise InputError(f"fleet.names has {shown(twice)} more than once: give every device a name of its own.")
    return devices


def draw_fleet(
    names: Sequence[str],
    rng: np.random.Generator,
    *,
    mac_rate: float = 1_536_000.0,
    mac_rate_factor: tuple[float, float] = (0.8, 1.0),
    transmit_power_dbm: tuple[float, float] = (15.0, 25.0),
) -> Fleet:
    """Draw a fleet as in Sec. VI-A: MACR_i = μ_i · ``mac_rate`` and P_i, both uniform and independent.

    Each device takes the next two draws, so adding devices does not change the earlier ones.

    Args:
        names: one unique name per device.
        rng: source of the draws, for example ``streams.at("fleet")``.
        mac_rate: the rate at a factor of one, in MAC per second.
        mac_rate_factor: the range of μ_comp,i.
        transmit_power_dbm: the range of P_i in dBm.

    Example:
        >>> fleet = draw_fleet([f"device-{i}" for i in range(20)], np.random.default_rng(0))
        >>> fleet.devices, bool(fleet.mac_rate.min() >= 0.8 * 1_536_000)
        (20, True)
    """
    devices = checked_names(names)
    require_positive("fleet.mac_rate", mac_rate)
    for field, (low, high) in (("mac_rate_factor", mac_rate_factor), ("transmit_power_dbm", transmit_power_dbm)):
        if not (np.isfinite([low, high]).all() and low <= high):
            raise InputError(f"fleet.{field} = ({low}, {high}) must be a finite range with the lower end first.")
    require_positive("fleet.mac_rate_factor (lower end)", mac_rate_factor[0])
    factor, power = rng.random((len(devices), 2)).T
    return Fleet(
        names=devices,
        mac_rate=mac_rate * _between(mac_rate_factor, factor),
        transmit_power_dbm=_between(transmit_power_dbm, power),
    )


def _between(ends: tuple[float, float], position: FloatArray) -> FloatArray:
    low, high = ends
    return low + (high - low) * position
