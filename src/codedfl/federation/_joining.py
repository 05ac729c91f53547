"""Joining: devices introduce themselves, and pick an item of the contract if one is offered."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from codedfl.errors import InputError
from codedfl.federation._checks import BadMessage, Hello, checked_hello
from codedfl.federation._context import ServerPart
from codedfl.federation._federation_config import FederationConfig
from codedfl.federation._requests import wants_smoothness
from codedfl.federation._roster import Roster
from codedfl.federation.transport import Packet, Reply
from codedfl.incentive import DeviceTraits, Menu, contract_for_reward, table_sensitivities
from codedfl.privacy import noise_variance_for_mi_dp

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
        clock: seconds, for tests.
        sleep: waits between attempts, for tests.
    """

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

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
        later: dict[str, float] = {}
        began = self.clock()
        while self._open(hellos) and self.clock() - began < training.join_s:
            online = self.hub.online()
            missing = [
                name
                for name in config.devices
                if name in online
                and name not in hellos
                and not self.standing.is_excluded(name)
                and self.clock() >= later.get(name, began)
            ]
            if not missing:
                self.sleep(0.5)
                continue
            within = min(HELLO_S, training.join_s)
            for reply in self.hub.ask("hello", dict.fromkeys(missing, request), within):
                hello = self._checked(reply, 0 if menu is None else menu.items)
                later[reply.device] = self.clock() + AGAIN_S
                if hello:
                    hellos[reply.device] = hello
                    self.journal.note("joined", device=reply.device, samples=hello.samples, uploads=hello.joins)
                    self.journal.status(phase="joining", joined=len(hellos), devices=len(config.devices))
            if self._open(hellos):
                self.sleep(0.5)
        least = training.least_devices or len(config.devices)
        if len(hellos) < least:
            absent = ", ".join(name for name in config.devices if name not in hellos)
            raise InputError(
                f"{len(hellos)} of {len(config.devices)} devices joined within training.join_s = {training.join_s:g}, and {least}"
                f" are needed: start {absent}, raise training.join_s, or set training.least_devices; then resume."
            )
        return Roster.of(hellos, config.devices, secrets.randbits(62), config.prescription())

    def _open(self, hellos: Mapping[str, Hello]) -> bool:
        """Return whether anybody who may still join has not."""
        return any(name not in hellos and not self.standing.is_excluded(name) for name in self.config.devices)

    def _checked(self, reply: Reply, items: int) -> Hello | None:
        if reply.packet is None:
            self.context.note_silence(reply)
            return None
        try:
            hello = checked_hello(
                reply.packet, device=reply.device, prescription=self.config.prescription(), menu_items=items
            )
        except BadMessage as bad:
            self.context.refuse(reply, "hello", bad)
            return None
        self.standing.accept(reply.device)
        return hello
