"""Where the paper's bounds as printed are broken, each by what the correction is about and not next to it.

Variances of one step are exact; those of more steps are measured with a step so small that local models do not move.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from codedfl.coding import Rows
from codedfl.theory import (
    Reading,
    RoundLaw,
    device_bound,
    gap_bound,
    measure_constants,
    round_variance,
    server_bound,
    simulate_round,
)
from tests.theory.rounds import lonely_round, squared_norms, standard_error

ONE = np.ones((1, 1))


def of_devices(round: RoundLaw, reading: Reading) -> float:
    return sum(device_bound(round, measure_constants(round.parts, 1.0), reading).values())


def of_server(round: RoundLaw, reading: Reading) -> float:
    return sum(server_bound(round, measure_constants(round.parts, 1.0), reading).values())


@pytest.mark.parametrize(("devices", "fails"), [(1, False), (4, False), (5, True), (40, True)])
def test_many_noisy_devices(devices: int, fails: bool) -> None:
    """With nothing but noise ``V_2 = 2 sigma^4 / c``, and the printed bound is ``8 sum sigma_i^4 / c``: four devices too many."""
    noisy = lonely_round(
        parts=tuple(Rows(np.full((1, 1), 1e-4), np.zeros((1, 1))) for _ in range(devices)),
        arrival_probability=np.full(devices, 0.5),
        inverse_batch=np.ones(devices),
        noise_variance=np.ones(devices),
    )
    exact = round_variance(noisy, ONE).server
    assert exact == pytest.approx(2 * devices**2 / 40, rel=1e-5)
    assert (exact > of_server(noisy, "printed")) == fails
    assert exact <= of_server(noisy, "corrected")


@pytest.mark.parametrize(("steps", "fails"), [(1, False), (3, True), (8, True)])
def test_many_local_steps_of_a_straggler(steps: int, fails: bool) -> None:
    """All ``tau`` gradients arrive or none: ``tau^2 (1 - p) / p``, above the printed ``2 tau (1 - p) / p`` from ``tau = 3``."""
    round = lonely_round(local_steps=steps)
    device, _ = simulate_round(round, ONE, 1e-9, 400, np.random.default_rng(0))
    # Twice the gradient or nothing: at a distance of tau either way, so there is nothing to average.
    squares = squared_norms(device.sum(axis=1) - steps)
    assert squares == pytest.approx(np.full(400, steps**2), rel=1e-6)
    assert (squares.mean() > of_devices(round, "printed")) == fails
    assert squares.mean() <= of_devices(round, "corrected")


@pytest.mark.parametrize(("steps", "fails"), [(1, False), (3, False), (8, True)])
def test_many_local_steps_of_the_server(steps: int, fails: bool) -> None:
    """The same code errs the same way in every step: ``2 tau^2 / c``, above the printed ``8 tau / c`` from five steps on."""
    round = lonely_round(local_steps=steps)
    _, server = simulate_round(round, ONE, 1e-9, 8000, np.random.default_rng(1))
    squares = squared_norms(server - steps)
    value, error = squares.mean(), standard_error(squares)
    assert abs(value - 2 * steps**2 / 40) < 4.5 * error
    assert (value - 4.5 * error > of_server(round, "printed")) == fails
    assert value + 4.5 * error <= of_server(round, "corrected")


@pytest.mark.parametrize(("batch", "fails"), [(40, False), (20, False), (2, True)])
def test_a_small_batch_of_the_server(batch: int, fails: bool) -> None:
    round = lonely_round(server_batch=batch)
    exact = round_variance(round, ONE).server
    assert (exact > of_server(round, "printed")) == fails
    assert exact <= of_server(round, "corrected")


@pytest.mark.parametrize(("probability", "fails"), [(0.5, False), (0.02, True)])
def test_a_rare_device_with_a_batch_of_one(probability: float, fails: bool) -> None:
    """What arrives is a stochastic gradient, ten times as large (squared) as the full one."""
    rare = lonely_round(
        parts=(Rows(np.eye(10, 1), np.zeros((10, 1))),),
        arrival_probability=np.array([probability]),
    )
    exact = round_variance(rare, ONE).device
    assert exact == pytest.approx((1 - probability) / probability + 9 / probability, rel=1e-12)
    assert (exact > of_devices(rare, "printed")) == fails
    assert exact <= of_devices(rare, "corrected")
    assert round_variance(replace(rare, inverse_batch=np.array([0.1])), ONE).device <= of_devices(rare, "printed")


@pytest.mark.parametrize(("features", "fails"), [(1, False), (4, True)])
def test_equal_eigenvalues_make_the_printed_theorem_negative(features: int, fails: bool) -> None:
    """``||X||_F^2 = d L`` is no constant of strong convexity: for ``eta L > 1 / d`` the gap would be negative."""
    rows = Rows(np.eye(features), np.ones((features, 1)))
    certain = RoundLaw((rows,), np.ones(1), np.full(1, 1 / features), 10**6, 10**6, np.zeros(1))
    constants = measure_constants(certain.parts, 2.0)
    distance = float(np.sqrt(features))
    printed, corrected = (
        gap_bound(certain, constants, np.full(5, 0.6), distance, reading).total for reading in ("printed", "corrected")
    )
    # Half the update, that of the devices, is exact, and the code of a million rows nearly so: W_k = 1 - 0.4^k.
    models = [1 - 0.4**k for k in range(5)]
    averages = np.cumsum(models) / np.arange(1, 6)
    gaps = 0.5 * features * (averages - 1) ** 2
    assert ((printed < 0).all() and (printed < gaps).all()) == fails
    assert (gaps <= corrected).all()
