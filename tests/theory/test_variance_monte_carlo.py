"""The training engine has the exact variance.

The mean of ``||g - grad f||^2`` over draws of the real SCFL scheme may be off the closed form by at most 3 standard errors of
that mean. A correct implementation fails any one of the eight checks with probability 2.7e-3, one of them at all with about
2%; with fixed seeds the outcome is the same every time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from codedfl.arrays import FloatArray
from codedfl.schemes import scfl
from codedfl.streams import Streams
from codedfl.theory import round_variance
from codedfl.training import PreparedScheme, Scheme, Setting
from tests.problems import make_setting
from tests.theory.rounds import round_of, squared_norms, standard_error

SIGMAS = 3.0
DRAWS = 900
W = np.random.default_rng(5).standard_normal((3, 2))

NOISE = (0.1, 0.0, 0.4, 0.2)
HALF = np.array([True, False, True, False])
CASES: dict[str, tuple[Any, float, dict[str, Any]]] = {
    "adaptive batches, unequal noise": ("adaptive", 0.5, {"noise_variance": NOISE}),
    "fixed batches, unequal noise": (4, 0.5, {"noise_variance": NOISE}),
    "batches of one": (1, 0.5, {"noise_variance": 0.0}),
    "label noise": (4, 0.5, {"noise_variance": NOISE, "label_noise_variance": 0.5}),
    "some upload nothing": (4, 0.5, {"noise_variance": (0.1, 0.5, 0.4, 0.2), "participants": HALF}),
    "some upload nothing, adaptive, label noise": (
        "adaptive",
        0.3,
        {"noise_variance": (0.1, 0.5, 0.4, 0.2), "label_noise_variance": 0.3, "participants": HALF},
    ),
    "the server alone, small batch": (4, 0.0, {"noise_variance": NOISE, "server_batch": 2}),
    "the devices alone": ("adaptive", 1.0, {}),
}


def make_case(name: str) -> tuple[Scheme, Setting, float]:
    batch, weight, options = CASES[name]
    participants = options.get("participants")
    setting = make_setting(local_steps=1, **{key: value for key, value in options.items() if key != "participants"})
    return scfl(batch, weight), replace(setting, code=replace(setting.code, participants=participants)), weight


def sample_updates(scheme: Scheme, setting: Setting, draws: int) -> FloatArray:
    """Draw the aggregated update over projection, noise, batches and arrivals: draw k is round k of coded data k."""
    assert scheme.upload is not None
    assert scheme.server is not None
    plan = scheme.device.plan(setting)
    updates = []
    for k in range(draws):
        coded, cost = scheme.upload.prepare(replace(setting, streams=Streams(1000 + k)), plan)
        prepared = PreparedScheme(scheme, setting, plan, scheme.server.plan(setting, coded), coded, cost)
        updates.append(prepared.aggregate(k, plan.arrivals.attend(k), W, 0.01))
    return np.array(updates)


@pytest.mark.parametrize("name", CASES)
def test_the_engine_has_the_exact_variance(name: str) -> None:
    scheme, setting, weight = make_case(name)
    round = round_of(setting, scheme, weight)
    probability = round.arrival_probability
    assert probability.min() < 0.7 < probability.max(), "the problem must have stragglers of different kinds"
    assert round.server_batch < round.coded_samples
    X, Y = setting.federation.features, setting.federation.labels
    squares = squared_norms(sample_updates(scheme, setting, DRAWS) - X.T @ (X @ W - Y))
    exact, error = round_variance(round, W).total(), standard_error(squares)
    assert abs(squares.mean() - exact) < SIGMAS * error, (
        f"off by {(squares.mean() - exact) / error:.1f} standard errors"
    )
    # The check has power: it can tell the variance from one that is 30% too large or too small.
    assert error < 0.1 * exact


def test_adaptive_batches_are_no_batches_of_one_size() -> None:
    """Else the cases above would not test the mean of ``1 / b`` over the sizes that a device meets."""
    scheme, setting, _ = make_case("adaptive batches, unequal noise")
    inverse = 1 / round_of(setting, scheme).inverse_batch
    assert np.abs(inverse - inverse.round()).max() > 0.05
