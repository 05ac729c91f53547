"""A federation in which one epsilon covers everything that a device sends, from the first message to the model."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl.federation._client import Client
from codedfl.federation._device_data import load_rows
from codedfl.federation._federation_config import FederationConfig
from codedfl.federation._store import state_folder
from codedfl.federation.transport import Kind, Packet
from codedfl.models import Predictor
from codedfl.privacy import gaussian_epsilon, gaussian_mu, rounding_delta
from codedfl.typing import FloatArray
from codedfl.uploads import PrivateCurvature
from tests.federation.support import (
    NAMES,
    InProcess,
    Killed,
    change_client,
    coordinator,
    copy_federation,
    digits_config,
    events,
    kill_at,
    open_clients,
    run,
    simulated,
    upload_of,
)
from tests.reference import private_descent as reference

pytestmark = pytest.mark.usefixtures("naps", "seeded_server")

EPSILON, DELTA = 4.0, 1e-5
GREETINGS = UPLOADS = len(NAMES)


def config(**options: Any) -> FederationConfig:
    return digits_config(scheme="dp-gd", options=options, privacy={"epsilon": EPSILON, "delta": DELTA})


WITH_MEAN, WITHOUT = config(rounds=5), config(rounds=5, curvature="none")


def missing(device: str, kind: Kind, request: Packet, reply: Packet) -> Packet | None:
    """Lose a third of one device's updates."""
    return None if (device, kind) == ("east", "train") and int(str(request.values["round"])) % 3 == 1 else reply


@pytest.fixture
def made(digits: Path, tmp_path: Path) -> Callable[..., Path]:
    return lambda given, name="federation": copy_federation(digits, tmp_path / name, given)


def epsilon_of(client: Client) -> float:
    """Return the epsilon of all lines of a ledger, from the lines themselves."""
    sent = [entry for entry in client.ledger if entry.kind in ("upload", "update")]
    assert all(entry.mu is not None for entry in sent)
    return gaussian_epsilon(math.sqrt(sum((entry.mu or 0.0) ** 2 for entry in sent)), DELTA)


def require_within_target(clients: dict[str, Client], *, used_up: tuple[str, ...] = NAMES) -> None:
    for name, client in clients.items():
        spent = epsilon_of(client)
        assert spent <= EPSILON * (1 + 1e-9)
        assert (spent > EPSILON * (1 - 1e-6)) == (name in used_up), name
        assert all(entry.epsilon is not None for entry in client.ledger), "whatever is sent has an epsilon"


# The same algorithm as in the simulator --------------------------------------------------------------------------------


def test_the_model_is_that_of_the_simulator(made: Callable[..., Path]) -> None:
    folder = made(WITHOUT)
    clients = open_clients(folder, "no upload")
    rounds = run(folder, clients, missing)
    expected = simulated(folder, WITHOUT, clients, rounds)
    # The simulator adds up to 400 rows in float32; on devices, float64 does.
    bound = rounds.state.round * 400 * np.finfo(np.float32).eps
    assert np.linalg.norm(rounds.model - expected) < bound * np.linalg.norm(expected)
    assert rounds.arrivals.probability[1] < rounds.arrivals.probability[0], "updates were missing"
    require_within_target(clients)


def test_the_mean_is_the_sum_of_what_devices_send(made: Callable[..., Path]) -> None:
    folder = made(WITH_MEAN)
    clients = open_clients(folder, "mean")
    rounds = run(folder, clients)
    held = rounds.prepared.held
    assert isinstance(held, PrivateCurvature)
    bound = WITH_MEAN.clip_norm
    assert bound == 1.0
    agreed = upload_of(WITH_MEAN).agreed_noise(WITH_MEAN.terms)
    assert agreed is not None
    deviation = math.sqrt(agreed.noise_variance)
    X = np.vstack([np.asarray(clients[name].rows.features, np.float64) for name in NAMES])
    draws = np.sum([clients[name].randomness.encoding().rng.standard_normal(50) for name in NAMES], axis=0)
    # Noise of four devices, so twice the deviation.
    known = reference.with_mean(X, bound, 2 * deviation, draws / 2, 0.3)
    assert held.row_norm == pytest.approx(known.row_norm, rel=1e-9)
    assert held.smoothness == pytest.approx(known.smoothness, rel=1e-9)
    # The direction travels in float32.
    D = reference.shrinking([part.astype(np.float64) for part in held.geometry.directions], held.geometry.factors)
    np.testing.assert_allclose(D, known.D, atol=1e-6)


