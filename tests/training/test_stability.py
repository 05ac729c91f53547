"""Which step sizes can converge, against the mean round operator written out with numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from codedfl.experiment import run, sweep
from codedfl.schemes import cfl_fb, codedfedl, dp_cfl, fedavg, momentum, scfl
from codedfl.setting import Setting
from codedfl.training import LearningRate, PreparedScheme, Round, Run, Scheme, advance, round_growth, unstable_steps
from codedfl.typing import FloatArray
from tests.problems import make_federation, make_setting
from tests.support import Diary, small_config

DIMENSION, OUTPUTS = 5, 2
SOME = np.array([True, False, True, True])


def setting(participants: Any = None, **options: Any) -> Setting:
    data = make_federation((7, 12, 5, 9), DIMENSION, OUTPUTS, task="regression")
    made = make_setting(data, **{"local_steps": 3, "noise_variance": (0.1, 0.0, 0.4, 0.2), **options})
    return replace(made, code=replace(made.code, participants=participants))


CASES: dict[str, Callable[..., PreparedScheme]] = {
    "FedAvg": lambda **options: fedavg().prepare(setting(**options)),
    "FedAvg, fixed batch": lambda **options: fedavg(batch=4).prepare(setting(**options)),
    "SCFL": lambda **options: scfl().prepare(setting(**options)),
    "SCFL, another weight": lambda **options: scfl(device_weight=0.8).prepare(setting(**options)),
    "SCFL, some upload": lambda **options: scfl(batch=4).prepare(setting(SOME, **options)),
    "DP-CFL": lambda **options: dp_cfl().prepare(setting(**options)),
}


def steps_of(hessian: FloatArray, eta: float, tau: int) -> FloatArray:
    """Return ``I - (I - eta H)^tau``, how far ``tau`` steps go."""
    one = np.eye(len(hessian))
    result: FloatArray = one - np.linalg.matrix_power(one - eta * hessian, tau)
    return result


def operator(prepared: PreparedScheme, eta: float) -> FloatArray:
    """Return ``M`` of the module's docstring."""
    made, scheme = prepared.setting, prepared.scheme
    data, tau = made.federation, made.local_steps
    probability = prepared.device.arrivals.probability
    M = np.eye(data.dimension)
    for i in range(data.devices):
        X, _ = data.device(i)
        if scheme.name == "fedavg":
            weight = probability[i]
        elif scheme.name == "scfl":
            weight = (scheme.aggregation.device_weight or 0.0) if made.code.uploading[i] else 1.0
        else:
            weight = 0.0
        M = M - weight * steps_of(X.T @ X, eta, tau)
    if scheme.server:
        (coded,) = prepared.held
        C = coded.features.T @ coded.features / len(coded)
        if scheme.name == "scfl":
            C = C - made.code.noise_variance[made.code.uploading].sum() * np.eye(data.dimension)
        weight = 1 - (scheme.aggregation.device_weight or 0.0)
        M = M - weight * steps_of(C, eta, tau)
    return M


def largest(matrix: FloatArray) -> float:
    return float(np.abs(np.linalg.eigvalsh(matrix)).max())


@pytest.mark.parametrize("case", CASES)
def test_the_growth_is_the_largest_eigenvalue_of_the_mean_round(case: str) -> None:
    prepared = CASES[case]()
    etas = [scale / prepared.setting.gram.smoothness for scale in (1e-3, 0.1, 0.5, 1.0, 2.0, 5.0, 30.0)]
    growth = round_growth(prepared, etas, steps=DIMENSION)
    expected = [largest(operator(prepared, eta)) for eta in etas]
    assert growth is not None
    np.testing.assert_allclose(growth, expected, rtol=1e-9)
    assert expected[0] < 1 < expected[-1], "the case must have stable and unstable steps"


@pytest.mark.parametrize("case", CASES)
def test_fewer_steps_of_the_iteration_give_a_lower_bound(case: str) -> None:
    prepared = CASES[case]()
    etas = [scale / prepared.setting.gram.smoothness for scale in (0.5, 3.0)]
    exact = np.array([largest(operator(prepared, eta)) for eta in etas])
    for steps in range(1, DIMENSION + 3):
        growth = round_growth(prepared, etas, steps=steps)
        assert growth is not None
        assert (growth <= exact * (1 + 1e-9)).all()
        if steps >= DIMENSION:
            np.testing.assert_allclose(growth, exact, rtol=1e-9)


def test_single_precision_and_workers_are_served() -> None:
    data = make_federation((7, 12, 5, 9), DIMENSION, OUTPUTS, task="regression", dtype=np.float32)
    prepared = scfl().prepare(make_setting(data, local_steps=3))
    growth = round_growth(prepared, [0.05, 1.0], steps=DIMENSION)
    np.testing.assert_allclose(growth, [largest(operator(prepared, eta)) for eta in (0.05, 1.0)], rtol=1e-4)  # type: ignore[arg-type]


