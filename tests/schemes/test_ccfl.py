"""CCFL against its slow transcription, and where it ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from codedfl.errors import InputError
from codedfl.fleet import TraceArrivals
from codedfl.schemes import CurvatureCoded, CurvatureState, ccfl
from codedfl.setting import Setting
from codedfl.training import Callback, LearningRate, PreparedScheme, RunProgress, RunResult, Start, train
from codedfl.typing import FloatArray
from tests.problems import make_federation, make_setting
from tests.reference import curvature as reference
from tests.support import mostly_slow

SIZES = (30, 40, 25, 12)
D, OUTPUTS = 8, 2
OWN_STEP = LearningRate(1.0)


def problem(scales: FloatArray | None = None, **changes: Any) -> Setting:
    federation = make_federation(SIZES, D, OUTPUTS, task="regression")
    if scales is not None:
        federation = replace(federation, features=federation.features * scales)
    return make_setting(federation, **changes)


UNEVEN = np.array([3.0, 3.0, *[0.5] * 6])
"""Two strong directions, of which a sketch of rank 2 keeps one."""


def half_present(rounds: int, setting: Setting, probability: float = 0.5) -> TraceArrivals:
    """Full batches from devices that miss half of the rounds."""
    devices = setting.federation.devices
    arrived = np.random.default_rng(5).random((rounds, devices)) < probability
    batches = np.where(arrived, setting.federation.samples, 0)
    return TraceArrivals(batches, arrived, np.full(devices, probability), duration_s=1.0)


class States(Callback):
    """Keeps the state after every round."""

    def __init__(self) -> None:
        self.states: list[CurvatureState] = []

    def on_round(self, progress: RunProgress) -> None:
        assert isinstance(progress.state, CurvatureState)
        self.states.append(progress.state)


def state_of(result: RunResult) -> CurvatureState:
    state = result.progress.state
    assert isinstance(state, CurvatureState)
    return state


def slow_server(prepared: PreparedScheme, damping_factor: float = 1.0) -> reference.Server:
    sketch, samples = prepared.held, prepared.setting.federation.samples.astype(np.float64)
    model = reference.curvature(
        sketch.test_matrix, sketch.products, sketch.label_products, sketch.energy, sketch.rows, samples
    )
    memory = reference.Memory(model.H, model.b, sketch.rows.tolist(), samples.tolist())
    return reference.Server(memory, model.P_inverse, damping_factor * model.damping, np.zeros(prepared.model_shape))


def gradients(prepared: PreparedScheme, round: int, W: FloatArray) -> list[reference.Arrival]:
    """Return the gradients of a round, one sample after the other, on the rows that the plan chose."""
    plan, found = prepared.device, []
    for device, batch in plan.arrivals.attend(round).arrivals():
        X, Y = prepared.setting.federation.device(device)
        (chosen,) = plan.steps(device, round, batch, [Start(W, 1.0)]).batches
        rows = range(len(X)) if chosen is None else np.asarray(chosen).tolist()
        total = np.zeros_like(W)
        for row in rows:
            total += np.outer(X[row], X[row] @ W - Y[row])
        found.append((device, len(X) / batch * total, batch))
    return found


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ({"rank": 6, "sketch_rows": 10}, {}),
        ({"rank": 6, "sketch_rows": 2, "deadline": "fixed"}, {}),
        ({"rank": 8, "sketch_rows": 100}, {}),
        ({"rank": 6, "sketch_rows": 10}, {"cohort": 2}),
        ({"rank": 2, "sketch_rows": 1, "damping_factor": 1e-3}, {"cohort": 3, "scales": UNEVEN}),
        ({"rank": 5, "sketch_rows": 8}, {"participants": (True, False, True, False)}),
    ],
)
def test_it_is_its_slow_transcription(options: dict[str, Any], changes: dict[str, Any]) -> None:
    """Fifteen rounds agree up to what the shift of 1e-8 in Nyström does."""
    participants = np.array(changes.get("participants", [True] * len(SIZES)))
    setting = problem(**{key: value for key, value in changes.items() if key != "participants"})
    setting = replace(setting, code=replace(setting.code, participants=participants))
    prepared = ccfl(**options).prepare(setting)
    seen = States()
    result = train(prepared, OWN_STEP, 15, callbacks=[seen])
    slow = slow_server(prepared, options.get("damping_factor", 1.0))
    missing = 0
    for k, state in enumerate(seen.states):
        arrived = gradients(prepared, k, slow.W)
        missing += len(SIZES) - len(arrived)
        slow.round(arrived)
        size = np.abs(slow.W).max()
        np.testing.assert_allclose(state.model, slow.W, rtol=0, atol=1e-5 * size, err_msg=f"round {k}")
        np.testing.assert_allclose(result.scheme.final_model(state), slow.average, rtol=0, atol=1e-5 * size)
        assert (state.round, state.dampings) == (k + 1, slow.dampings)
        assert state.damping == pytest.approx(slow.damping, rel=1e-4)
    assert missing > 0
    if options.get("damping_factor", 1.0) < 1:
        assert slow.dampings > 0


@pytest.mark.parametrize(
    ("rank", "sketch_rows"), [(2, 1), *(pytest.param(*sizes, marks=pytest.mark.slow) for sizes in ((4, 2), (8, 40)))]
)
@pytest.mark.parametrize("probability", [0.3, pytest.param(1.0, marks=pytest.mark.slow)])
def test_it_converges_to_the_optimum_however_bad_the_sketch(rank: int, sketch_rows: int, probability: float) -> None:
    setting, rounds = problem(), 600
    prepared = ccfl(rank, sketch_rows).prepare(setting, arrivals=half_present(rounds, setting, probability))
    result = train(prepared, OWN_STEP, rounds, evaluate_every=rounds)
    optimum = setting.gram.optimum
    assert np.linalg.norm(result.progress.state.model - optimum) < 1e-8 * np.linalg.norm(optimum)
    assert result.final.distance < 1e-4, "the average lags behind"


@pytest.mark.slow
def test_noise_in_the_sketch_does_not_move_the_optimum() -> None:
    setting, rounds = problem(noise_variance=3.0, label_noise_variance=3.0), 1500
    prepared = ccfl(6, 10, noise=True).prepare(setting, arrivals=half_present(rounds, setting))
    assert prepared.held.noise_norm > 0
    result = train(prepared, OWN_STEP, rounds, evaluate_every=rounds)
    assert np.linalg.norm(result.progress.state.model - setting.gram.optimum) < 1e-6


def test_too_little_damping_is_noticed_and_raised() -> None:
    setting, rounds = problem(UNEVEN), 400
    arrivals = half_present(rounds, setting)
    prepared = ccfl(2, 1, damping_factor=1e-4).prepare(setting, arrivals=arrivals)
    result = train(prepared, OWN_STEP, rounds, evaluate_every=rounds)
    state = state_of(result)
    assert result.status == "completed"
    assert state.dampings >= 2
    first = ccfl(2, 1).prepare(setting, arrivals=arrivals)
    suggested = state_of(train(first, OWN_STEP, 1)).damping
    assert state.damping == pytest.approx(1e-4 * suggested * 4.0**state.dampings)
    assert np.linalg.norm(result.progress.state.model - setting.gram.optimum) < 1e-5


def test_a_round_that_does_not_settle_returns_to_the_best_model_and_its_memory() -> None:
    setting, rounds = problem(UNEVEN), 60
    seen = States()
    prepared = ccfl(2, 1, damping_factor=1e-4).prepare(setting, arrivals=half_present(rounds, setting))
    train(prepared, OWN_STEP, rounds, callbacks=[seen])
    raised = [k for k in range(1, rounds) if seen.states[k].dampings > seen.states[k - 1].dampings]
    assert raised
    for k in raised:
        before, after = seen.states[k - 1], seen.states[k]
        assert np.array_equal(after.model, before.anchor.model)
        assert np.array_equal(after.average, before.anchor.model)
        assert np.array_equal(after.memory.residuals, before.anchor.memory.residuals)
        assert np.array_equal(after.memory.coefficients, before.anchor.memory.coefficients)
        assert np.array_equal(after.memory.rows, before.anchor.memory.rows)
        assert after.damping == 4 * before.damping
        assert after.round == before.round + 1, "the round stays charged"


@pytest.mark.parametrize("memory", mostly_slow(["stale", "none"], "stale"))
def test_devices_heard_of_for_the_first_time_are_no_sign_of_instability(memory: Any) -> None:
    """Without a prior, the gradient grows when devices turn up one after the other; the damping need not."""
    setting, rounds = problem(), 100
    arrived = np.ones((rounds, 4), dtype=np.bool_)
    for device in range(4):
        arrived[: 10 * (3 - device), device] = False  # the one with the fewest rows first
    batches = np.where(arrived, setting.federation.samples, 0)
    arrivals = TraceArrivals(batches, arrived, np.ones(4), duration_s=1.0)
    result = train(ccfl(8, 40, memory=memory).prepare(setting, arrivals=arrivals), OWN_STEP, rounds)
    assert state_of(result).dampings == 0
    assert result.final.gap < 1e-2 * result.curve[0].gap


def test_a_good_sketch_needs_no_more_damping() -> None:
    setting, rounds = problem(), 100
    result = train(ccfl(8, 40).prepare(setting, arrivals=half_present(rounds, setting)), OWN_STEP, rounds)
    assert state_of(result).dampings == 0


def test_a_cohort_is_not_weighted_up() -> None:
    """Updates reach the scheme multiplied by N / n; a memory of every device takes them as they are."""
    setting, rounds = problem(cohort=1, local_steps=1, deadline_s=100.0), 300
    prepared = ccfl(8, 40, deadline="fixed").prepare(setting)
    assert prepared.device.arrivals.attend(0).weight == 4.0
    result = train(prepared, OWN_STEP, rounds, evaluate_every=rounds)
    assert np.linalg.norm(result.progress.state.model - setting.gram.optimum) < 1e-6


@pytest.mark.parametrize("memory", ["stale", "none"])
def test_the_other_memories_end_in_the_same_place(memory: Any) -> None:
    """With everybody present: then stale gradients are fresh, and weights are 1."""
    setting, rounds = problem(), 300
    scheme = ccfl(8, 40, memory=memory, damping_factor=3.0)
    arrivals = half_present(rounds, setting, probability=1.0)
    result = train(scheme.prepare(setting, arrivals=arrivals), OWN_STEP, rounds, evaluate_every=rounds)
    assert np.linalg.norm(result.progress.state.model - setting.gram.optimum) < 1e-6


def test_stale_gradients_are_those_of_the_last_round_that_a_device_made() -> None:
    """Averages of the last gradients, never carried: ``G = sum_i`` of them."""
    setting, rounds = problem(), 6
    prepared = ccfl(6, 10, memory="stale").prepare(setting, arrivals=half_present(rounds, setting))
    seen = States()
    train(prepared, OWN_STEP, rounds, callbacks=[seen])
    stored: dict[int, FloatArray] = {}
    W: FloatArray = np.zeros((D, OUTPUTS))
    for k, state in enumerate(seen.states):
        for device, gradient, _ in gradients(prepared, k, W):
            stored[device] = gradient if device not in stored else (stored[device] + gradient) / 2
        for device, expected in stored.items():
            np.testing.assert_allclose(-state.memory.residuals[device], expected, atol=1e-9)
        W = state.model


@pytest.mark.parametrize("estimated", [False, True])
def test_without_a_memory_arrivals_are_weighted_and_averaged(estimated: bool) -> None:
    setting, rounds = problem(), 5
    arrivals = half_present(rounds, setting)
    prepared = ccfl(6, 10, memory="none", estimate_arrivals=estimated).prepare(setting, arrivals=arrivals)
    seen = States()
    train(prepared, OWN_STEP, rounds, callbacks=[seen])
    W: FloatArray = np.zeros((D, OUTPUTS))
    mean, counts = np.zeros((D, OUTPUTS)), np.zeros(4)
    for k, state in enumerate(seen.states):
        total = np.zeros((D, OUTPUTS))
        arrived = gradients(prepared, k, W)
        for device, _, _ in arrived:
            counts[device] += 1
        for device, gradient, _ in arrived:
            total += gradient / ((counts[device] + 1) / (k + 2) if estimated else 0.5)
        share = max(0.1, 1 / (k + 1))
        mean = (1 - share) * mean + share * total
        np.testing.assert_allclose(state.memory.residuals[0], mean, atol=1e-9)
        W = state.model


def test_data_of_one_column_and_of_zeros() -> None:
    single = make_setting(make_federation((10, 12), 1, 1, task="regression"))
    result = train(ccfl().prepare(single, arrivals=half_present(80, single)), OWN_STEP, 80)
    assert result.final.distance < 1e-6
    federation = make_federation((5, 6), 3, 1, task="regression")
    zeros = make_setting(replace(federation, features=0 * federation.features))
    assert not train(ccfl().prepare(zeros), OWN_STEP, 3).progress.state.model.any()


def test_single_precision_data_keeps_a_model_in_single_precision() -> None:
    setting = make_setting(make_federation(SIZES, D, OUTPUTS, dtype=np.float32))
    state = state_of(train(ccfl().prepare(setting), OWN_STEP, 5))
    assert state.model.dtype == np.float32
    assert state.average.dtype == state.memory.residuals.dtype == np.float64


def test_the_server_is_charged_for_its_step() -> None:
    setting = problem()
    scheme = ccfl(6, 10)
    assert scheme.aggregation_macs(setting) == pytest.approx(4 * 5 * D * OUTPUTS + 3 * 4 * D * OUTPUTS)
    assert isinstance(scheme, CurvatureCoded)
    assert scheme.tunes_itself


@pytest.mark.parametrize("factor", [0.0, -1.0, np.nan, np.inf])
def test_an_impossible_damping_is_refused(factor: float) -> None:
    with pytest.raises(InputError, match="damping_factor = "):
        ccfl(damping_factor=factor)
