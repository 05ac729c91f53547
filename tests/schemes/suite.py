"""What every scheme has to keep, as functions: a check raises an `AssertionError` if a scheme does not.

A check is given a scheme alone, and makes up a small setting for it: four devices with unequal data, of which some are late.
"""

from __future__ import annotations

import copy
import itertools
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from codedfl.errors import InputError
from codedfl.fleet import Attendance
from codedfl.identity import identity
from codedfl.privacy import guarantee_of, update_releases
from codedfl.schemes import describe
from codedfl.setting import Setting
from codedfl.streams import Streams
from codedfl.training import (
    Callback,
    Checkpoint,
    DevicePlan,
    LearningRate,
    Local,
    PreparedScheme,
    Round,
    Run,
    RunProgress,
    RunResult,
    Scheme,
    Start,
    StopTraining,
    accumulate_gradients,
    advance,
    load_checkpoint,
    train,
    train_together,
)
from codedfl.typing import FloatArray
from tests.private_settings import THREAT_MODELS, Everybody, private_setting
from tests.problems import make_federation, make_setting

Check = Callable[[Scheme], None]

SAMPLES = (7, 12, 5, 3)
ROUNDS = 5
EPSILON = 20.0
DRAWS = 200
"""Pairs of updates of which the noise is measured."""

SIGMAS = 5.0
"""Standard errors that a mean may be off by: one in two million is."""


# The step of the server --------------------------------------------------------------------------------------------------


def a_step_changes_nothing_that_it_was_given(scheme: Scheme) -> None:
    """States are kept, to go back to; messages may be those of several runs."""
    for passed in walk(scheme):
        assert same(passed.before, passed.given_state), "the state"
        assert same(dict(passed.round.payloads), passed.given_payloads), "a message"
        assert same(passed.round.server_update, passed.given_server_update), "the server's update"


def a_step_depends_on_its_arguments_alone(scheme: Scheme) -> None:
    for passed in walk(scheme):
        np.random.seed(passed.round.number)  # noqa: NPY002 (that nobody is to use)
        again, diagnostics = scheme.step(passed.before, passed.round)
        assert same(again, passed.after)
        assert same(diagnostics, passed.diagnostics)


def every_step_counts_one_round(scheme: Scheme) -> None:
    rounds = [(passed.before.round, passed.after.round) for passed in walk(scheme)]
    assert rounds == [(number, number + 1) for number in range(len(rounds))]


def the_order_of_arrival_does_not_matter(scheme: Scheme) -> None:
    """In double precision, up to the rounding of sums of a few terms and of a solution or two."""
    for passed in walk(scheme, setting_for(scheme, np.float64)):
        reordered, _ = scheme.step(passed.before, replace(passed.round, payloads=list(passed.round.payloads)[::-1]))
        size = 1.0 + np.abs(passed.after.model).max()
        assert np.abs(reordered.model - passed.after.model).max() <= 1e5 * np.finfo(np.float64).eps * size


def weights_make_up_for_who_is_missing(scheme: Scheme) -> None:
    """For gradient steps with weights 1 / p, the mean over all subsets of arrivals is exactly what the weights promise.

    With ``G_i`` the devices' updates and ``G_s`` the server's: ``E[W_1] = W_0 - eta (sum_i w_i G_i + (1 - w) G_s)``, with
    ``w_i = w`` for a device that the coded data stands for and 1 otherwise.
    """
    w = scheme.aggregation.device_weight
    if w is None or scheme.tunes_itself or scheme.describe_combination() != scheme.aggregation.describe():
        return
    prepared = scheme.prepare(setting_for(scheme, np.float64))
    shape, rng = prepared.model_shape, np.random.default_rng(4)
    state = scheme.init(prepared, rng.standard_normal(shape))
    messages = [
        {name: rng.standard_normal(size) for name, size in scheme.travels_up(shape).items()}
        for _ in range(len(SAMPLES))
    ]
    server_update = None if prepared.server is None else rng.standard_normal(shape)
    p, covered = np.array([0.9, 0.5, 0.2, 0.7]), np.array([True, True, False, True])
    mean = np.zeros(shape)
    for arrived in itertools.product((False, True), repeat=len(p)):
        here = np.array(arrived)
        round = Round(
            number=0,
            step_size=0.1,
            attendance=Attendance(np.array(SAMPLES) * here, here, np.zeros(len(p))),
            arrival_probability=p,
            covered=covered,
            payloads=[(int(i), messages[i]) for i in np.flatnonzero(here)],
            server_update=server_update,
        )
        mean += math.prod(np.where(here, p, 1 - p)) * scheme.step(state, round)[0].model
    expected = np.zeros(shape) if server_update is None else (1 - w) * server_update
    for i, message in enumerate(messages):
        expected = expected + (w if covered[i] else 1.0) * message["update"]
    assert np.abs(mean - (state.model - 0.1 * expected)).max() <= 1e3 * np.finfo(np.float64).eps


