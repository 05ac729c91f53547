"""The contract against independent solvers of (P1) and (P2)."""

from __future__ import annotations

import numpy as np
import pytest

from codedfl.incentive import DeviceTraits, Gamma, QuarticLoss, design_contract, optimal_rewards
from codedfl.incentive._menu import marginal_rewards
from codedfl.incentive._pooling import _roots
from tests.incentive.losses import PowerLoss
from tests.reference.contract_p1 import Scalar, Vector, solve_p1, solve_p2

LOSSES: tuple[Gamma, ...] = (QuarticLoss(), QuarticLoss(), PowerLoss(1.0), PowerLoss(1.5, scale=2.0))


def instance(rng: np.random.Generator) -> tuple[Vector, Vector, Vector, int, float]:
    """Sensitivities in any order, some of them equal; unequal interference; caps, of which some bind."""
    devices = int(rng.integers(2, 9))
    mu = rng.uniform(0.5, 2.0, devices)
    if rng.random() < 0.4:
        mu = np.round(mu * 2) / 2
    coded_samples = int(rng.integers(1, 40))
    h2 = coded_samples * rng.uniform(0.02, 1.0, devices)
    least_noise = coded_samples * rng.uniform(0.0, 0.6, devices)
    return mu, h2, least_noise, coded_samples, float(coded_samples ** rng.uniform(0.5, 2) * rng.uniform(0.3, 3))


def slope_of(gamma: Gamma) -> Scalar:
    return lambda v: float(gamma.slope(np.array(max(v, 0.0))))


def solved(gamma: Gamma, case: tuple[Vector, Vector, Vector, int, float]) -> float:
    mu, h2, least_noise, coded_samples, weight = case
    return solve_p1(
        mu,
        h2,
        least_noise,
        coded_samples,
        weight,
        lambda v: float(gamma.value(np.array(max(v, 0.0)))),
        slope_of(gamma),
    )[0]


@pytest.mark.slow
@pytest.mark.parametrize(("instances", "ties"), [(12, 1), pytest.param(60, 10, marks=pytest.mark.slow)])
def test_against_a_solver_of_the_whole_problem(instances: int, ties: int) -> None:
    rng = np.random.default_rng(4)
    ironed = capped = tied = 0
    for number in range(instances):
        gamma = LOSSES[number % len(LOSSES)]
        case = mu, h2, least_noise, coded_samples, weight = instance(rng)
        contract = design_contract(DeviceTraits(mu, h2, least_noise), weight, coded_samples, gamma)
        assert contract.verify().holds
        assert contract.server_utility == pytest.approx(solved(gamma, case), rel=1e-6), number
        ironed += contract.menu.items < mu.size
        capped += bool((contract.noise_variance <= least_noise * (1 + 1e-9)).any())
        tied += np.unique(mu).size < mu.size
    assert ironed >= instances // 2
    assert capped >= instances // 2
    assert tied >= ties


@pytest.mark.slow
def test_against_pooling_one_block_at_a_time() -> None:
    rng = np.random.default_rng(5)
    merges = 0
    for number in range(60):
        gamma = LOSSES[number % len(LOSSES)]
        mu = np.sort(rng.uniform(0.5, 2.0, int(rng.integers(2, 60))))
        h2, least_noise = 100 * rng.uniform(0.02, 1.0, (2, mu.size))
        weight = float(100 ** rng.uniform(0.5, 2))
        contract = design_contract(DeviceTraits(mu, h2, least_noise), weight, 100, gamma)
        expected, pooled = solve_p2(marginal_rewards(mu), h2, least_noise, 100, weight, slope_of(gamma))
        assert contract.mi_dp_bits == pytest.approx(expected, rel=1e-9)
        merges += pooled
    assert merges > 600


@pytest.mark.slow
def test_caps_of_many_devices_with_wide_blocks() -> None:
    """Blocks that end up at a cap but for rounding are at that cap when they are joined with the next."""
    rng = np.random.default_rng(11)
    for number in range(150):
        devices = 400
        least = 2000 * rng.exponential(1.0, (2, devices)) * (rng.random((2, devices)) < rng.choice([0.3, 1.0]))
        traits = DeviceTraits(np.exp(rng.normal(0, 0.3, devices)), *least)
        contract = design_contract(traits, float(10 ** rng.uniform(6, 12)), 60_000, LOSSES[number % len(LOSSES)])
        assert contract.verify().holds


@pytest.mark.parametrize("problems", [20, pytest.param(100, marks=pytest.mark.slow)])
def test_whole_numbers_that_coincide(problems: int) -> None:
    """Equal caps, a cap at the value of a block, and a hidden variance of one, where the logarithm is zero."""
    rng = np.random.default_rng(7)
    for number in range(problems):
        gamma = LOSSES[number % len(LOSSES)]
        mu = np.cumsum(rng.integers(1, 3, int(rng.integers(2, 30)))) / 4
        h2, least_noise = rng.integers(0, 2, (2, mu.size)).astype(np.float64)
        least_noise[h2 == 0] = 1.0
        weight = float(2.0 ** rng.integers(-4, 4))
        contract = design_contract(DeviceTraits(mu, h2, least_noise), weight, 10, gamma)
        expected, _ = solve_p2(marginal_rewards(mu), h2, least_noise, 10, weight, slope_of(gamma))
        assert contract.mi_dp_bits == pytest.approx(expected, rel=1e-9)
        assert contract.verify().holds


def test_roots_where_functions_jump() -> None:
    jumps = np.array([0.0, 1.0, -3.0, 1e-9, 700.0])
    found = _roots(lambda x, k: np.where(x < jumps[k], -1e4, 2.0), jumps - 3.0, jumps + 5.0, np.arange(5))
    assert found == pytest.approx(jumps, rel=2e-15, abs=2e-15)


def test_clipping_pooled_budgets_to_their_caps_is_not_optimal() -> None:
    """A cap on one member of a block sets the others free to have smaller budgets, too."""
    mu, h2 = np.array([1.0, 1.1]), np.array([300.0, 1.0])
    pooled = design_contract(DeviceTraits(mu, h2), 1e4, 100)
    assert pooled.mi_dp_bits[0] == pooled.mi_dp_bits[1]
    capped = DeviceTraits(mu, h2, [0.0, 300.5])
    contract = design_contract(capped, 1e4, 100)
    clipped = np.minimum(pooled.mi_dp_bits, 0.5 * np.log2(1 + 100 / capped.least_hidden_variance))
    assert contract.mi_dp_bits == pytest.approx(np.full(2, clipped[1]))
    assert clipped[1] < clipped[0]
    assert contract.verify().holds
    noise = 100 / (4**clipped - 1) - h2
    utility_when_clipped = -np.square(noise).sum() - 1e4 * optimal_rewards(mu, clipped).sum()
    assert contract.server_utility > utility_when_clipped + 5.0


def test_equal_sensitivities_may_have_any_order() -> None:
    """Of two equally sensitive devices, the one that is cheaper to hear well comes first, wherever it stands in the list."""
    for flip in (1, -1):
        h2 = np.array([1.0, 400.0])[::flip]
        contract = design_contract(DeviceTraits([1.0, 1.0], h2), 1e4, 100)
        assert contract.menu.items == 2
        assert contract.verify().holds
        alone = [design_contract(DeviceTraits([1.0], [h]), 1e4, 100).mi_dp_bits[0] for h in h2]
        assert contract.mi_dp_bits == pytest.approx(np.array(alone), rel=1e-12)
