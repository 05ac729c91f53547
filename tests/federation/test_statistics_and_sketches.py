"""Schemes that upload statistics, sketches or coded rows under one epsilon, from the first message to the model."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import scipy.linalg

from codedfl.coding import compute_gram
from codedfl.experiment import releases_of
from codedfl.federation import Client, FederationConfig
from codedfl.federation._rounds import Rounds
from codedfl.federation.transport import Kind, Packet
from codedfl.privacy import CodedMechanism, GaussianMechanism, epsilon_of, gaussian_mu, guarantee_of, rounding_delta
from codedfl.training import RunResult, train
from codedfl.typing import FloatArray
from codedfl.uploads import Terms, Upload
from tests.federation.support import (
    NAMES,
    InProcess,
    Killed,
    SeededRandomness,
    change_client,
    coordinator,
    digits_config,
    events,
    kill_at,
    missing,
    open_clients,
    pooled,
    run,
    upload_of,
)

pytestmark = pytest.mark.usefixtures("naps", "seeded_server")

EPSILON, DELTA = 4.0, 1e-5
GREETINGS = UPLOADS = len(NAMES)


def config(scheme: str, epsilon: float = EPSILON, **options: Any) -> FederationConfig:
    return digits_config(scheme=scheme, options=options, privacy={"epsilon": epsilon, "delta": DELTA})


FED3R = digits_config(scheme="fed3r", options={"ridge": 0.1})
SSP, ADASSP = config("ssp"), config("ssp", method="adassp")
IHM, SKETCHED_ROWS = config("ihm"), digits_config(**{
    "scheme": "ihm",
    "coding": {"coded_samples": 40},
    "privacy": {"epsilon": EPSILON, "delta": DELTA},
})  # fmt: skip
CODED, CODED_FACTOR = config("scfl-private", rounds=4), config("scfl-private", rounds=4, upload="factor")
ONE_SHOT = {"fed3r": FED3R, "ssp": SSP, "adassp": ADASSP}
ROUNDS = {"ihm": IHM, "ihm-rows": SKETCHED_ROWS, "scfl-private": CODED, "scfl-private-factor": CODED_FACTOR}
ALL = {**ONE_SHOT, **ROUNDS}
PRIVATE = {name: given for name, given in ALL.items() if given is not FED3R}


def each(configs: Mapping[str, FederationConfig]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("given", configs.values(), ids=configs.keys())


def seeded(folder: Path, given: FederationConfig) -> dict[str, Client]:
    """Open devices that draw what the simulator draws with seed 0."""
    return open_clients(folder, upload_of(given).purpose)


def simulated(folder: Path, given: FederationConfig, clients: Mapping[str, Client], rounds: Rounds) -> RunResult:
    """Return the run of the simulator with the same arrivals, and with an upload that it draws device by device."""
    scheme, upload = given.algorithm, upload_of(given)
    setting = pooled(folder, given, clients)
    declared = rounds.prepared.setting.code.participants
    setting = replace(setting, code=replace(setting.code, participants=declared))
    plan = scheme.plan(setting, rounds.arrivals.trace() if rounds.arrivals.rounds else None)
    held = Upload.simulated(upload, setting, plan)
    return train(scheme.prepared(setting, plan, held, cost=None), rounds.learning_rate, rounds.state.round)


def mechanisms(client: Client) -> list[CodedMechanism | GaussianMechanism]:
    """Return what the lines of a ledger are, each with its mechanism."""
    sent = [entry.mechanism for entry in client.ledger if entry.kind in ("upload", "update")]
    assert None not in sent
    return cast(list[CodedMechanism | GaussianMechanism], sent)


def spent(client: Client) -> float:
    return epsilon_of(mechanisms(client), DELTA)


def require_within_target(clients: Mapping[str, Client]) -> None:
    """Noise is solved for to 0.01%, and rounded up."""
    for client in clients.values():
        assert EPSILON * (1 - 1e-4) < spent(client) <= EPSILON * (1 + 1e-9)
        assert all(entry.epsilon is not None for entry in client.ledger), "whatever is sent has an epsilon"


# The same algorithm as in the simulator --------------------------------------------------------------------------------


@each(ONE_SHOT)
def test_a_solution_is_that_of_the_simulator_bit_for_bit(made: Callable[..., Path], given: FederationConfig) -> None:
    folder = made(given)
    clients = seeded(folder, given)
    rounds = run(folder, clients)
    assert rounds.state.round == 0
    np.testing.assert_array_equal(rounds.model, simulated(folder, given, clients, rounds).model)
    assert {cast(SeededRandomness, client.randomness).drawn for client in clients.values()} == {1}


@each(ROUNDS)
def test_rounds_are_those_of_the_simulator(made: Callable[..., Path], given: FederationConfig) -> None:
    folder = made(given)
    clients = seeded(folder, given)
    rounds = run(folder, clients, missing)
    result = simulated(folder, given, clients, rounds)
    for ours, theirs in zip(rounds.prepared.held, result.prepared.held, strict=True):
        np.testing.assert_array_equal(ours.features, theirs.features)
        np.testing.assert_array_equal(ours.labels, theirs.labels)
        assert ours.noise_variance == theirs.noise_variance
    # Of up to 400 rows, the simulator adds gradients up in float32; devices do so in float64.
    bound = rounds.state.round * 400 * np.finfo(np.float32).eps
    assert np.linalg.norm(rounds.model - result.model) < bound * np.linalg.norm(result.model)
    assert (rounds.arrivals.probability < 1).any(), "updates were missing"


def test_fed3r_is_centralised_ridge_regression(made: Callable[..., Path]) -> None:
    folder = made(FED3R)
    clients = open_clients(folder)
    rounds = run(folder, clients)
    X, Y = (
        np.vstack([np.asarray(getattr(clients[name].rows, part), np.float64) for name in NAMES])
        for part in ("features", "labels")
    )
    expected = scipy.linalg.solve(X.T @ X + 0.1 * np.eye(X.shape[1]), X.T @ Y, assume_a="pos")
    # Both solve in float64; the model is rounded to float32.
    np.testing.assert_allclose(rounds.model, expected, rtol=2.0**-24, atol=1e-9)


BOUNDED = {"data": {"target": ["digit"], "task": "regression", "classes": []}}
AROUND = {"epsilon": 20.0, "delta": DELTA, "label_center": 4.5, "label_bound": 3.0}


@pytest.mark.parametrize("scheme", ["ssp", "ihm", "scfl-private"])
def test_targets_of_a_regression_are_clipped_around_their_centre(made: Callable[..., Path], scheme: str) -> None:
    given = digits_config(scheme=scheme, privacy=AROUND, **BOUNDED)
    folder = made(given)
    clients = seeded(folder, given)
    labels = clients["north"].rows.labels
    assert np.abs(labels).max() > 3, "clipping matters here"
    rounds = run(folder, clients)
    expected = simulated(folder, given, clients, rounds).model
    bound = rounds.state.round * 400 * np.finfo(np.float32).eps  # as above; without rounds, bit for bit
    assert np.linalg.norm(rounds.model - expected) <= bound * np.linalg.norm(expected)
    exact = open_clients(made(given, "exact"))  # with noise of the operating system
    run(exact["north"].vault.folder.parents[2], exact)
    assert all(20 * (1 - 1e-4) < spent(client) <= 20 * (1 + 1e-9) for client in exact.values())


# What devices send ------------------------------------------------------------------------------------------------------


def test_statistics_have_exact_noise_of_the_agreed_size(made: Callable[..., Path]) -> None:
    """A standard deviation that is estimated from n numbers has the standard error 1 / sqrt(2 n), relatively."""
    folder = made(SSP)
    clients = open_clients(folder)
    rounds = run(folder, clients)
    agreed = upload_of(SSP).agreed_noise(SSP.terms)
    assert agreed is not None
    bound = SSP.clip_norm
    assert bound == 1.0
    noise: list[FloatArray] = []
    for name in NAMES:
        sent = clients[name].vault.stored(task_key(clients[name]))
        assert sent is not None
        exact = compute_gram([clients[name].rows.clipped(bound)]).features[np.triu_indices(50)]
        counted = np.where(np.equal(*np.triu_indices(50)), 1.0, math.sqrt(2))
        noise.append(counted * (sent["moments"] - exact) / math.sqrt(agreed.noise_variance))
    draws = np.concatenate(noise)
    assert abs(draws.std() - 1) < 5 / math.sqrt(2 * draws.size)
    assert abs(draws.mean()) < 5 / math.sqrt(draws.size)
    assert rounds.prepared.held.deviation == pytest.approx(2 * math.sqrt(agreed.noise_variance), rel=1e-12)


def task_key(client: Client) -> str:
    """Return the key of the only upload in a ledger."""
    (key,) = client.ledger.uploads()
    return key


@each(ALL)
def test_what_is_charged_is_what_is_sent(made: Callable[..., Path], given: FederationConfig) -> None:
    folder = made(given)
    sizes: dict[str, int] = {}

    def weighed(device: str, kind: Kind, request: Packet, reply: Packet) -> Packet:  # noqa: ARG001
        if kind == "coded":
            sizes[device] = reply.bytes
            expected = upload_of(given).layout(given.terms)
            assert {name: array.shape for name, array in reply.arrays.items()} == {
                name: array.shape for name, array in expected.items()
            }
        return reply

    clients = open_clients(folder)
    run(folder, clients, weighed)
    assert {event["device"]: event["bytes"] for event in events(folder, "uploaded")} == sizes
    for name, client in clients.items():
        assert [entry.size_bytes for entry in client.ledger if entry.kind == "upload"] == [sizes[name]]
    setting = pooled(folder, given, clients)
    numbers = sum(array.numbers for array in upload_of(given).layout(Terms.of(setting)).values())
    cost = given.algorithm.upload_cost(setting, given.algorithm.plan(setting))
    assert cost is not None
    assert cost.bits.tolist() == [32.0 * numbers] * 4


@each(PRIVATE)
def test_the_ledger_and_the_summary_say_what_the_simulator_says(
    made: Callable[..., Path], given: FederationConfig
) -> None:
    folder = made(given)
    clients = open_clients(folder)  # with noise of the operating system
    rounds = run(folder, clients)
    require_within_target(clients)
    statement = json.loads((folder / "results" / "summary.json").read_text())["privacy"]
    told = {name: statement[name] for name in ("covers", "threat_model")}
    assert told == {"covers": "everything", "threat_model": "each message"}
    everything = releases_of(simulated(folder, given, clients, rounds))
    predicted = guarantee_of(everything, DELTA)
    assert statement["epsilon"] == predicted.epsilon
    assert statement["devices"] == dict(zip(NAMES, predicted.devices, strict=True))
    assert [message["message"] for message in statement["messages"]] == [sent.message for sent in predicted.messages]
    # What devices add up from their ledgers is the same, up to the rounding of sums of squares.
    assert {name: pytest.approx(spent(client), rel=1e-9) for name, client in clients.items()} == statement["devices"]
    upload, samples = upload_of(given), max(len(client.rows) for client in clients.values())
    agreed = upload.agreed_noise(given.terms)
    assert agreed is not None
    rounding = rounds.state.round * rounding_delta(500, 0.0, statement["epsilon"]) + upload.rounding_delta(
        given.terms,
        samples=samples,
        noise_variance=agreed.noise_variance,
        label_noise_variance=agreed.label_noise_variance,
        epsilon=statement["epsilon"],
    )
    assert 0 < rounding < DELTA / 100
    assert statement["delta"] - DELTA == pytest.approx(rounding, rel=1e-3)
    (north,) = (client for name, client in clients.items() if name == "north")
    kinds = [entry.kind for entry in north.ledger]
    assert kinds == ["answer", "upload", *["update"] * rounds.state.round]
    assert epsilon_of(mechanisms(north)[:1], DELTA) == pytest.approx(epsilon_of([agreed.mechanism], DELTA), rel=1e-9)


def test_lines_have_a_mechanism_only_where_it_is_coded(made: Callable[..., Path]) -> None:
    for given, coded in ((SSP, False), (CODED, True), (FED3R, False)):
        folder = made(given, given.scheme)
        client = open_clients(folder)["north"]
        client.answer("coded", Packet({}, {"prescription": given.prescription()}))
        (line,) = (folder / "devices" / "north" / "state" / "ledger.jsonl").read_text().splitlines()
        written = json.loads(line)
        assert ("coded" in written) == coded
        if coded:
            assert written["mu"] is None
            mechanism = CodedMechanism(**written["coded"])
            assert mechanism == mechanisms(client)[0]
            assert mechanism.coded_samples == 200
            assert written["epsilon"] == epsilon_of([mechanism], DELTA)
        else:
            assert (written["mu"] is None) == (given is FED3R)
            assert (written["epsilon"] is None) == (given is FED3R)


# Killed and resumed -----------------------------------------------------------------------------------------------------


WHILE_JOINING, WHILE_UPLOADING, IN_A_ROUND = 2, GREETINGS + 2, GREETINGS + UPLOADS + 4 + 2


@pytest.mark.parametrize(
    ("given", "count"),
    [
        *((given, count) for given in ALL.values() for count in (WHILE_JOINING, WHILE_UPLOADING)),
        *((given, IN_A_ROUND) for given in ROUNDS.values()),
    ],
)
def test_whoever_is_killed_draws_nothing_twice(made: Callable[..., Path], given: FederationConfig, count: int) -> None:
    whole = made(given, "whole")
    expected = run(whole, seeded(whole, given))
    folder = made(given)
    clients = seeded(folder, given)
    with pytest.raises(Killed):
        coordinator(folder, InProcess(clients, kill_at(count))).run()
    restarted = seeded(folder, given)  # devices were killed as well
    resumed = run(folder, restarted)
    np.testing.assert_array_equal(resumed.model, expected.model)
    for name in NAMES:
        drawn = sum(cast(SeededRandomness, opened[name].randomness).drawn for opened in (clients, restarted))
        assert drawn == 1, "the upload"
        sent = [entry.round for entry in restarted[name].ledger if entry.kind == "update"]
        assert sent == list(range(resumed.total)), "each round counts once"
    if given is not FED3R:
        require_within_target(restarted)


@each(ALL)
def test_a_restarted_device_sends_the_same_bytes(made: Callable[..., Path], given: FederationConfig) -> None:
    folder = made(given)
    request = Packet({}, {"prescription": given.prescription()})
    first, again = (open_clients(folder)["north"].answer("coded", request) for _ in range(2))
    assert first.digest == again.digest
    assert [entry.kind for entry in open_clients(folder)["north"].ledger] == ["upload", "repeat"]


# Devices decide ---------------------------------------------------------------------------------------------------------


def asking(given: FederationConfig, **values: Any) -> Packet:
    """Return a request to train that a server could send."""
    arrays: dict[str, FloatArray] = {
        "model": np.zeros((50, 10), np.float32),
        "directions": np.zeros((50, 0), np.float32),
        "factors": np.zeros(0),
    }
    told: dict[str, Any] = {"prescription": given.prescription(), "round": 0, "clip_norm": 1.0}
    return Packet(arrays, told | {"noise_multiplier": 20.0} | values)


def left_beside_upload(given: FederationConfig) -> float:
    """Return ``mu`` of all updates together that keeps the target beside the upload, by bisection; 0 if nothing is left."""
    agreed = upload_of(given).agreed_noise(given.terms)
    assert agreed is not None
    low, high = 0.0, gaussian_mu(EPSILON, DELTA)
    for _ in range(40):
        middle = (low + high) / 2
        within = epsilon_of([agreed.mechanism, GaussianMechanism(1 / middle)], DELTA) <= EPSILON
        low, high = (middle, high) if within else (low, middle)
    return low if low > 1e-3 else 0.0


@each(ONE_SHOT)
def test_a_server_that_asks_for_rounds_that_there_are_none_of_gets_nothing(
    made: Callable[..., Path], given: FederationConfig
) -> None:
    client = open_clients(made(given))["north"]
    answer = client.answer("train", asking(given, noise_multiplier=1e9))
    assert str(answer.values["refused"]).endswith("has no training on devices: nothing is computed.")
    assert len(client.ledger) == 0


@each(ROUNDS)
def test_a_server_that_asks_for_more_gets_nothing(made: Callable[..., Path], given: FederationConfig) -> None:
    folder = made(given)
    clients = open_clients(folder)
    run(folder, clients)
    client = clients["north"]
    before = len(client.ledger)
    for request in (asking(given), asking(given, noise_multiplier=50.0, round=10**6)):
        answer = client.answer("train", request)
        assert answer.arrays == {}
        assert "would be above privacy.epsilon = 4 of federation.toml" in str(answer.values["refused"])
    assert len(client.ledger) == before


@each(PRIVATE)
def test_a_second_draw_of_an_upload_is_refused_before_it_is_made(
    made: Callable[..., Path], given: FederationConfig
) -> None:
    """The stored upload is deleted, as the message about a damaged one says."""
    folder = made(given)
    change_client(folder, "north", "most_uploads = 1", "most_uploads = 2")
    client = open_clients(folder)["north"]
    request = Packet({}, {"prescription": given.prescription()})
    repeated = client.answer("coded", request)
    assert "refused" not in repeated.values
    for stored in client.vault.folder.glob("release-*.npz"):
        stored.unlink()
    if (mu := left_beside_upload(given)) > 0:  # otherwise the upload was all that there is
        assert "refused" not in client.answer("train", asking(given, noise_multiplier=1.001 / mu)).values
    again = client.answer("coded", request)
    assert "would be above privacy.epsilon = 4" in str(again.values["refused"])
    assert not list(client.vault.folder.glob(f"release-{task_key(client)}.npz"))


@pytest.mark.parametrize("given", [IHM, CODED], ids=["ihm", "scfl-private"])
def test_the_upload_counts_from_the_start(made: Callable[..., Path], given: FederationConfig) -> None:
    """What is left for updates does not depend on when the upload is asked for, so that no order reveals more."""
    low = left_beside_upload(given)
    assert low > 0.3
    for uploaded in (False, True):
        client = open_clients(made(given, f"federation-{uploaded}"))["north"]
        if uploaded:
            client.answer("coded", Packet({}, {"prescription": given.prescription()}))
        assert "would be above" in str(
            client.answer("train", asking(given, noise_multiplier=0.999 / low)).values["refused"]
        )
        assert "refused" not in client.answer("train", asking(given, noise_multiplier=1.001 / low)).values
        if not uploaded:
            assert "refused" not in client.answer("coded", Packet({}, {"prescription": given.prescription()})).values
        assert spent(client) <= EPSILON


def test_epsilons_of_unlike_mechanisms_compose_and_are_not_added(made: Callable[..., Path]) -> None:
    folder = made(CODED)
    clients = open_clients(folder)
    run(folder, clients)
    added = sum(entry.epsilon or 0.0 for entry in clients["north"].ledger)
    assert added > 1.5 * spent(clients["north"])


def test_a_limit_of_the_devices_own_ends_its_part(made: Callable[..., Path]) -> None:
    folder = made(IHM)
    change_client(folder, "west", "largest_epsilon = 0.0", "largest_epsilon = 3.0")
    change_client(folder, "south", "largest_epsilon = 0.0", "largest_epsilon = 1.0")
    clients = open_clients(folder)
    rounds = run(folder, clients)
    reasons = {name: [e["reason"] for e in events(folder, "declined") if e["device"] == name] for name in NAMES}
    assert all("policy.largest_epsilon = 3 of client.toml" in reason for reason in reasons["west"])
    assert "policy.largest_epsilon = 1 of client.toml" in reasons["south"][0]
    assert [entry.kind for entry in clients["west"].ledger].count("update") in (1, 2)
    assert spent(clients["west"]) <= 3.0
    assert [entry.kind for entry in clients["south"].ledger] == ["answer"], "its sketches alone are above the limit"
    assert rounds.prepared.setting.code.uploading.tolist() == [True, True, False, True]


def test_noise_that_was_agreed_on_is_not_the_devices_to_choose(made: Callable[..., Path]) -> None:
    for given in (SSP, IHM, CODED):
        folder = made(given, given.scheme)
        change_client(folder, "west", "\nepsilon = 0.0", "\nepsilon = 1.0")
        change_client(folder, "south", "least_noise_variance = 0.0", "least_noise_variance = 1e9")
        clients = open_clients(folder)
        hello = clients["west"].answer("hello", Packet({}, {"prescription": given.prescription()}))
        assert "stricter than the epsilon = 4" in str(hello.values["refused"])
        upload = clients["south"].answer("coded", Packet({}, {"prescription": given.prescription()}))
        assert str(upload.values["refused"]).endswith(": leave this federation, or lower the limit.")


# Exact statistics -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            "largest_epsilon = 0.0",
            "largest_epsilon = 2.0",
            "epsilon of this upload has no bound, as the server learns exact second moments of this device, which"
            " policy.largest_epsilon = 2 of client.toml does not allow: leave this federation, or set the limit to 0.",
        ),
        (
            "least_noise_variance = 0.0",
            "least_noise_variance = 0.5",
            "noise_variance = 0.0 is below policy.least_noise_variance = 0.5 of client.toml, as the server learns exact second"
            " moments of this device: leave this federation, or lower the limit.",
        ),
        (
            "\nepsilon = 0.0",
            "\nepsilon = 1.0",
            "privacy.epsilon = 1 of client.toml has no meaning with scheme = 'fed3r', as the server learns exact second moments"
            " of this device: leave this federation, or leave it out.",
        ),
        ("\nsensitivity = 0.0", "\nsensitivity = 2.0", "privacy.sensitivity = 2 of client.toml has no meaning"),
    ],
)
def test_a_device_need_not_send_exact_statistics(made: Callable[..., Path], old: str, new: str, sentence: str) -> None:
    folder = made(FED3R)
    change_client(folder, "west", old, new)
    client = open_clients(folder)["west"]
    answer = client.answer("coded", Packet({}, {"prescription": FED3R.prescription()}))
    assert str(answer.values["refused"]).startswith(sentence)
    assert len(client.ledger) == 0


def test_nothing_is_claimed_about_exact_statistics(made: Callable[..., Path]) -> None:
    folder = made(FED3R)
    change_client(folder, "south", "most_uploads = 1", "most_uploads = 0")
    clients = open_clients(folder)
    rounds = run(folder, clients)
    statement = json.loads((folder / "results" / "summary.json").read_text())["privacy"]
    assert (statement["covers"], statement["epsilon"]) == ("nothing", None)
    (line,) = (entry for entry in clients["north"].ledger if entry.kind == "upload")
    assert (line.epsilon, line.noise_variance, line.mechanism) == (None, 0.0, None)
    gram = compute_gram([clients[name].rows for name in NAMES if name != "south"])
    np.testing.assert_allclose(rounds.prepared.held.features, gram.features, rtol=1e-12)


# Devices that upload nothing --------------------------------------------------------------------------------------------


def test_coded_data_that_is_missing_stops_the_run_until_it_is_there(made: Callable[..., Path]) -> None:
    folder = made(CODED)
    change_client(folder, "south", "most_uploads = 1", "most_uploads = 0")
    with pytest.raises(
        ValueError, match=r"needs the coded data of all devices, but 1 upload\(s\) none: let all upload"
    ):
        run(folder, open_clients(folder))
    assert not (folder / "server" / "state" / "uploaded.txt").exists()
    change_client(folder, "south", "most_uploads = 0", "most_uploads = 1")
    clients = open_clients(folder)
    rounds = run(folder, clients)
    assert rounds.state.round == rounds.total == 4
    require_within_target(clients)


def test_sketches_that_are_missing_are_taken_to_be_like_the_others(made: Callable[..., Path]) -> None:
    folder = made(IHM)
    change_client(folder, "north", "most_uploads = 1", "most_uploads = 0")
    clients = seeded(folder, IHM)
    rounds = run(folder, clients)
    state: Any = rounds.state
    assert rounds.prepared.setting.code.uploading.tolist() == [False, True, True, True]
    # The inverse is at most that of the ridge, and its trace that of all rows: as many as sketched, and a quarter more.
    sizes = np.linalg.eigvalsh(state.inverses[0].astype(np.float64))
    largest = 1 / sizes[0] - state.ridge
    exact = float(np.linalg.eigvalsh(compute_gram([clients[name].rows for name in NAMES]).features)[-1])
    sketched = float(np.linalg.eigvalsh(compute_gram([clients[name].rows for name in NAMES[1:]]).features)[-1])
    assert abs(largest - exact) < abs(largest - sketched)