def test_it_learns(made: Callable[..., Path]) -> None:
    """With noise of the operating system and rounds of its own; a constant answer is right for a tenth of the digits."""
    folder = made(config())
    rounds = run(folder, open_clients(folder))
    assert rounds.curve[-1]["score"] > 0.5
    assert rounds.total == rounds.state.round == len(rounds.prepared.device.noise_multipliers)  # type: ignore[attr-defined]


REGRESSION = digits_config(
    scheme="dp-gd",
    options={"curvature": "none"},
    data={"target": ["digit"], "task": "regression", "classes": []},
    privacy={"epsilon": 20.0, "delta": DELTA, "label_center": 4.5, "label_bound": 3.0},
)


def test_a_regression_around_a_typical_target_is_that_of_the_simulator(made: Callable[..., Path]) -> None:
    folder = made(REGRESSION)
    clients = open_clients(folder, "no upload")
    rounds = run(folder, clients)
    expected = simulated(folder, REGRESSION, clients, rounds)
    bound = rounds.state.round * 400 * np.finfo(np.float32).eps
    assert np.linalg.norm(rounds.model - expected) < bound * np.linalg.norm(expected)
    predictor = Predictor.load(folder / "results" / "model.safetensors")
    rows = load_rows(folder / "test.csv", REGRESSION)
    table = np.loadtxt(folder / "test.csv", delimiter=",", skiprows=1)
    np.testing.assert_allclose(rows.labels.ravel(), table[:, -1] - 4.5)
    np.testing.assert_allclose(
        predictor.predict(table[:, :-1]), 4.5 + (rows.features @ rounds.model).ravel(), rtol=1e-5
    )
    # A constant answer has 0; the score does not depend on where the targets lie.
    error = np.mean((predictor.predict(table[:, :-1]) - table[:, -1]) ** 2)
    assert rounds.curve[-1]["score"] == pytest.approx(1 - error / table[:, -1].var(), abs=1e-4)
    assert rounds.curve[-1]["score"] > 0.1


# What is claimed -------------------------------------------------------------------------------------------------------


def test_ledgers_add_up_to_the_target_and_the_summary_says_so(made: Callable[..., Path]) -> None:
    folder = made(WITH_MEAN)
    clients = open_clients(folder)
    rounds = run(folder, clients)
    require_within_target(clients)
    summary = json.loads((folder / "results" / "summary.json").read_text())
    statement = summary["privacy"]
    told = {name: statement[name] for name in ("covers", "threat_model", "adjacency")}
    assert told == {
        "covers": "everything",
        "threat_model": "each message",
        "adjacency": "one sample more or less",
    }
    assert statement["epsilon"] == pytest.approx(EPSILON, rel=1e-6)
    columns, numbers = WITH_MEAN.dimension, WITH_MEAN.dimension * WITH_MEAN.outputs
    rounding = rounding_delta(columns, 0.0, EPSILON) + rounds.state.round * rounding_delta(numbers, 0.0, EPSILON)
    assert statement["delta"] - DELTA == pytest.approx(rounding, rel=1e-4)
    assert statement["devices"] == {name: pytest.approx(epsilon_of(clients[name]), rel=1e-9) for name in NAMES}
    assert [message["message"] for message in statement["messages"]] == ["mean of the features", "updates"]
    model = Predictor.load(folder / "results" / "model.safetensors")
    assert model.privacy == statement
    assert model.logits, "its outputs are those of a softmax"


def test_a_device_that_sends_no_mean_reveals_less(made: Callable[..., Path]) -> None:
    folder = made(WITH_MEAN)
    change_client(folder, "south", "most_uploads = 1", "most_uploads = 0")
    clients = open_clients(folder)
    rounds = run(folder, clients)
    require_within_target(clients, used_up=("north", "east", "west"))
    devices = json.loads((folder / "results" / "summary.json").read_text())["privacy"]["devices"]
    assert devices["south"] == pytest.approx(epsilon_of(clients["south"]), rel=1e-9)
    assert devices["south"] < devices["north"]
    assert rounds.prepared.setting.code.uploading.tolist() == [True, True, False, True]


