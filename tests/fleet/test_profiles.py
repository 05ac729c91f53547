from __future__ import annotations

import numpy as np
import pytest

from codedfl.errors import InputError
from codedfl.fleet import Fleet, draw_fleet

NAMES = [f"device-{i}" for i in range(5000)]


def test_draw_is_uniform_over_the_ranges_of_the_paper() -> None:
    fleet = draw_fleet(NAMES, np.random.default_rng(0))
    factor, power = fleet.mac_rate / 1_536_000, fleet.transmit_power_dbm
    assert fleet.devices == 5000
    assert ((factor >= 0.8) & (factor <= 1.0)).all()
    assert ((power >= 15) & (power <= 25)).all()
    # the mean of n uniform draws over a range w has standard error w / sqrt(12 n); 4.5 of them
    error = 4.5 / np.sqrt(12 * 5000)
    assert abs(factor.mean() - 0.9) < 0.2 * error
    assert abs(power.mean() - 20) < 10 * error
    assert abs(np.corrcoef(factor, power)[0, 1]) < 4.5 / np.sqrt(5000)


def test_adding_devices_leaves_the_earlier_ones_alone() -> None:
    few, many = (draw_fleet(NAMES[:n], np.random.default_rng(3)) for n in (7, 50))
    assert (few.mac_rate == many.mac_rate[:7]).all()
    assert (few.transmit_power_dbm == many.transmit_power_dbm[:7]).all()


def test_arrays_are_copied_and_read_only() -> None:
    rate = np.array([1e6])
    fleet = Fleet(("a",), rate, np.array([20.0]))
    rate[0] = -1
    assert fleet.mac_rate[0] == 1e6
    with pytest.raises(ValueError, match="read-only"):
        fleet.mac_rate[0] = 2.0


@pytest.mark.parametrize(
    ("names", "rate", "power", "message"),
    [
        ((), [], [], "fleet.names is empty"),
        (("a", "a"), [1.0, 1.0], [20.0, 20.0], "'a' more than once"),
        (("a", "b"), [1.0], [20.0, 20.0], "fleet.mac_rate has 1 value"),
        (("a", "b"), [1.0, 1.0], [[20.0, 20.0]], "fleet.transmit_power_dbm has shape"),
        (("a", "b"), [1.0, -2.0], [20.0, 20.0], "fleet.mac_rate = -2.0 of device 'b'"),
        (("a", "b"), [1.0, np.nan], [20.0, 20.0], "fleet.mac_rate has 1 value"),
        (("a",), [1.0], [4000.0], "fleet.transmit_power_dbm = 4000.0"),
        (("a",), ["fast"], [20.0], "fleet.mac_rate must be a vector of numbers"),
        ("ab", [1.0, 1.0], [20.0, 20.0], "one string"),
    ],
)
def test_a_bad_fleet_is_refused(names: tuple[str, ...], rate: object, power: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Fleet(names, rate, power)  # type: ignore[arg-type]


def test_bad_ranges_are_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(InputError, match=r"mac_rate_factor = \(1.0, 0.8\)"):
        draw_fleet(["a"], rng, mac_rate_factor=(1.0, 0.8))
    with pytest.raises(InputError, match="mac_rate_factor"):
        draw_fleet(["a"], rng, mac_rate_factor=(0.0, 0.8))
    with pytest.raises(InputError, match="transmit_power_dbm"):
        draw_fleet(["a"], rng, transmit_power_dbm=(15.0, np.inf))
    with pytest.raises(InputError, match="mac_rate = 0"):
        draw_fleet(["a"], rng, mac_rate=0)
