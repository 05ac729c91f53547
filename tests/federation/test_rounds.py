from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl.errors import InputError
from codedfl.federation._context import Conduct
from codedfl.federation._federation_config import FederationConfig
from codedfl.federation._rounds import Rounds
from codedfl.federation.transport import Kind, Packet
from tests.federation.support import (
    NAMES,
    InProcess,
    Tamper,
    change_client,
    coordinator,
    copy_federation,
    digits_config,
    events,
    open_clients,
    purpose_of,
    run,
)
from tests.support import mostly_slow

pytestmark = pytest.mark.usefixtures("naps", "seeded_server")

ROUNDS, TEST_ROWS = 8, 400
FAULTY = "south"
Spoil = Callable[[Packet], Packet | None]


def config(scheme: str = "ccfl", options: dict[str, Any] | None = None, **training: Any) -> FederationConfig:
    return digits_config(scheme=scheme, options=options or {}, training={"rounds": ROUNDS, **training})


def score(rounds: Rounds) -> float:
    return float(rounds.curve[-1]["score"])


def noise(undisturbed: float) -> float:
    """Three standard errors of the difference between two shares of 400 test rows."""
    return 3 * math.sqrt(2 * undisturbed * (1 - undisturbed) / TEST_ROWS)


def assert_within_noise(disturbed: float, undisturbed: float) -> None:
    assert abs(disturbed - undisturbed) <= noise(undisturbed)


def in_rounds(spoil: Spoil, rounds: Collection[int], device: str = FAULTY) -> Tamper:
    def tamper(name: str, kind: Kind, request: Packet, reply: Packet) -> Packet | None:
        return spoil(reply) if name == device and kind == "train" and request.values["round"] in rounds else reply

    return tamper