# Messages and devices ----------------------------------------------------------------------------------------------------


def what_travels_is_as_declared(scheme: Scheme) -> None:
    """Bytes, seconds and who is late follow from it."""
    setting, arrivals = setting_for(scheme), 0
    for passed in walk(scheme, setting):
        shape = passed.prepared.model_shape
        down, up = dict(scheme.travels_down(shape)), dict(scheme.travels_up(shape))
        assert up["update"] == shape
        assert shapes(scheme.broadcast(passed.before)) == down
        for _, payload in passed.round.payloads:
            assert shapes(payload) == up
            arrivals += 1
        assert passed.prepared.setting.workload().payload_bits == 32 * sum(math.prod(size) for size in up.values())
        assert passed.prepared.setting.workload().bits_down == 32 * sum(math.prod(size) for size in down.values())
    assert (arrivals > 0) == (scheme.prepare(setting).device.broadcasts and not scheme.one_shot)


def both_runtimes_have_the_same_devices(scheme: Scheme) -> None:
    """What a simulation computes for several runs at once is what `update` returns on a device."""
    for passed in walk(scheme):
        sent = scheme.broadcast(passed.before)
        for device, payload in passed.round.payloads:
            _, alone = scheme.update(passed.memories[device], sent, local_of(passed, device))
            assert same(dict(alone), dict(payload))


def a_device_keeps_to_itself(scheme: Scheme) -> None:
    """Its half depends on its memory, what was sent, its rows and the round; and not on what other devices did before."""
    for passed in walk(scheme):
        sent, plan = scheme.broadcast(passed.before), passed.prepared.device
        for device, payload in passed.round.payloads:
            memory = passed.memories[device]
            before = copy.deepcopy((memory, dict(sent)))
            for other, _ in passed.round.payloads:
                scheme.update(passed.memories[other], sent, local_of(passed, other))
            np.random.seed(100 + device)  # noqa: NPY002 (that nobody is to use)
            after, again = scheme.update(memory, sent, local_of(passed, device))
            assert same(dict(again), dict(payload))
            assert same(after, passed.next_memories[device])
            assert same((memory, dict(sent)), before), "what it remembers and was sent stays as it is"
            elsewhere = local_of(passed, device, with_other_rows(plan, passed.prepared.setting, device))
            assert same(dict(scheme.update(memory, sent, elsewhere)[1]), dict(payload)), "other devices' rows"


def who_is_late_remembers_what_it_did(scheme: Scheme) -> None:
    for passed in walk(scheme):
        arrived = {device for device, _ in passed.round.payloads}
        for device in set(range(len(SAMPLES))) - arrived:
            assert same(passed.memories[device], passed.next_memories[device])


# The whole run -----------------------------------------------------------------------------------------------------------


def the_final_model_is_one(scheme: Scheme) -> None:
    """Before the first round and after every one."""
    passed = list(walk(scheme))
    for state in [*(each.before for each in passed), passed[-1].after]:
        model = scheme.final_model(state)
        assert model.shape == passed[0].prepared.model_shape
        assert np.isfinite(model).all()


def single_precision_stays(scheme: Scheme) -> None:
    for passed in walk(scheme, setting_for(scheme, np.float32)):
        arrays = [passed.after.model, scheme.final_model(passed.after), *scheme.broadcast(passed.after).values()]
        arrays += [array for _, payload in passed.round.payloads for array in payload.values()]
        assert {array.dtype for array in arrays} == {np.dtype(np.float32)}


def its_rounds_are_settled(scheme: Scheme) -> None:
    """They are planned, and the noise is set for them, before the first."""
    setting = setting_for(scheme)
    rounds = [scheme.rounds(setting), scheme.rounds(setting_for(scheme)), fresh(scheme).rounds(setting)]
    assert len(set(rounds)) == 1
    assert rounds[0] is None or rounds[0] >= (0 if scheme.one_shot else 1)


