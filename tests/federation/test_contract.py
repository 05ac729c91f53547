"""A contract over the network: items are picked by private sensitivities, noise is held against them, rewards are told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from codedfl.federation._checks import BadMessage
from codedfl.federation._joining import offered_menu, require_bought
from codedfl.federation.transport import Kind, Packet
from codedfl.privacy import noise_variance_for_mi_dp
from tests.federation.support import (
    NAMES,
    InProcess,
    change_client,
    coordinator,
    copy_federation,
    digits_config,
    events,
    open_clients,
)

CONFIG = digits_config(
    scheme="scfl", incentive={"total_reward": 20.0, "sensitivity": [1.0, 1.2, 1.4, 1.6]}, training={"rounds": 2}
)
SENSITIVITY = {"north": 0.5, "east": 1.3, "south": 50.0}
"""West has none, and uploads with the noise that the federation suggests."""


@pytest.fixture
def folder(digits: Path, tmp_path: Path) -> Path:
    made = copy_federation(digits, tmp_path / "federation", CONFIG)
    for name, value in SENSITIVITY.items():
        change_client(made, name, "sensitivity = 0.0", f"sensitivity = {value}")
    return made


@pytest.mark.usefixtures("naps")
def test_devices_are_paid_for_the_items_that_they_pick_and_keep(folder: Path) -> None:
    coordinator(folder, InProcess(open_clients(folder))).run()
    menu = offered_menu(CONFIG)
    assert menu is not None
    devices = {entry["device"]: entry for entry in json.loads((folder / "results/summary.json").read_text())["devices"]}
    for name in ("north", "east"):
        item = max(range(menu.items), key=lambda k: menu.reward[k] - SENSITIVITY[name] * menu.mi_dp_bits[k])
        assert devices[name]["reward"] == menu.reward[item]
        assert devices[name]["mi_dp_bits"] == menu.mi_dp_bits[item]
        noise = noise_variance_for_mi_dp(float(menu.mi_dp_bits[item]), CONFIG.coding.coded_samples)
        assert devices[name]["noise_variance"] == pytest.approx(noise, rel=1e-12)
    assert not devices["south"]["uploaded"], "no item is worth it to this device"
    assert devices["south"]["reward"] == devices["west"]["reward"] == 0.0
    assert devices["west"]["noise_variance"] == CONFIG.coding.noise_variance


@pytest.mark.slow
@pytest.mark.usefixtures("naps")
def test_a_device_that_adds_more_noise_than_it_sold_is_refused(folder: Path) -> None:
    def noisier(device: str, kind: Kind, request: Packet, reply: Packet) -> Packet:  # noqa: ARG001
        if device == "north" and kind == "coded":
            return replace(reply, values={**reply.values, "noise_variance": 1e6})
        return reply

    coordinator(folder, InProcess(open_clients(folder), noisier)).run()
    (refusal, *_) = [event for event in events(folder) if event["event"] == "refused"]
    assert refusal["device"] == "north"
    assert "as the contract item" in refusal["reason"]
    summary = json.loads((folder / "results/summary.json").read_text())
    assert (summary["devices"][0]["uploaded"], summary["devices"][0]["reward"]) == (False, 0.0)


def test_noise_is_held_against_the_item_alone() -> None:
    menu = offered_menu(CONFIG)
    assert menu is not None
    allowed = noise_variance_for_mi_dp(float(menu.mi_dp_bits[1]), CONFIG.coding.coded_samples)
    require_bought(CONFIG, 1, allowed)
    require_bought(CONFIG, -1, 1e9)
    require_bought(digits_config(scheme="scfl"), 1, 1e9)
    with pytest.raises(BadMessage, match=r"expected .* or less, as the contract item 1 says"):
        require_bought(CONFIG, 1, 1.01 * allowed)
    assert CONFIG.devices == NAMES