def test_updates_in_the_clear_are_not_claimed(made: Callable[..., Path]) -> None:
    folder = made(digits_config(scheme="fedavg", training={"rounds": 2}))
    run(folder, open_clients(folder))
    statement = json.loads((folder / "results" / "summary.json").read_text())["privacy"]
    assert (statement["covers"], statement["epsilon"]) == ("nothing", None)


def test_a_device_that_is_always_late_does_not_spend_its_privacy_on_it(made: Callable[..., Path]) -> None:
    folder = made(config(rounds=10))
    clients = open_clients(folder)

    def late(device: str, kind: Kind, request: Packet, reply: Packet) -> Packet | None:  # noqa: ARG001
        return None if (device, kind) == ("east", "train") else reply

    rounds = run(folder, clients, late)
    assert [entry.round for entry in clients["east"].ledger if entry.kind == "update"] == [0, 2, 4, 8]
    require_within_target(clients, used_up=("north", "south", "west"))
    devices = json.loads((folder / "results" / "summary.json").read_text())["privacy"]["devices"]
    assert devices["east"] == pytest.approx(epsilon_of(clients["east"]), rel=1e-9), "late updates were sent"
    assert not rounds.arrivals.arrays()["arrived"][:, 1].any()


def test_a_device_that_is_back_is_asked_in_every_round(made: Callable[..., Path]) -> None:
    folder = made(config(rounds=8))
    clients = open_clients(folder)

    def away(device: str, kind: Kind, request: Packet, reply: Packet) -> Packet | None:
        return None if (device, kind) == ("east", "train") and int(str(request.values["round"])) < 3 else reply

    run(folder, clients, away)
    assert [entry.round for entry in clients["east"].ledger if entry.kind == "update"] == [0, 2, 4, 5, 6, 7]


# Devices decide --------------------------------------------------------------------------------------------------------


def asking(**values: Any) -> Packet:
    """Return a request that a server could send."""
    arrays: dict[str, FloatArray] = {
        "model": np.zeros((50, 10), np.float32),
        "directions": np.zeros((50, 0), np.float32),
        "factors": np.zeros(0),
    }
    told: dict[str, Any] = {"prescription": WITH_MEAN.prescription(), "round": 0, "clip_norm": 1.0}
    return Packet(arrays, told | {"noise_multiplier": 20.0} | values)


def test_whoever_asks_for_more_than_was_agreed_on_gets_nothing(made: Callable[..., Path]) -> None:
    folder = made(WITH_MEAN)
    clients = open_clients(folder)
    run(folder, clients)
    client = clients["north"]
    before = len(client.ledger)
    for request in (asking(), asking(noise_multiplier=1000.0, round=10**6)):
        answer = client.answer("train", request)
        assert answer.arrays == {}
        assert "would be above privacy.epsilon = 4 of federation.toml" in str(answer.values["refused"])
    assert len(client.ledger) == before


def test_a_single_greedy_request_gets_nothing(made: Callable[..., Path]) -> None:
    client = open_clients(made(WITH_MEAN))["north"]
    assert "refused" in client.answer("train", asking(noise_multiplier=0.1)).values
    assert len(client.ledger) == 0
    assert "smoothness" not in client.answer("hello", asking(smoothness=True)).values


def test_the_same_request_gets_the_same_bytes_and_another_one_counts(made: Callable[..., Path]) -> None:
    client = open_clients(made(WITH_MEAN))["north"]
    first, again = (client.answer("train", asking()).arrays["update"] for _ in range(2))
    np.testing.assert_array_equal(first, again)
    other = client.answer("train", asking(round=1)).arrays["update"]
    assert (other != first).mean() > 0.99
    assert [entry.kind for entry in client.ledger] == ["update", "repeat", "update"]
    assert client.ledger.gaussian_mu("digits") == pytest.approx(math.sqrt(2) / 20)


