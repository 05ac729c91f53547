from __future__ import annotations

import numpy as np
import pytest

from codedfl.incentive import DeviceTraits, contract_for_reward
from codedfl.plotting._contract import contract_figure
from tests.plotting.pictures import assert_readable


@pytest.mark.parametrize("devices", [1, 3, 25, 60])
def test_items_have_the_names_of_their_devices_and_everything_can_be_read(devices: int) -> None:
    traits = DeviceTraits(np.linspace(2.0, 1.0, devices))
    names = tuple(f"the $n$-th hospital, number {i}" for i in range(devices))
    figure = contract_figure(contract_for_reward(traits, 5.0 * devices, 10_000), names)
    assert_readable(figure)
    ticks = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    if devices <= 25:
        assert ticks == ["the $n$-th hospital, …"] * devices
    else:
        assert all(tick.isdigit() for tick in ticks), "whole numbers"
