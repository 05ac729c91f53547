from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.incentive._game import capped_response, free_intensity, free_response, reward_at_intensity
from tests.reference.best_responses import answer_until_nobody_moves

Vector = npt.NDArray[np.float64]


def instances(number: int) -> list[tuple[float, Vector, Vector]]:
    """Rewards, sensitivities (some tied) and caps (some infinite, most binding for some)."""
    rng = np.random.default_rng(8)
    drawn = []
    for _ in range(number):
        devices = int(rng.integers(2, 9))
        mu = rng.uniform(0.5, rng.uniform(0.6, 4), devices)
        if rng.random() < 0.3:
            mu[-1] = mu[0]
        reward = 10 ** rng.uniform(-1, 3)
        caps = np.where(rng.random(devices) < 0.2, math.inf, reward * rng.uniform(0.01, 0.4, devices))
        drawn.append((float(reward), mu, caps))
    return drawn


def test_closed_form_is_where_best_answers_settle() -> None:
    outsiders = 0
    for reward, mu, caps in instances(60):
        found = free_response(reward, mu)
        settled = answer_until_nobody_moves(reward, mu.tolist(), [math.inf] * len(caps))
        assert found == pytest.approx(settled, rel=1e-6, abs=1e-9 * reward)
        outsiders += int((found == 0).any())
    assert outsiders > 10


def test_capped_root_is_where_capped_best_answers_settle() -> None:
    binding = drawn_in = 0
    for reward, mu, caps in instances(120):
        found = capped_response(reward, mu, caps)
        settled = answer_until_nobody_moves(reward, mu.tolist(), caps.tolist())
        assert found == pytest.approx(settled, rel=1e-6, abs=1e-9 * reward)
        assert (found <= caps).all()
        binding += int((found == caps).any())
        drawn_in += int(((found > 0) & (free_response(reward, mu) == 0)).any())
    assert binding > 60
    assert drawn_in > 10  # caps on others make room for devices that would stay out


def test_capped_root_solves_its_equation() -> None:
    for reward, mu, caps in instances(100):
        total = capped_response(reward, mu, caps).sum()
        assert np.clip(1 - mu * total / reward, 0, caps / total).sum() == pytest.approx(1, abs=1e-12)


def test_participants_join_as_the_rule_says() -> None:
    mu = 1 + 0.02 * np.arange(20)
    n = 2
    while n < 20 and mu[n] < mu[: n + 1].sum() / n:
        n += 1
    assert n == 11
    assert np.flatnonzero(free_response(70.0, mu)).tolist() == list(range(11))


@pytest.mark.parametrize("mu", [[0.1, 0.2, 0.3], [1.0, 1.0, 2.0], [0.7, 0.1 + 0.2, 0.4]])
def test_a_device_on_the_edge_of_leaving_stays_out(mu: list[float]) -> None:
    assert np.count_nonzero(free_response(1.0, np.array(mu))) == 2


def test_ties_give_up_the_same() -> None:
    mu = np.array([2.0, 1.0, 2.0, 1.0, 2.0])
    bits = free_response(3.0, mu)
    assert bits[1] == bits[3]
    assert bits[0] == bits[2] == bits[4]
    equal = free_response(5.0, np.full(4, 2.0))
    assert equal == pytest.approx(np.full(4, 5.0 * 3 / 16 / 2))


def test_all_caps_bind_when_the_reward_is_large() -> None:
    caps = np.array([1.0, 2.0, 3.0])
    assert capped_response(1e4, np.array([1.0, 2.0, 3.0]), caps).tolist() == caps.tolist()


@given(
    mu=st.lists(st.floats(0.1, 10), min_size=2, max_size=30),
    reward=st.floats(1e-3, 1e4),
    scale=st.floats(1e-3, 1e3),
    seed=st.integers(0, 2**32 - 1),
)
def test_scaling_and_reordering(mu: list[float], reward: float, scale: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    vector, order = np.array(mu), rng.permutation(len(mu))
    caps = reward * rng.uniform(0.01, 1, len(mu))
    assert free_response(scale * reward, vector) == pytest.approx(scale * free_response(reward, vector), rel=1e-12)
    bits = capped_response(reward, vector, caps)
    again = capped_response(reward, vector[order], caps[order])
    assert again == pytest.approx(bits[order], rel=1e-9, abs=1e-10 * reward)
    scaled = capped_response(scale * reward, vector, scale * caps) / scale
    assert scaled == pytest.approx(bits, rel=1e-9, abs=1e-10 * reward)


@given(seed=st.integers(0, 2**32 - 1), devices=st.integers(2, 40), fraction=st.floats(0.05, 0.999))
def test_reward_at_intensity_inverts_the_root(seed: int, devices: int, fraction: float) -> None:
    rng = np.random.default_rng(seed)
    mu = rng.uniform(0.5, 2, devices)
    caps = np.where(rng.random(devices) < 0.3, math.inf, rng.uniform(0.1, 5, devices))
    intensity = fraction * free_intensity(mu)
    reward = reward_at_intensity(intensity, mu, caps)
    if math.isinf(reward):
        uncapped = mu[np.isinf(caps)]
        assert np.maximum(1 - uncapped * intensity, 0).sum() >= 1
    else:
        assert capped_response(reward, mu, caps).sum() == pytest.approx(intensity * reward, rel=1e-7)