def test_a_draw_that_was_never_recorded_counts_when_it_is_asked_for(made: Callable[..., Path]) -> None:
    """A damaged release is deleted, drawn again, and the device dies before it is in the ledger."""
    folder = made(WITH_MEAN)
    client = open_clients(folder)["north"]
    client.answer("train", asking())
    (stored,) = client.vault.folder.glob("release-*.npz")
    stored.unlink()

    def dying(*_: Any, **__: Any) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(client.ledger), "append", dying)
        with pytest.raises(Killed):
            client.answer("train", asking())
    assert stored.exists()
    restarted = open_clients(folder)["north"]
    left = 1.02 * restarted.ledger.gaussian_mu("digits")
    whole = gaussian_mu(EPSILON, DELTA)
    used = left**2 + 0.03 * whole**2  # the sum of the features may still be asked for
    last = asking(round=1, noise_multiplier=1 / math.sqrt(whole**2 - used))
    assert "refused" not in restarted.answer("train", last).values
    assert "would be above" in str(restarted.answer("train", asking()).values["refused"])
    assert epsilon_of(restarted) <= EPSILON


def test_the_devices_own_limit_ends_its_part(made: Callable[..., Path]) -> None:
    folder = made(WITH_MEAN)
    change_client(folder, "west", "largest_epsilon = 0.0", "largest_epsilon = 2.0")
    clients = open_clients(folder)
    rounds = run(folder, clients)
    assert 1.0 < epsilon_of(clients["west"]) <= 2.0
    declined = [event for event in events(folder, "declined") if event["device"] == "west"]
    assert "policy.largest_epsilon = 2 of client.toml" in declined[0]["reason"]
    assert rounds.arrivals.arrays()["arrived"][:, 3].any()
    assert not rounds.arrivals.arrays()["arrived"][-1, 3]
    devices = json.loads((folder / "results" / "summary.json").read_text())["privacy"]["devices"]
    assert devices["west"] >= epsilon_of(clients["west"]), "the server counts what it asked for"


def test_a_stricter_device_does_not_join(made: Callable[..., Path]) -> None:
    folder = made(WITH_MEAN)
    change_client(folder, "west", "\nepsilon = 0.0", "\nepsilon = 1.0")
    clients = open_clients(folder)
    answer = clients["west"].answer("hello", Packet({}, {"prescription": WITH_MEAN.prescription()}))
    assert "stricter than the epsilon = 4" in str(answer.values["refused"])


# Killed and resumed ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, GREETINGS + 1, GREETINGS + UPLOADS + 4 * 2 + 2])
def test_a_server_that_is_killed_costs_no_privacy(made: Callable[..., Path], count: int) -> None:
    expected = run(made(WITH_MEAN, "undisturbed"), open_clients(made(WITH_MEAN, "devices"), "mean"))
    folder = made(WITH_MEAN)
    clients = open_clients(folder, "mean")
    with pytest.raises(Killed):
        coordinator(folder, InProcess(clients, kill_at(count))).run()
    resumed = run(folder, clients)
    np.testing.assert_array_equal(resumed.model, expected.model)
    require_within_target(clients)
    updates = {name: [entry.round for entry in clients[name].ledger if entry.kind == "update"] for name in NAMES}
    assert all(rounds == list(range(resumed.total)) for rounds in updates.values()), "each round counts once"
    if count > GREETINGS + UPLOADS:
        assert any(entry.kind == "repeat" for entry in clients["north"].ledger)


def test_rounds_trained_again_with_another_model_stay_within_the_target(made: Callable[..., Path]) -> None:
    """A damaged checkpoint, and other arrivals than the first time: what devices send then is new."""
    folder = made(WITH_MEAN)
    clients = open_clients(folder)
    with pytest.raises(Killed):
        run(folder, clients, kill_at(GREETINGS + UPLOADS + 4 * 3 + 1))
    newest = state_folder(folder) / "checkpoint-3.npz"
    newest.write_bytes(newest.read_bytes()[:-200])

    def lost(device: str, kind: Kind, request: Packet, reply: Packet) -> Packet | None:
        return None if (device, kind, request.values.get("round")) == ("east", "train", 2) else reply

    rounds = run(folder, clients, lost)
    assert rounds.state.round == rounds.total
    repeated = [entry.round for entry in clients["north"].ledger if entry.kind == "repeat"]
    twice = [entry.round for entry in clients["north"].ledger if entry.kind == "update"]
    assert repeated == [2], "the model of the first round that is trained again is the same"
    assert twice.count(3) == 2, "the next one is another"
    for client in clients.values():
        assert epsilon_of(client) <= EPSILON * (1 + 1e-9)
    assert any(event["device"] == "north" for event in events(folder, "declined")), (
        "the budget ends before the rounds do"
    )