def one_shot_is_one_shot(scheme: Scheme) -> None:
    """The model is complete after the upload: rounds are not asked for, and change nothing."""
    if not scheme.one_shot:
        return
    setting = setting_for(scheme)
    assert not scheme.rounds(setting)
    assert not scheme.prepare(setting).device.broadcasts
    at_once = train(scheme.prepare(setting), rate_of(scheme), 0)
    assert at_once.status in ("completed", "diverged")  # so few rows may leave a private model that is worse than none
    assert np.array_equal(at_once.model, train(scheme.prepare(setting), rate_of(scheme), 3).model)


def a_run_can_be_repeated(scheme: Scheme) -> None:
    """By the same object, and by one that is equal to it."""
    assert identity(scheme) == identity(fresh(scheme))
    assert scheme == fresh(scheme)
    first = trained(scheme)
    assert_identical(first, trained(scheme))
    assert_identical(first, trained(fresh(scheme)))


def a_resumed_run_equals_an_uninterrupted_one(scheme: Scheme) -> None:
    """Bit for bit, after a checkpoint that was written halfway, by a process that knows nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.npz"
        try:
            stopped = trained(fresh(scheme), Checkpoint(path, "same", every_s=0.0), _StopAfter(2))
        except InputError as error:  # a state that no checkpoint can hold is refused at once
            raise AssertionError(str(error)) from error
        run = a_run(fresh(scheme))
        run.progress, _ = load_checkpoint(path, run, "same")
    assert run.round == 2
    assert same(run.progress.state, stopped.progress.state)
    assert same(run.progress.devices, stopped.progress.devices)
    (resumed,) = train_together([run])
    assert_identical(resumed, trained(fresh(scheme)))


def runs_in_lock_step_do_not_meet(scheme: Scheme) -> None:
    """Two runs that share batches end as each does alone, up to the order in which wider products add their terms."""
    setting = setting_for(scheme, np.float64)
    rates = (rate_of(scheme), LearningRate(0.5 * rate_of(scheme).initial))
    alone = [train_together([a_run(scheme, setting, rate)])[0] for rate in rates]
    together = train_together([a_run(scheme, setting, rate) for rate in rates])
    for one, other in zip(alone, together, strict=True):
        size = 1.0 + np.abs(one.model).max()
        assert np.abs(one.model - other.model).max() <= 1e5 * np.finfo(np.float64).eps * size
        assert one.progress.ledger.arrivals == other.progress.ledger.arrivals


# What it says ------------------------------------------------------------------------------------------------------------


def it_describes_itself(scheme: Scheme) -> None:
    words = [scheme.name, scheme.title, *describe(scheme)]
    words += [remark for passed in walk(scheme) for remark in scheme.remarks(passed.after)]
    for text in words:
        assert text.strip()
        assert text == " ".join(text.split()), "one line"
    assert scheme.colour is None or (len(scheme.colour) == 7 and int(scheme.colour.removeprefix("#"), 16) >= 0)


def its_costs_are_known_beforehand(scheme: Scheme) -> None:
    """Nothing has to be drawn to know them, and nothing is earned."""
    setting = setting_for(scheme)
    prepared = scheme.prepare(setting)
    for macs in (
        scheme.preparing_macs(prepared.setting, prepared.device),
        scheme.aggregation_macs(prepared.setting),
    ):
        assert 0 <= macs < math.inf
    cost = scheme.upload_cost(prepared.setting, prepared.device)
    assert (cost is None) == (prepared.upload_cost is None) == (scheme.upload is None)
    if cost is not None and prepared.upload_cost is not None:
        for charged, known in zip(astuple(prepared.upload_cost), astuple(cost), strict=True):
            assert np.array_equal(charged, known)
            assert np.all(np.asarray(known) >= 0)


def what_it_sends_keeps_the_target(scheme: Scheme) -> None:
    """The uploads and all updates of a private scheme stay within the epsilon, by what its plan says about its noise."""
    if not scheme.private:
        return
    for threat_model in THREAT_MODELS:
        prepared = scheme.prepare(private_setting(EPSILON, threat_model, samples=SAMPLES))
        setting, plan, upload = prepared.setting, prepared.device, scheme.upload
        rounds = 0 if scheme.one_shot else scheme.rounds(setting) or 0
        precision = sum(plan.precision(number) for number in range(rounds))
        assert setting.privacy is not None
        sent = [
            (
                *(() if upload is None else upload.releases(setting, plan, device)),
                *update_releases(rounds, precision, plan.sampling_rate),
            )
            for device in range(len(SAMPLES))
        ]
        guarantee = guarantee_of(sent, setting.privacy.delta)
        assert guarantee.covers == "everything"
        assert guarantee.epsilon <= EPSILON * (1 + 1e-9)


def its_noise_is_as_its_plan_says(scheme: Scheme) -> None:
    """The variance of a device's update over draws of its noise, by a chi-squared test; a server of sums sees all shares."""
    if not scheme.private or scheme.one_shot:
        return
    for threat_model in THREAT_MODELS:
        setting = private_setting(EPSILON, threat_model, samples=SAMPLES)
        prepared = scheme.prepare(setting, arrivals=Everybody(setting.federation.samples))
        plan, shape = prepared.device, prepared.model_shape
        clip_norm = getattr(plan, "clip_norm")  # noqa: B009 (every private gradient has one)
        total, count = 0.0, 0
        for draw in range(DRAWS):
            first, second = (
                _update(replace(plan, streams=Streams(2 * draw + place)), 0, shape)  # type: ignore[type-var]
                for place in (0, 1)
            )
            variance = clip_norm**2 / plan.precision(0) / plan.shares
            total += float(np.sum((first - second) ** 2)) / (2 * variance)
            count += first.size
        assert stats.chi2.ppf(stats.norm.sf(SIGMAS), count) <= total <= stats.chi2.isf(stats.norm.sf(SIGMAS), count)