@pytest.fixture(scope="module")
def undisturbed(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Rounds:
    folder = copy_federation(digits, tmp_path_factory.mktemp("undisturbed") / "federation", config())
    return run(folder, open_clients(folder, "sketch"))


@pytest.fixture
def made(digits: Path, tmp_path: Path) -> Callable[[FederationConfig], Path]:
    return lambda config: copy_federation(digits, tmp_path / "federation", config)


def updated(change: Callable[[Any], Any]) -> Spoil:
    return lambda reply: Packet({"update": change(reply.arrays["update"])}, reply.values)


def valued(**values: Any) -> Spoil:
    return lambda reply: Packet(reply.arrays, {**reply.values, **values})


def times(factor: float) -> Spoil:
    return updated(lambda update: update * np.float32(factor))


FAULTS: dict[str, tuple[Spoil, str]] = {
    "not a number": (updated(lambda update: np.full_like(update, np.nan)), "update has 500 value(s) such as nan"),
    "one infinity": (
        updated(lambda update: np.where(np.arange(10) == 3, np.inf, update).astype(np.float32)),
        "such as inf",
    ),
    "wrong width": (updated(lambda update: np.vstack([update, update[:1]])), "update has the shape (51, 10)"),
    "wrong dtype": (updated(lambda update: update.astype(np.float64)), "update has the type <f8"),
    "absurd values": (times(1e35), "update has"),
    "round to come": (lambda reply: valued(round=int(str(reply.values["round"])) + 1)(reply), "round = "),
    "round before": (lambda reply: valued(round=int(str(reply.values["round"])) - 1)(reply), "round = "),
    "ten times the rows": (lambda reply: valued(batch_size=4000)(reply), "batch_size = 4000"),
    "no rows": (valued(batch_size=0), "batch_size = 0"),
    "other device": (valued(device="north"), "device = 'north', expected 'south'"),
    "negative time": (valued(compute_s=-1.0), "compute_s = -1.0"),
    "unreadable": (lambda _: Packet({}, {"unreadable": "it was pickled"}), "the array 'update' is missing"),
    "nothing": (lambda _: Packet(), "the array 'update' is missing"),
    "more than asked for": (valued(reward=1e9), "the value 'reward' is unknown"),
}


@pytest.mark.parametrize("fault", mostly_slow(FAULTS, "one infinity", "round before", "unreadable"))
def test_a_bad_update_is_refused_and_the_round_goes_on(
    made: Callable[[FederationConfig], Path], undisturbed: Rounds, fault: str
) -> None:
    folder = made(config())
    spoil, reason = FAULTS[fault]
    rounds = run(folder, open_clients(folder, "sketch"), in_rounds(spoil, {2, 5}))
    assert rounds.state.round == ROUNDS
    refused = events(folder, "refused")
    assert [(event["device"], event["round"], event["excluded"]) for event in refused] == [
        (FAULTY, 2, False),
        (FAULTY, 5, False),
    ]
    assert all(reason in event["reason"] for event in refused), refused[0]["reason"]
    arrived = rounds.arrivals.arrays()["arrived"]
    assert np.argwhere(~arrived).tolist() == [[2, 2], [5, 2]]
    devices = json.loads((folder / "results" / "summary.json").read_text())["devices"]
    assert [device["refused"] for device in devices] == [0, 0, 2, 0]
    assert [device["arrivals"] for device in devices] == [ROUNDS, ROUNDS, ROUNDS - 2, ROUNDS]
    assert reason in devices[2]["last_reason"]
    assert_within_noise(score(rounds), score(undisturbed))


def test_a_device_that_always_fails_is_excluded_and_the_others_go_on(
    made: Callable[[FederationConfig], Path], undisturbed: Rounds
) -> None:
    folder = made(config())
    exchange = InProcess(open_clients(folder, "sketch"), in_rounds(FAULTS["not a number"][0], range(2, ROUNDS)))
    rounds = coordinator(folder, exchange).run()
    assert rounds.state.round == ROUNDS
    assert [event["excluded"] for event in events(folder, "refused")] == [False, False, True]
    assert rounds.standing.excluded == (FAULTY,)
    assert exchange.asked.count((FAULTY, "train")) == 5, "two good rounds, three bad ones, and then no more"
    assert exchange.asked.count(("north", "train")) == ROUNDS
    conduct = rounds.standing.of(FAULTY)
    assert (conduct.refused, conduct.late) == (3, 0)
    assert_within_noise(score(rounds), score(undisturbed))


def test_accepted_updates_forgive_refused_ones(made: Callable[[FederationConfig], Path]) -> None:
    folder = made(config(most_refusals=2))
    rounds = run(folder, open_clients(folder, "sketch"), in_rounds(FAULTS["nothing"][0], {0, 2, 4, 6}))
    assert rounds.standing.excluded == ()
    assert rounds.standing.of(FAULTY) == Conduct(
        accepted=2 + 4, refused=4, last_reason=events(folder, "refused")[-1]["reason"]
    )


@pytest.mark.parametrize("device", ["north", "west"])
def test_the_norm_bound_stops_one_absurd_update_from_the_first_round_on(
    made: Callable[[FederationConfig], Path], undisturbed: Rounds, device: str
) -> None:
    """Whether it arrives first, when nobody else's is known, or last."""
    folder = made(config(norm_bound=2.0))
    rounds = run(folder, open_clients(folder, "sketch"), in_rounds(times(1e6), {0, 4}, device))
    assert [(event["device"], event["round"]) for event in events(folder, "bounded")] == [(device, 0), (device, 4)]
    assert rounds.standing.of(device).refused == 0
    assert_within_noise(score(rounds), score(undisturbed))


def test_the_norm_bound_limits_a_device_that_always_sends_ten_times_too_much(
    made: Callable[[FederationConfig], Path], undisturbed: Rounds
) -> None:
    folder = made(config(norm_bound=2.0))
    rounds = run(folder, open_clients(folder, "sketch"), in_rounds(times(10.0), range(ROUNDS)))
    assert [event["round"] for event in events(folder, "bounded")] == list(range(ROUNDS))
    others = [rounds.norms[name] for name in NAMES if name != FAULTY]
    assert rounds.norms[FAULTY] == pytest.approx(2.0 * float(np.median(others)), rel=1e-6)
    assert_within_noise(score(rounds), score(undisturbed))


def test_without_the_norm_bound_ten_times_too_much_is_believed(
    made: Callable[[FederationConfig], Path], undisturbed: Rounds
) -> None:
    """No check can tell it from a device with other data: this is what the option is for."""
    folder = made(config())
    rounds = run(folder, open_clients(folder, "sketch"), in_rounds(times(10.0), range(ROUNDS)))
    assert rounds.state.round == ROUNDS
    assert events(folder, "bounded") == events(folder, "refused") == []
    assert np.isfinite(rounds.model).all()
    assert score(rounds) < score(undisturbed) - noise(score(undisturbed))


def test_the_norm_bound_leaves_similar_devices_alone(
    made: Callable[[FederationConfig], Path], undisturbed: Rounds
) -> None:
    folder = made(config(norm_bound=10.0))
    rounds = run(folder, open_clients(folder, "sketch"))
    assert events(folder, "bounded") == []
    np.testing.assert_array_equal(rounds.model, undisturbed.model)


@pytest.mark.parametrize("learning_rate", [20.0, 1e9])
def test_a_training_that_diverges_stops_with_a_sentence_and_blames_nobody(
    made: Callable[[FederationConfig], Path], learning_rate: float
) -> None:
    folder = made(config("fedavg", rounds=200, learning_rate=learning_rate))
    server = coordinator(folder, InProcess(open_clients(folder, "coding")))
    with pytest.raises(InputError, match=r"training diverged in round \d+ with training\.learning_rate"):
        server.run()
    assert events(folder, "refused") == []


def test_the_model_is_projected_if_there_is_a_bound(made: Callable[[FederationConfig], Path]) -> None:
    folder = made(config("fedavg", rounds=3, model_norm_bound=0.1))
    rounds = run(folder, open_clients(folder, "coding"))
    assert np.linalg.norm(rounds.state.model) == pytest.approx(0.1, rel=1e-6)


# Devices that are away -------------------------------------------------------------------------------------------------


def test_a_lost_update_is_late_and_no_fault(made: Callable[[FederationConfig], Path], undisturbed: Rounds) -> None:
    folder = made(config())
    rounds = run(folder, open_clients(folder, "sketch"), in_rounds(lambda _: None, {1, 2, 3, 6}))
    assert [(event["device"], event["round"]) for event in events(folder, "late")] == [
        (FAULTY, round) for round in (1, 2, 3, 6)
    ]
    conduct = rounds.standing.of(FAULTY)
    assert (conduct.late, conduct.refused, conduct.excluded) == (4, 0, False)
    assert_within_noise(score(rounds), score(undisturbed))


def test_a_device_that_missed_rounds_is_asked_for_less_until_it_answers(
    made: Callable[[FederationConfig], Path],
) -> None:
    folder = made(config())
    asked: list[int] = []

    def tamper(device: str, kind: Kind, request: Packet, reply: Packet) -> Packet | None:
        if device == FAULTY and kind == "train":
            asked.append(int(str(request.values["batch_size"])))
            return None if len(asked) <= 3 else reply
        return reply

    run(folder, open_clients(folder, "sketch"), tamper)
    assert asked[:4] == [400, 200, 100, 50]
    assert asked[-1] == 400


@pytest.mark.parametrize("scheme", ["ccfl", "scfl", "fedavg"])
def test_rounds_without_anybody_take_their_time(
    made: Callable[[FederationConfig], Path], naps: list[float], scheme: str
) -> None:
    folder = made(config(scheme, deadline_s=5.0))
    exchange = InProcess(open_clients(folder, purpose_of(config(scheme))))

    def tamper(device: str, kind: Kind, request: Packet, reply: Packet) -> Packet:
        gone = kind == "train" and device == "west" and request.values["round"] == 1
        exchange.away = set(NAMES) if gone else exchange.away
        return reply

    exchange.tamper = tamper

    def back(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 12:
            exchange.away = set()

    server = coordinator(folder, exchange)
    server.context.sleep = back
    rounds = server.run()
    assert naps == [1.0] * 12, "two whole rounds of 5 seconds, and a part of the next"
    assert rounds.state.round == ROUNDS
    assert rounds.arrivals.arrays()["arrived"].any(axis=1).tolist() == [
        True,
        True,
        False,
        False,
        True,
        True,
        True,
        True,
    ]
    assert not rounds.arrivals.arrays()["batch_sizes"][2:4].any(), "nobody was asked"
    assert np.isfinite(rounds.model).all()
    assert events(folder, "late") == []


def test_nobody_is_waited_for_if_all_are_excluded(made: Callable[[FederationConfig], Path], naps: list[float]) -> None:
    folder = made(config("scfl", most_refusals=1))
    rounds = run(folder, open_clients(folder, "coding"), lambda *m: Packet() if m[1] == "train" else m[-1])
    assert rounds.standing.excluded == tuple(sorted(NAMES))
    assert rounds.state.round == ROUNDS, "the server trains on with the coded data"
    assert naps == []


def test_a_server_that_trains_alone_asks_nobody(made: Callable[[FederationConfig], Path], naps: list[float]) -> None:
    folder = made(config("dp-cfl"))
    exchange = InProcess(open_clients(folder, "coding"))
    rounds = coordinator(folder, exchange).run()
    assert rounds.state.round == ROUNDS
    assert {kind for _, kind in exchange.asked} == {"hello", "coded"}
    assert naps == []


# Devices that decline --------------------------------------------------------------------------------------------------


def test_a_device_without_coded_data_trains_with_its_full_weight(made: Callable[[FederationConfig], Path]) -> None:
    folder = made(config("scfl"))
    change_client(folder, FAULTY, "\nleast_noise_variance = 0.0", "\nleast_noise_variance = 1.0")
    rounds = run(folder, open_clients(folder, "coding"))
    assert rounds.prepared.setting.code.uploading.tolist() == [True, True, False, True]
    assert rounds.arrivals.arrays()["arrived"].all()
    assert rounds.standing.excluded == ()
    devices = json.loads((folder / "results" / "summary.json").read_text())["devices"]
    assert [device["uploaded"] for device in devices] == [True, True, False, True]


def test_a_device_that_has_trained_enough_declines_and_is_not_excluded(
    made: Callable[[FederationConfig], Path], undisturbed: Rounds
) -> None:
    folder = made(config())
    change_client(folder, FAULTY, "most_rounds = 10000", "most_rounds = 3")
    rounds = run(folder, open_clients(folder, "sketch"))
    assert rounds.arrivals.arrays()["arrived"][:, 2].tolist() == [True] * 3 + [False] * (ROUNDS - 3)
    declined = events(folder, "declined")
    assert len(declined) == ROUNDS - 3
    assert "policy.most_rounds = 3" in declined[0]["reason"]
    assert rounds.standing.of(FAULTY) == Conduct(accepted=2 + 3)
    assert_within_noise(score(rounds), score(undisturbed))


# What is asked ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        (config("fedavg", {"batch": 32}), [32] * 4),
        (config("fedavg", {"batch": 300}), [250, 300, 300, 300]),
        (config("fedavg", first_batch=20), [20] * 4),
        (config("fedavg"), [250, 350, 400, 397]),
    ],
)
def test_the_first_request_is_what_is_set(
    made: Callable[[FederationConfig], Path], given: FederationConfig, sizes: list[int]
) -> None:
    folder = made(given)
    asked: dict[str, int] = {}

    def tamper(device: str, kind: Kind, request: Packet, reply: Packet) -> Packet:
        if kind == "train" and request.values["round"] == 0:
            asked[device] = int(str(request.values["batch_size"]))
        return reply

    run(folder, open_clients(folder, "coding"), tamper)
    assert asked == dict(zip(NAMES, sizes, strict=True))


