"""Joining: devices introduce themselves, and pick an item of the contract if one is offered; the roster is who did."""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from codedfl._messages import shown
from codedfl.errors import InputError
from codedfl.federation._checks import BadMessage, Hello, checked_hello
from codedfl.federation._context import ServerPart, Standing
from codedfl.federation._federation_config import FederationConfig
from codedfl.federation._requests import wants_smoothness
from codedfl.federation.transport import Packet
from codedfl.files import write_atomically
from codedfl.incentive import DeviceTraits, Menu, contract_for_reward, table_sensitivities
from codedfl.privacy import noise_variance_for_mi_dp
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


HELLO_S = 30.0
"""How long a device may take to introduce itself before it is asked again."""

AGAIN_S = 5.0
"""Seconds until a device that declined or failed is asked again."""


def offered_menu(config: FederationConfig) -> Menu | None:
    """Return the items of the contract that a federation offers; None without one."""
    incentive = config.incentive
    if incentive.total_reward == 0:
        return None
    guess = np.array(incentive.sensitivity) if incentive.sensitivity else table_sensitivities(len(config.devices))
    return contract_for_reward(DeviceTraits(guess), incentive.total_reward, config.coding.coded_samples).menu


def menu_values(menu: Menu | None) -> dict[str, list[float]]:
    """Return a menu as the values of a message."""
    return {} if menu is None else {"mi_dp_bits": menu.mi_dp_bits.tolist(), "reward": menu.reward.tolist()}


def require_bought(config: FederationConfig, item: int, noise_variance: float) -> None:
    """Refuse an upload with more noise than the item that its device picked allows.

    Raises:
        BadMessage: naming both.
    """
    menu = offered_menu(config)
    if menu is None or item < 0:
        return
    bought = noise_variance_for_mi_dp(float(menu.mi_dp_bits[item]), config.coding.coded_samples)
    if noise_variance > bought * (1 + 1e-9):
        raise BadMessage(
            f"noise_variance = {noise_variance:g}, expected {bought:g} or less, as the contract item {item} says."
        )


@dataclass
class Joining(ServerPart):
    """Waits until the devices have introduced themselves.

    Args:
        context: the server.
    """

    def roster(self) -> Roster:
        """Return the devices that joined: all, or at least ``training.least_devices`` when ``training.join_s`` is over.

        Raises:
            InputError: if fewer did.
        """
        config, training = self.config, self.config.training
        menu = offered_menu(config)
        request = Packet(
            {},
            {
                "federation": config.name,
                "prescription": config.prescription(),
                "smoothness": wants_smoothness(config),
                **menu_values(menu),
            },
        )
        hellos: dict[str, Hello] = {}
        items, within_s = 0 if menu is None else menu.items, min(HELLO_S, training.join_s)

        def missing() -> list[str]:
            return [name for name in config.devices if name not in hellos and not self.standing.is_excluded(name)]

        for reply in self.gather(
            "hello", training.join_s, missing, lambda _: request, longest_s=within_s, again_s=AGAIN_S
        ):
            check = partial(checked_hello, device=reply.device, prescription=config.prescription(), menu_items=items)
            hello = self.checked(reply, "hello", check)
            if hello:
                hellos[reply.device] = hello
                self.journal.note("joined", device=reply.device, samples=hello.samples, uploads=hello.joins)
                self.journal.status(phase="joining", joined=len(hellos), devices=len(config.devices))
        least = training.least_devices or len(config.devices)
        if len(hellos) < least:
            absent = ", ".join(name for name in config.devices if name not in hellos)
            raise InputError(
                f"{len(hellos)} of {len(config.devices)} devices joined within training.join_s = {training.join_s:g}, and {least}"
                f" are needed: start {absent}, raise training.join_s, or set training.least_devices; then resume."
            )
        return Roster.of(hellos, config.devices, secrets.randbits(62), config.prescription())