CHECKS: tuple[Check, ...] = (
    a_step_changes_nothing_that_it_was_given,
    a_step_depends_on_its_arguments_alone,
    every_step_counts_one_round,
    the_order_of_arrival_does_not_matter,
    weights_make_up_for_who_is_missing,
    what_travels_is_as_declared,
    both_runtimes_have_the_same_devices,
    a_device_keeps_to_itself,
    who_is_late_remembers_what_it_did,
    the_final_model_is_one,
    single_precision_stays,
    its_rounds_are_settled,
    one_shot_is_one_shot,
    a_run_can_be_repeated,
    a_resumed_run_equals_an_uninterrupted_one,
    runs_in_lock_step_do_not_meet,
    it_describes_itself,
    its_costs_are_known_beforehand,
    what_it_sends_keeps_the_target,
    its_noise_is_as_its_plan_says,
)


# Settings, rounds and comparisons ----------------------------------------------------------------------------------------


def setting_for(scheme: Scheme, dtype: Any = np.float32) -> Setting:
    """Return a small setting with all that a scheme may need."""
    if scheme.private:
        return private_setting(EPSILON, samples=SAMPLES, dtype=dtype, label_bound=1.0)
    return make_setting(make_federation(SAMPLES, dtype=dtype))


def rate_of(scheme: Scheme) -> LearningRate:
    return LearningRate(1.0 if scheme.tunes_itself else 0.02)


def rounds_of(scheme: Scheme, setting: Setting) -> int:
    """Return a few rounds, no more than a private scheme has noise for."""
    return min(scheme.rounds(setting) or ROUNDS, ROUNDS)


def fresh(scheme: Scheme) -> Scheme:
    """Return the scheme as another process would make it: its fields, and nothing that it may have kept elsewhere."""
    return replace(scheme)


@dataclass(frozen=True, eq=False)
class Passed:
    """A round that has passed.

    Args:
        prepared: the scheme in its setting.
        before: the state before it.
        round: what arrived.
        after: the state after it.
        diagnostics: those of the step.
        memories: what every device remembered before.
        next_memories: what they remember afterwards.
        given_state: a copy of the state from before the step.
        given_payloads: the same of the messages.
        given_server_update: the same of the server's update.
    """

    prepared: PreparedScheme
    before: Any
    round: Round
    after: Any
    diagnostics: Mapping[str, float]
    memories: Sequence[Any]
    next_memories: Sequence[Any]
    given_state: Any
    given_payloads: Any
    given_server_update: Any


