from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from codedfl.losses import SOFTMAX, SQUARE, Loss
from codedfl.privacy import GaussianMechanism, PrivacyTarget, ThreatModel, epsilon_of, gaussian_mu
from codedfl.setting import LARGEST_GRAM, Setting
from codedfl.uploads import (
    GROWTH,
    MEAN_SHARE,
    MOMENTS_SHARE,
    MOST_FIRST_ORDER_ROUNDS,
    MOST_ROUNDS,
    Budget,
    CurvatureDetail,
    divide,
)

DELTA = 1e-5


def divided(
    epsilon: float = 2.0,
    curvature: CurvatureDetail = "auto",
    *,
    sampling_rate: float = 1.0,
    rounds: int = 0,
    threat_model: ThreatModel = "each-message",
    loss: Loss = SOFTMAX,
    samples: int = 60_000,
    dimension: int = 200,
    devices: int = 20,
    spent: tuple[GaussianMechanism, ...] = (),
) -> Budget:
    """Divide a budget of a problem that is nothing but its sizes."""
    sizes = np.full(devices, samples // devices)
    federation = SimpleNamespace(samples=sizes, total_samples=samples, dimension=dimension)
    setting = cast(Setting, SimpleNamespace(federation=federation))
    target = PrivacyTarget(epsilon, DELTA, threat_model, spent=spent)
    return divide(setting, target, loss, curvature, sampling_rate, rounds)


def updates(budget: Budget) -> list[GaussianMechanism]:
    return [GaussianMechanism(float(z)) for z in budget.noise_multipliers]


@pytest.mark.parametrize("epsilon", [0.3, 2.0, 30.0])
@pytest.mark.parametrize("curvature", ["auto", "second-moments", "mean", "none"])
@pytest.mark.parametrize("spent", [(), (GaussianMechanism(50.0),)])
def test_everything_that_is_sent_composes_to_the_target(
    epsilon: float, curvature: CurvatureDetail, spent: tuple[GaussianMechanism, ...]
) -> None:
    budget = divided(epsilon, curvature, spent=spent)
    sent = [*spent, *(mechanism for _, mechanism in budget.uploads), *updates(budget)]
    assert epsilon_of(sent, DELTA) == pytest.approx(epsilon, rel=1e-6)
    together = epsilon_of([GaussianMechanism(budget.effective_multiplier)], DELTA)
    assert together == pytest.approx(epsilon_of(updates(budget), DELTA), rel=1e-9), "one update that tells as much"


@pytest.mark.parametrize(("rate", "rounds"), [(0.1, 12), pytest.param(0.02, 60, marks=pytest.mark.slow)])
def test_poisson_batches_keep_the_target_closely(rate: float, rounds: int) -> None:
    budget = divided(1.0, "mean", sampling_rate=rate, rounds=rounds)
    (z,) = set(budget.noise_multipliers.tolist())
    assert budget.rounds == rounds
    sent = [*(mechanism for _, mechanism in budget.uploads), GaussianMechanism(z, rounds, rate)]
    assert 0.999 < epsilon_of(sent, DELTA) <= 1.0
    assert z < divided(1.0, "mean", rounds=rounds).noise_multipliers.min(), "sampling amplifies privacy"
    assert budget.effective_multiplier == pytest.approx(z / (rate * math.sqrt(rounds)))


def test_mean_and_second_moments_use_their_shares_of_mu_squared() -> None:
    mu = gaussian_mu(2.0, DELTA)
    budget = divided(2.0, "second-moments")
    assert (budget.mean_multiplier * mu) ** -2 == pytest.approx(MEAN_SHARE, rel=1e-9)
    assert (budget.moments_multiplier * mu) ** -2 == pytest.approx(MOMENTS_SHARE, rel=1e-9)
    left = float(np.sum((budget.noise_multipliers * mu) ** -2))
    assert left == pytest.approx(1 - MEAN_SHARE - MOMENTS_SHARE, rel=1e-9)
    assert [name for name, _ in budget.uploads] == ["mean of the features", "second moments"]
    assert [name for name, _ in divided(2.0, "mean").uploads] == ["mean of the features"]
    assert divided(2.0, "none").uploads == ()


def test_gradients_become_more_precise_by_a_constant_factor_each_round() -> None:
    precision = divided(rounds=40).noise_multipliers ** -2.0
    np.testing.assert_allclose(precision[1:] / precision[:-1], GROWTH ** (1 / 40), rtol=1e-9)


@pytest.mark.parametrize("loss", [SOFTMAX, SQUARE])
@pytest.mark.parametrize("curvature", ["mean", "second-moments"])
def test_less_noise_is_worth_more_rounds(loss: Loss, curvature: CurvatureDetail) -> None:
    """Noise of second moments and of updates shrinks alike, so that their number of rounds does not depend on it."""
    counts = [divided(epsilon, curvature, loss=loss).rounds for epsilon in (0.01, 0.1, 1.0, 10.0, 1000.0)]
    assert counts == sorted(counts)
    assert counts[0] >= 4
    assert counts[-1] <= MOST_ROUNDS
    if curvature == "mean":
        assert counts[0] < counts[-1]
        more_data = [divided(1.0, curvature, loss=loss, samples=size).rounds for size in (200, 2000, 20_000, 200_000)]
        assert more_data == sorted(more_data)
        assert more_data[0] < more_data[-1]
        # Sums have less noise than messages of each device.
        assert (
            divided(1.0, curvature, loss=loss, threat_model="sums-only").rounds
            > divided(1.0, curvature, loss=loss).rounds
        )


def test_the_number_of_rounds_that_is_given_is_kept() -> None:
    for rounds, curvature in itertools.product((1, 7, 300), ("auto", "mean", "none")):
        assert divided(rounds=rounds, curvature=cast(CurvatureDetail, curvature)).rounds == rounds


def test_batches_take_twice_as_many_rounds_as_all_rows() -> None:
    few = {"samples": 2000, "devices": 4}
    whole, batches = (divided(1.0, "mean", sampling_rate=rate, **few).rounds for rate in (1.0, 0.5))  # type: ignore[arg-type]
    assert 4 < whole < batches <= 2 * whole


def test_auto_asks_for_second_moments_where_the_mean_would_take_too_many_rounds() -> None:
    seen = set()
    for epsilon in (0.1, 1.0, 10.0, 100.0, 1000.0):
        by_mean, chosen = divided(epsilon, "mean", samples=5000), divided(epsilon, samples=5000)
        seen.add(chosen.curvature)
        assert chosen.curvature == ("mean" if by_mean.rounds <= MOST_FIRST_ORDER_ROUNDS else "second-moments")
    assert seen == {"mean", "second-moments"}
    assert divided(1000.0, samples=5000, dimension=LARGEST_GRAM + 1).curvature == "mean"


def test_empty_devices_add_no_noise() -> None:
    def rounds(sizes: list[int]) -> int:
        federation = SimpleNamespace(samples=np.array(sizes), total_samples=sum(sizes), dimension=10)
        setting = cast(Setting, SimpleNamespace(federation=federation))
        return divide(setting, PrivacyTarget(2.0, DELTA), SQUARE, "mean", 1.0, 0).rounds

    assert rounds([3000] * 4 + [0] * 60) == rounds([3000] * 4) > rounds([12_000 // 64] * 64)
