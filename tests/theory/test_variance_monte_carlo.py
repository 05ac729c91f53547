"""The training engine has the exact variance.

The mean of ``||g - grad f||^2`` over draws of the real SCFL scheme may be off the closed form by at most 3 standard errors of
that mean. A correct implementation fails any one of the ten checks with probability 2.7e-3, one of them at all with about
3%; with fixed seeds the outcome is the same every time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pytest

from codedfl.schemes import scfl
from codedfl.setting import Setting
from codedfl.streams import Streams
from codedfl.theory import round_variance
from codedfl.training import Scheme
from codedfl.typing import FloatArray
from tests.problems import global_update, make_federation, make_setting
from tests.theory.rounds import round_of, squared_norms, standard_error

SIGMAS = 3.0
DRAWS = 600
W = np.random.default_rng(5).standard_normal((3, 2))

NOISE = (0.1, 0.0, 0.4, 0.2)
HALF = np.array([True, False, True, False])


@dataclass(frozen=True)
class Case:
    """A scheme in a setting, and the term of its variance that it is about."""

    batch: int | Literal["adaptive"]
    weight: float
    about: str
    options: dict[str, Any]
    features: int = 3
    outputs: int = 2


CASES = {
    "adaptive batches, devices alone": Case("adaptive", 1.0, "device_batches", {}),
    "adaptive batches": Case("adaptive", 0.7, "device_batches", {"noise_variance": NOISE}),
    "late devices": Case(4, 0.9, "arrivals", {"noise_variance": NOISE}),
    "batches of one": Case(1, 0.5, "device_batches", {"noise_variance": 0.0}),
    "unequal noise": Case(4, 0.2, "noise", {"noise_variance": (3.0, 0.0, 9.0, 6.0), "server_batch": 19}),
    "noise on labels": Case(
        4, 0.2, "label_noise", {"noise_variance": NOISE, "label_noise_variance": 20.0, "server_batch": 19}
    ),
    "some upload nothing": Case(
        4, 0.5, "device_batches", {"noise_variance": (0.1, 0.5, 0.4, 0.2), "participants": HALF}
    ),
    "some upload nothing, and the server has most of the weight": Case(
        "adaptive",
        0.1,
        "server_batches",
        {"noise_variance": (0.1, 5.0, 0.4, 2.0), "label_noise_variance": 3.0, "participants": HALF, "server_batch": 2},
    ),
    "a small batch of the server": Case(4, 0.0, "server_batches", {"noise_variance": NOISE, "server_batch": 2}),
    "one feature, one output": Case(4, 0.2, "server_batches", {"noise_variance": NOISE, "server_batch": 2}, 1, 1),
}


def make_case(case: Case) -> tuple[Scheme, Setting]:
    federation = make_federation(dimension=case.features, outputs=case.outputs, task="regression")
    options = {name: value for name, value in case.options.items() if name != "participants"}
    setting = make_setting(federation, local_steps=1, **options)
    code = replace(setting.code, participants=case.options.get("participants"))
    return scfl(case.batch, case.weight), replace(setting, code=code)


def sample_updates(scheme: Scheme, setting: Setting, model: FloatArray, draws: int) -> FloatArray:
    """Draw the aggregated update over projection, noise, batches and arrivals: draw k is round k of coded data k."""
    assert scheme.upload is not None
    assert scheme.server is not None
    plan = scheme.plan(setting)
    updates = []
    for k in range(draws):
        coded = scheme.held_in(replace(setting, streams=Streams(1000 + k)), plan)
        prepared = scheme.prepared(setting, plan, coded, cost=None)
        updates.append(global_update(prepared, k, model, 0.01))
    return np.array(updates)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name if place < 1 else pytest.param(name, marks=pytest.mark.slow) for place, name in enumerate(CASES)]
)
def test_the_engine_has_the_exact_variance(name: str) -> None:
    case = CASES[name]
    scheme, setting = make_case(case)
    round = round_of(setting, scheme, case.weight)
    probability = round.arrival_probability
    assert probability.min() < 0.75 < probability.max(), "the problem must have stragglers of different kinds"
    assert round.server_batch < round.coded_samples
    X, Y = setting.federation.features, setting.federation.labels
    model = W[: case.features, : case.outputs]
    squares = squared_norms(sample_updates(scheme, setting, model, DRAWS) - X.T @ (X @ model - Y))
    variance = round_variance(round, model)
    exact, error = variance.total(), standard_error(squares)
    assert abs(squares.mean() - exact) < SIGMAS * error, (
        f"off by {(squares.mean() - exact) / error:.1f} standard errors"
    )
    # The check has power: it would miss the term that the case is about.
    assert error < 0.1 * exact
    assert variance.terms()[case.about] > 2 * SIGMAS * error


def test_adaptive_batches_are_no_batches_of_one_size() -> None:
    """Else the cases above would not test the mean of ``1 / b`` over the sizes that a device meets."""
    scheme, setting = make_case(CASES["adaptive batches"])
    inverse = 1 / round_of(setting, scheme).inverse_batch
    assert np.abs(inverse - inverse.round()).max() > 0.05