def walk(scheme: Scheme, setting: Setting | None = None) -> Iterator[Passed]:
    """Yield the first rounds of a run, computed as the simulator does."""
    setting = setting or setting_for(scheme)
    run = a_run(scheme, setting)
    nothing = (None,) * len(SAMPLES)

    def arrived(_: Run, round: Round) -> Round:
        return replace(round, payloads=[(device, dict(payload)) for device, payload in round.payloads])

    for number in range(rounds_of(scheme, setting)):
        before, memories = run.progress.state, copy.deepcopy(run.progress.devices) or nothing
        (round,) = advance(number, [run], arrived)
        given = copy.deepcopy((before, dict(round.payloads), round.server_update))
        after, diagnostics = scheme.step(before, round)
        yield Passed(run.prepared, before, round, after, diagnostics, memories, run.progress.devices or nothing, *given)
        run.progress.state = after


def a_run(scheme: Scheme, setting: Setting | None = None, rate: LearningRate | None = None) -> Run:
    setting = setting or setting_for(scheme)
    rounds = rounds_of(scheme, setting)
    return Run(scheme.prepare(setting), rate or rate_of(scheme), rounds, evaluate_every=2)


def trained(scheme: Scheme, *callbacks: Callback) -> RunResult:
    setting = setting_for(scheme)
    rounds = rounds_of(scheme, setting)
    return train(scheme.prepare(setting), rate_of(scheme), rounds, evaluate_every=2, callbacks=callbacks)


class _StopAfter(Callback):
    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def on_round(self, progress: RunProgress) -> None:
        if progress.state.round == self.rounds:
            raise StopTraining("enough")


def local_of(passed: Passed, device: int, plan: DevicePlan | None = None) -> Local:
    """Return the local work of a device in a round, as both runtimes make it."""
    prepared, number = passed.prepared, passed.round.number
    plan, batch = plan or prepared.device, dict(passed.round.attendance.arrivals())[device]
    samples = int(prepared.setting.federation.samples[device])
    return Local(
        lambda starts: plan.steps(device, number, batch, starts), plan.local_steps, passed.round.step_size, samples
    )


def with_other_rows(plan: Any, setting: Setting, device: int) -> DevicePlan:
    """Return a plan in which all other devices have other rows."""
    federation = setting.federation
    own = slice(int(federation.offsets[device]), int(federation.offsets[device + 1]))
    features = np.zeros_like(federation.features)
    features[own] = federation.features[own]
    changed: DevicePlan = replace(plan, federation=replace(federation, features=features))
    return changed


def _update(plan: DevicePlan, device: int, shape: tuple[int, int]) -> FloatArray:
    """Return the update of a device in the first round, from zero."""
    samples = int(getattr(plan, "federation").samples[device])  # noqa: B009 (plans of this package have it)
    start = Start(np.zeros(shape), 1.0)
    ((update,),) = accumulate_gradients([plan.steps(device, 0, samples, [start])])
    return update


def shapes(payload: Mapping[str, FloatArray]) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in payload.items()}


def leaves(record: Any, path: str = "") -> dict[str, Any]:
    """Return all numbers and arrays in a record, by the path that leads to each."""
    if is_dataclass(record) and not isinstance(record, type):
        parts = {item.name: getattr(record, item.name) for item in fields(record)}
    elif isinstance(record, Mapping):
        parts = {str(key): value for key, value in record.items()}
    elif isinstance(record, tuple | list):
        parts = {str(place): value for place, value in enumerate(record)}
    else:
        return {path: record}
    return {key: value for name, part in parts.items() for key, value in leaves(part, f"{path}.{name}").items()}


def same(one: Any, other: Any) -> bool:
    """Return whether two records have the same numbers, bit for bit and of the same types."""
    a, b = leaves(one), leaves(other)
    return a.keys() == b.keys() and all(
        type(a[name]) is type(b[name])
        and np.asarray(a[name]).dtype == np.asarray(b[name]).dtype
        and np.array_equal(a[name], b[name], equal_nan=isinstance(a[name], np.ndarray | float))
        for name in a
    )


def assert_identical(a: RunResult, b: RunResult) -> None:
    assert same(a.progress.state, b.progress.state)
    assert same(a.progress.devices, b.progress.devices)
    assert np.array_equal(a.model, b.model)
    np.testing.assert_array_equal([astuple(point) for point in a.curve], [astuple(point) for point in b.curve])
    for name in ("bits_up", "device_macs", "precision", "server_macs"):
        assert np.array_equal(getattr(a.progress.ledger, name), getattr(b.progress.ledger, name)), name
    assert (a.status, a.message) == (b.status, b.message)