def test_the_estimate_in_force_weighs_updates(made: Callable[[FederationConfig], Path]) -> None:
    """Momentum 0 with one step is ``W - eta sum_i g_i / p_i``: in round 2, a device that missed round 1 has ``p = 2 / 3``."""
    folder = made(config("momentum", {"momentum": 0.0}, rounds=3))
    seen: dict[tuple[int, str], Any] = {}
    models: dict[int, Any] = {}

    def tamper(device: str, kind: Kind, request: Packet, reply: Packet) -> Packet | None:
        if kind != "train":
            return reply
        k = int(str(request.values["round"]))
        models[k] = request.arrays["model"].astype(np.float64)
        seen[k, device] = reply.arrays["update"].astype(np.float64)
        return None if (k, device) == (1, "east") else reply

    rounds = run(folder, open_clients(folder, "coding"), tamper)
    weights = {"north": 1.0, "east": 3 / 2, "south": 1.0, "west": 1.0}
    terms = [weights[name] * seen[2, name] for name in NAMES]
    expected = models[2] - rounds.learning_rate.initial * sum(terms)
    # Five roundings of a sum, a weight, a product and a difference, each relative to the sizes of its terms.
    sizes = np.abs(models[2]) + rounds.learning_rate.initial * sum(np.abs(term) for term in terms)
    assert (np.abs(rounds.state.model - expected) <= 8 * 2.0**-24 * sizes).all()