@pytest.mark.parametrize("draws", [120, pytest.param(1500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", CASES)
def test_actual_rounds_have_the_operator_as_their_mean(case: str, draws: int) -> None:
    """From two models, the mean difference after a round is within 4 standard errors in each of 10 coordinates.

    The difference of two models takes the labels out of the round: what is left is linear in it. For a correct operator one of
    all coordinates of all six cases fails with a chance below 0.4%; seeds are fixed.
    """
    prepared = CASES[case](server_batch=8)
    eta = 0.4 / prepared.setting.gram.smoothness
    error = np.random.default_rng(3).standard_normal((DIMENSION, OUTPUTS))
    runs = [Run(prepared, LearningRate(eta), 1, initial_model=model) for model in (error, 0 * error)]

    def update(run: Run, round: Round) -> FloatArray:
        return run.prepared.scheme.aggregation.combine(round, run.model)

    pairs = [advance(k, runs, update) for k in range(draws)]
    moved = np.array([error - eta * (ours - theirs) for ours, theirs in pairs])
    standard_error = moved.std(axis=0, ddof=1) / np.sqrt(draws)
    expected = operator(prepared, eta) @ error
    assert (np.abs(moved.mean(axis=0) - expected) < 4 * standard_error).all()
    # The check has power: it can tell the operator from that of half the step size.
    wrong = operator(prepared, eta / 2) @ error
    assert (np.abs(moved.mean(axis=0) - wrong) > 4 * standard_error).any()


def test_a_step_is_unstable_if_the_error_would_grow_a_hundredfold_in_a_run() -> None:
    prepared = CASES["FedAvg"]()
    steps = list(np.geomspace(0.1, 50.0, 40) / prepared.setting.gram.smoothness)
    growth = np.array([largest(operator(prepared, eta)) for eta in steps])
    for rounds in (1, 20, 1000):
        assert unstable_steps(prepared, steps, rounds) == {
            eta for eta, factor in zip(steps, growth, strict=True) if rounds * np.log(factor) > np.log(100)
        }
    assert len(unstable_steps(prepared, steps, 1)) < len(unstable_steps(prepared, steps, 1000)) < len(steps)


def test_overflow_is_unstable() -> None:
    assert unstable_steps(CASES["FedAvg"](), [1e-3, 1e300], 1) == {1e300}


@dataclass(frozen=True)
class OwnStep(Scheme):
    """A scheme whose server takes a step of its own."""

    def step(self, state: Any, round: Round) -> tuple[Any, Mapping[str, float]]:
        return super().step(state, round)


@pytest.mark.parametrize(
    "scheme",
    [cfl_fb(), codedfedl(2), OwnStep(**vars(fedavg())), momentum()],
    ids=["cfl-fb", "codedfedl", "own step", "momentum"],
)
def test_schemes_of_another_form_are_left_alone(scheme: Scheme) -> None:
    prepared = scheme.prepare(setting())
    assert round_growth(prepared, [0.1]) is None
    assert unstable_steps(prepared, [0.1, 1e9], 100) == set()


GRID: dict[str, Any] = {"learning_rate__scale": "grid", "learning_rate__grid": [0.2, 0.4, 50.0, 1e4]}


@pytest.mark.slow
def test_the_runner_does_not_try_unstable_steps_and_chooses_a_stable_one() -> None:
    tuned = run(small_config(schemes=["fedavg", "scfl", "dp-cfl"], training__rounds=60, **GRID))
    for result in tuned.results:
        assert result.status == "completed"
        assert result.choice is not None
        assert [trial.score > -np.inf for trial in result.choice.trials] == [True, True, False, False]
        step = result.learning_rate.initial
        assert result.scale in (0.2, 0.4)
        growth = round_growth(result.prepared, [step, 50.0 / 0.4 * step], steps=30)
        assert growth is not None
        assert growth[0] <= 1 + 1e-6 < growth[1]
    assert tuned.remarks == ()


@pytest.mark.parametrize("together", [False, True], ids=["run", "sweep"])
def test_noise_at_which_no_step_is_stable_is_remarked_on_with_the_remedies(together: bool) -> None:
    config = small_config(coding__noise_variance=300.0, coding__coded_samples=20, **GRID)
    diary = Diary()
    comparison = sweep([config], progress=diary)[0] if together else run(config, progress=diary)
    (remark,) = comparison.remarks
    assert remark.startswith("no step size of learning_rate.grid is stable for SCFL: ")
    for remedy in ("coding.noise_variance", "coding.coded_samples", "training.model_norm_bound", "smaller steps"):
        assert remedy in remark
    first = diary.entries.index(("say", remark, 0.0, None))
    trained = next(place for place, entry in enumerate(diary.entries) if entry[1] == "preparing SCFL")
    assert first < trained, "it is said before training"
    assert comparison["fedavg"].status == "completed"


def test_a_grid_of_large_steps_is_remarked_on() -> None:
    large = run(small_config(schemes=["fedavg"], learning_rate__scale="grid", learning_rate__grid=[1e4, 1e5]))
    assert large.remarks == ("no step size of learning_rate.grid is stable for FedAvg: add smaller steps.",)


def test_a_bounded_model_or_a_step_that_shrinks_may_try_all_of_the_grid() -> None:
    for changes in ({"training__model_norm_bound": 3.0}, {"learning_rate__decay_rounds": 5.0}):
        diary = Diary()
        tuned = run(small_config(schemes=["fedavg"], **changes, **GRID), progress=diary)
        assert diary.latest["step size of FedAvg"][1] == 4 * 6, "four steps of the grid, half of 12 rounds each"
        assert tuned.remarks == ()
