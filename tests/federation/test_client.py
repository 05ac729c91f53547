from __future__ import annotations

import base64
import logging
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

from codedfl.errors import InputError
from codedfl.federation._client import Client
from codedfl.federation._federation_config import FederationConfig
from codedfl.federation.transport import REFUSED, Kind, Packet
from codedfl.streams import Streams
from codedfl.typing import FloatArray, IntArray
from tests.federation.support import Killed, SeededRandomness, change_client, copy_federation, digits_config, purpose_of
from tests.logistic import logistic

ROUNDOFF = 2.0**-24
"""Of float32: the largest relative error of one operation."""

KINDS: tuple[Any, ...] = ("hello", "coded", "train", "keys", "shares", "masked", "agree", "unmask", "evaluate", "")


def opened(folder: Path, config: FederationConfig, device: str = "north") -> Client:
    randomness = SeededRandomness(0, config.devices.index(device), purpose_of(config))
    return Client.open(folder / "devices" / device, randomness=randomness)


def drawn(client: Client) -> int:
    return cast(SeededRandomness, client.randomness).drawn


def asking(client: Client, **values: Any) -> Packet:
    return Packet({}, {"prescription": client.federation.prescription(), **values})


def training(client: Client, model: FloatArray | None = None, **changes: Any) -> Packet:
    config = client.federation
    values: dict[str, Any] = {
        "round": 0,
        "batch_size": 40,
        "local_steps": 2,
        "step_size": 1e-3,
        "sampling": "bernoulli",
        "stride": 40,
    }
    weights = np.zeros((config.dimension, config.outputs), np.float32) if model is None else model
    return Packet({"model": weights}, {**asking(client).values, **values, **changes})


def refused(packet: Packet) -> str:
    assert packet.arrays == {}
    assert set(packet.values) == {"device", REFUSED}
    sentence = str(packet.values[REFUSED])
    assert "\n" not in sentence
    return sentence


def kinds(client: Client) -> list[str]:
    return [entry.kind for entry in client.ledger]


@pytest.fixture
def scfl(digits: Path, tmp_path: Path) -> Path:
    return copy_federation(digits, tmp_path / "federation", SCFL)


SCFL = digits_config(scheme="scfl")
FEDAVG = digits_config(scheme="fedavg")
MODEL = np.random.default_rng(1).standard_normal((50, 10)).astype(np.float32)


# What it computes ------------------------------------------------------------------------------------------------------


def reference_update(
    client: Client, batches: list[IntArray], model: FloatArray, step_size: float
) -> tuple[FloatArray, FloatArray]:
    """Return (3) in the paper in float64, and how far float32 can be off, entry by entry.

    A product of ``n`` terms is off by at most ``n u`` times the sum of their sizes (Higham, Sec. 3.5), with a few more
    operations for the residual and its scale. An error of the local model goes through the gradient of the next step.
    """
    X, Y = (np.asarray(part, np.float64) for part in (client.rows.features, client.rows.labels))
    total, error = np.zeros(model.shape), np.zeros(model.shape)
    local, local_error = model.astype(np.float64), np.zeros(model.shape)
    for rows in batches:
        scale = len(X) / 40
        x, y = X[rows], Y[rows]
        total += scale * x.T @ (x @ local - y)
        sizes = scale * np.abs(x).T @ (np.abs(x) @ np.abs(local) + np.abs(y))
        operations = len(rows) + x.shape[1] + 8
        error += operations * ROUNDOFF * sizes + scale * np.abs(x).T @ (np.abs(x) @ local_error)
        local = model - step_size * total
        local_error = step_size * error + 4 * ROUNDOFF * (np.abs(model) + step_size * np.abs(total))
    return total, 1.01 * error  # products of two errors


def test_its_update_is_that_of_the_paper(digits: Path, tmp_path: Path) -> None:
    client = opened(copy_federation(digits, tmp_path / "f", FEDAVG), FEDAVG, "east")
    answer = client.answer("train", training(client, MODEL, round=5))
    samples = len(client.rows)
    chosen = Streams(0).at("batch", device=1, round=5).random((2, samples), dtype=np.float32) < 40 / samples
    expected, error = reference_update(client, [np.flatnonzero(rows) for rows in chosen], MODEL, 1e-3)
    update = answer.arrays["update"]
    assert update.dtype == np.float32
    assert (np.abs(update - expected) <= error).all()
    assert error.max() < 1e-3 * np.abs(expected).max(), "the bound is tight enough to tell"
    assert {key: answer.values[key] for key in ("device", "round", "batch_size")} == {
        "device": "east",
        "round": 5,
        "batch_size": 40,
    }


def test_its_steps_are_on_the_loss_of_the_scheme(digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = opened(copy_federation(digits, tmp_path / "f", FEDAVG), FEDAVG, "east")
    monkeypatch.setitem(vars(client), "loss", logistic("fedavg").loss_for("classification"))
    X, Y = (array.astype(np.float64) for array in (client.rows.features, client.rows.labels))
    expected = 2 * X.T @ (softmax(X @ MODEL.astype(np.float64), axis=1) - Y)
    asked = training(client, MODEL, batch_size=len(X), step_size=1e-12)  # two steps from the same place
    update = client.answer("train", asked).arrays["update"]
    # Sums of l and of d terms in single precision, relative to the sum of their sizes.
    error = 2 * (len(X) + X.shape[1]) * 2 * ROUNDOFF * (np.abs(X).T @ (1 + np.abs(X) @ np.abs(MODEL)))
    assert (np.abs(update - expected) <= error).all()
    assert error.max() < 1e-2 * np.abs(expected).max(), "the bound is tight enough to tell"


def test_a_walk_goes_on_through_all_rows_from_round_to_round(digits: Path, tmp_path: Path) -> None:
    config = digits_config(scheme="ccfl")
    client = opened(copy_federation(digits, tmp_path / "f", config), config)
    samples = len(client.rows)
    rng = Streams(0).at("walk", device=0)
    order, first = rng.permutation(samples), int(rng.integers(samples))
    seen = set()
    for round in range(7):
        request = training(client, MODEL, round=round, local_steps=1, sampling="walk")
        rows = order[(first + 40 * round + np.arange(40)) % samples]
        expected, error = reference_update(client, [rows], MODEL, 1e-3)
        assert (np.abs(client.answer("train", request).arrays["update"] - expected) <= error).all()
        seen |= set(rows.tolist())
    assert len(seen) == samples == 250


def test_more_rows_than_there_are_means_all_of_them(digits: Path, tmp_path: Path) -> None:
    client = opened(copy_federation(digits, tmp_path / "f", FEDAVG), FEDAVG)
    answer = client.answer("train", training(client, MODEL, batch_size=10**9, local_steps=2))
    assert answer.values["batch_size"] == len(client.rows) == 250


def test_it_says_how_many_rows_it_has_and_its_curvature_only_if_asked(digits: Path, tmp_path: Path) -> None:
    client = opened(copy_federation(digits, tmp_path / "f", FEDAVG), FEDAVG)
    hello = client.answer("hello", asking(client)).values
    assert (hello["device"], hello["samples"], hello["prescription"]) == ("north", 250, FEDAVG.prescription())
    assert "smoothness" not in hello
    assert "smoothness" not in client.answer("hello", asking(client, smoothness=1)).values
    told = client.answer("hello", asking(client, smoothness=True)).values
    largest = np.linalg.norm(np.asarray(client.rows.features, np.float64), 2) ** 2
    assert told["smoothness"] == pytest.approx(largest, rel=1e-6)
    assert [entry.epsilon for entry in client.ledger] == [0.0, 0.0, None], (
        "what depends on the data has no known epsilon"
    )


def test_its_curvature_is_told_only_where_the_scheme_needs_it(scfl: Path) -> None:
    client = opened(scfl, SCFL)
    assert "smoothness" not in client.answer("hello", asking(client, smoothness=True)).values
    assert [entry.epsilon for entry in client.ledger] == [0.0]


def test_it_declares_the_noise_that_it_added(scfl: Path) -> None:
    change_client(scfl, "north", "# noise_variance =", "noise_variance = 0.5")
    client = opened(scfl, SCFL)
    packet = client.answer("coded", asking(client))
    assert packet.values == {
        "device": "north",
        "kind": "rows",
        "coded_samples": 200,
        "noise_variance": 0.5,
        "label_noise_variance": 0.0,
    }
    entry = list(client.ledger)[-1]
    assert (entry.kind, entry.noise_variance, entry.size_bytes) == ("upload", 0.5, packet.bytes)
    assert entry.digest == packet.digest


def test_it_picks_the_item_of_the_contract_that_is_best_for_it(scfl: Path) -> None:
    change_client(scfl, "north", "sensitivity = 0.0", "sensitivity = 1.0")
    client = opened(scfl, SCFL)
    menu = {"mi_dp_bits": [9.0, 5.0, 1.0], "reward": [9.5, 7.0, 1.5]}  # worth 0.5, 2.0 and 0.5 to it
    assert client.answer("hello", asking(client, **menu)).values["choice"] == 1
    nothing = {"mi_dp_bits": [9.0, 5.0], "reward": [1.0, 1.0]}
    assert client.answer("hello", asking(client, **nothing)).values["choice"] == -1
    assert "uploads nothing" in refused(client.answer("coded", asking(client, **nothing)))
    assert drawn(client) == 0


# Released once ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    [SCFL, digits_config(scheme="scfl", options={"upload": "factor"}), digits_config(scheme="ccfl")],
    ids=["rows", "factor", "subspace"],
)
def test_a_second_request_gets_the_same_bytes(digits: Path, tmp_path: Path, config: FederationConfig) -> None:
    folder = copy_federation(digits, tmp_path / "f", config)
    client = opened(folder, config)
    first, second = (client.answer("coded", asking(client)) for _ in range(2))
    restarted = opened(folder, config)
    third = restarted.answer("coded", asking(restarted))
    assert first.arrays
    for again in (second, third):
        assert again.digest == first.digest
        assert {name: array.tobytes() for name, array in again.arrays.items()} == {
            name: array.tobytes() for name, array in first.arrays.items()
        }
    assert (drawn(client), drawn(restarted)) == (1, 0)
    assert kinds(restarted) == ["upload", "repeat", "repeat"]
    assert len(restarted.ledger.uploads()) == 1


def test_another_upload_of_the_same_data_is_refused(scfl: Path) -> None:
    client = opened(scfl, SCFL)
    first = client.answer("coded", asking(client))
    change_client(scfl, "north", "# noise_variance =", "noise_variance = 0.5")
    changed = opened(scfl, SCFL)
    assert "number 2 in the ledger, above policy.most_uploads = 1" in refused(changed.answer("coded", asking(changed)))
    assert drawn(changed) == 0
    assert kinds(changed) == ["upload"]
    change_client(scfl, "north", "noise_variance = 0.5", "# noise_variance =")
    back = opened(scfl, SCFL)
    assert back.answer("coded", asking(back)).digest == first.digest, "what was released may be sent again"


def test_a_server_cannot_get_another_upload_by_another_offer(scfl: Path) -> None:
    change_client(scfl, "north", "sensitivity = 0.0", "sensitivity = 1.0")
    client = opened(scfl, SCFL)
    offers = [{"mi_dp_bits": [epsilon], "reward": [100.0]} for epsilon in (5.0, 4.0)]
    assert client.answer("coded", asking(client, **offers[0])).arrays
    assert "policy.most_uploads = 1" in refused(client.answer("coded", asking(client, **offers[1])))
    assert drawn(client) == 1


def dies_after(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    append = client.ledger.append

    def recorded(*args: Any, **values: Any) -> None:
        append(*args, **values)
        raise Killed

    monkeypatch.setattr(client.ledger, "append", recorded)


@pytest.mark.parametrize("kind", ["coded", "train", "hello"])
def test_what_is_sent_is_in_the_ledger_before(scfl: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind) -> None:
    client = opened(scfl, SCFL)
    dies_after(client, monkeypatch)
    request = training(client) if kind == "train" else asking(client)
    with pytest.raises(Killed):
        client.answer(kind, request)
    restarted = opened(scfl, SCFL)
    name = {"coded": "upload", "train": "update", "hello": "answer"}[kind]
    assert kinds(restarted) == [name]
    if kind == "coded":
        packet = restarted.answer("coded", asking(restarted))
        assert [entry.digest for entry in restarted.ledger] == [packet.digest] * 2
        assert kinds(restarted) == ["upload", "repeat"]
        assert drawn(restarted) == 0


def test_a_device_that_dies_before_the_ledger_sends_what_it_has_drawn(
    scfl: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = opened(scfl, SCFL)

    def dies(*args: Any, **values: Any) -> None:  # noqa: ARG001
        raise Killed

    monkeypatch.setattr(client.ledger, "append", dies)
    with pytest.raises(Killed):
        client.answer("coded", asking(client))
    restarted = opened(scfl, SCFL)
    assert kinds(restarted) == []
    packet = restarted.answer("coded", asking(restarted))
    assert kinds(restarted) == ["upload"]
    assert (drawn(client), drawn(restarted)) == (1, 0)
    assert opened(scfl, SCFL).answer("coded", asking(restarted)).digest == packet.digest


@pytest.mark.parametrize("kind", ["coded", "train", "hello"])
def test_without_a_ledger_nothing_is_sent(scfl: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind) -> None:
    client = opened(scfl, SCFL)

    def full(*args: Any, **values: Any) -> None:  # noqa: ARG001
        raise InputError("the disk is full.")

    monkeypatch.setattr(client.ledger, "append", full)
    request = training(client) if kind == "train" else asking(client)
    assert refused(client.answer(kind, request)) == "the disk is full."


def test_uploads_are_drawn_from_the_operating_system_and_differ_between_devices(scfl: Path) -> None:
    clients = [Client.open(scfl / "devices" / name) for name in ("north", "north", "east")]
    first, same, other = (client.answer("coded", asking(client)).arrays["features"] for client in clients)
    np.testing.assert_array_equal(first, same)
    assert not (first == other).any()
    seeded = opened(scfl, SCFL, "south").answer("coded", asking(clients[0])).arrays["features"]
    assert not (first == seeded).any()


# What it refuses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("least_noise_variance = 0.0", "least_noise_variance = 0.02", "policy.least_noise_variance = 0.02"),
        ("least_label_noise_variance = 0.0", "least_label_noise_variance = 0.1", "policy.least_label_noise_variance"),
        ("most_coded_rows = 100000", "most_coded_rows = 199", "policy.most_coded_rows = 199"),
        ("most_uploads = 1", "most_uploads = 0", "policy.most_uploads = 0"),
        ("largest_epsilon = 0.0", "largest_epsilon = 5.0", "policy.largest_epsilon = 5"),
    ],
)
def test_an_upload_beyond_its_policy_is_refused_before_it_is_drawn(scfl: Path, old: str, new: str, rule: str) -> None:
    change_client(scfl, "north", f"\n{old}", f"\n{new}")
    client = opened(scfl, SCFL)
    assert rule in refused(client.answer("coded", asking(client)))
    assert drawn(client) == 0
    assert kinds(client) == []
    assert not list(client.vault.folder.glob("release-*"))
    assert client.answer("train", training(client)).arrays, "it trains all the same"


@pytest.mark.parametrize("kind", ["hello", "coded", "train"])
@pytest.mark.parametrize(
    ("old", "new"), [("features = []", 'features = ["p0", "p1"]'), ("labels = []", 'labels = ["sex"]')]
)
def test_columns_that_are_not_allowed_are_never_used(scfl: Path, kind: Kind, old: str, new: str) -> None:
    change_client(scfl, "north", old, new)
    client = opened(scfl, SCFL)
    request = training(client) if kind == "train" else asking(client)
    assert "of client.toml does not allow" in refused(client.answer(kind, request))
    assert kinds(client) == []


def test_it_stops_after_as_many_rounds_as_it_allows(scfl: Path) -> None:
    change_client(scfl, "north", "most_rounds = 10000", "most_rounds = 2")
    client = opened(scfl, SCFL)
    assert all(client.answer("train", training(client, round=round)).arrays for round in range(2))
    assert "policy.most_rounds = 2" in refused(client.answer("train", training(client, round=2)))
    restarted = opened(scfl, SCFL)
    assert "policy.most_rounds = 2" in refused(restarted.answer("train", training(client, round=0)))
    assert kinds(restarted) == ["update"] * 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prescription", [None, "", "ab12", 7, b"", ["ab12"]])
def test_nothing_is_released_to_a_server_with_another_prescription(scfl: Path, kind: Kind, prescription: Any) -> None:
    client = opened(scfl, SCFL)
    request = training(client)
    values = {**request.values, "prescription": prescription}
    assert refused(client.answer(kind, Packet(request.arrays, values)))
    del values["prescription"]
    assert refused(client.answer(kind, Packet(request.arrays, values)))
    assert kinds(client) == []
    assert drawn(client) == 0
    assert not list(client.vault.folder.glob("release-*"))


@pytest.mark.parametrize("kind", ["keys", "shares", "masked", "unmask", "evaluate", "", "__init__", "coded "])
def test_requests_that_there_are_not_are_refused(scfl: Path, kind: Any) -> None:
    client = opened(scfl, SCFL)
    assert "only hello, train, coded" in refused(client.answer(kind, asking(client)))
    assert kinds(client) == []


def test_a_scheme_without_an_upload_uploads_nothing(digits: Path, tmp_path: Path) -> None:
    client = opened(copy_federation(digits, tmp_path / "f", FEDAVG), FEDAVG)
    assert "scheme = 'fedavg' has no upload" in refused(client.answer("coded", asking(client)))


def test_where_only_sums_are_agreed_on_nothing_is_uploaded_in_the_clear(digits_with_keys: Path, tmp_path: Path) -> None:
    config = digits_config(scheme="scfl", coding={"sums_only": True})
    client = opened(copy_federation(digits_with_keys, tmp_path / "f", config), config)
    assert "there is no request 'coded'" in refused(client.answer("coded", asking(client)))
    assert drawn(client) == 0
    assert kinds(client) == []


def test_a_device_of_another_name_does_not_open(scfl: Path) -> None:
    change_client(scfl, "north", 'name = "north"', 'name = "south-west"')
    with pytest.raises(InputError, match=r"name = 'south-west' in client\.toml is not one of the devices"):
        opened(scfl, SCFL)


# Fuzzing ---------------------------------------------------------------------------------------------------------------

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.lists(st.floats() | st.integers(-(2**63), 2**63 - 1), max_size=4)
    | st.lists(st.text(max_size=3), max_size=3)
)
models = st.sampled_from(
    [
        MODEL,
        np.full((50, 10), 3e38, np.float32),
        np.full((50, 10), np.nan, np.float32),
        MODEL[:, :-1],
        MODEL.T,
        MODEL.astype(np.float64),
        np.zeros((0, 0)),
        np.array("model"),
    ]
)
names = (
    "prescription",
    "round",
    "batch_size",
    "local_steps",
    "step_size",
    "sampling",
    "stride",
    "mi_dp_bits",
    "reward",
)


@pytest.fixture(scope="module")
def fuzzed(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Client]:
    clients = {}
    for config in (SCFL, digits_config(scheme="ccfl")):
        folder = copy_federation(digits, tmp_path_factory.mktemp("fuzzed") / config.scheme, config)
        clients[config.scheme] = opened(folder, config)
    return clients


@given(data=st.data())
def test_whatever_is_asked_the_answer_is_a_packet(fuzzed: dict[str, Client], data: st.DataObject) -> None:
    client = fuzzed[data.draw(st.sampled_from(["scfl", "ccfl"]))]
    kind = data.draw(st.sampled_from(KINDS))
    walk = client.federation.scheme == "ccfl"
    request = training(client, local_steps=1 if walk else 2, sampling="walk" if walk else "bernoulli")
    values: dict[str, Any] = dict(request.values)
    values |= data.draw(st.dictionaries(st.sampled_from(names), scalars, max_size=2))
    for name in data.draw(st.sets(st.sampled_from(names), max_size=1)):
        values.pop(name, None)
    arrays: Any = data.draw(st.sampled_from([{}, request.arrays]) | models.map(lambda model: {"model": model}))
    before = len(client.ledger)
    answer = client.answer(kind, Packet(arrays, values))
    assert answer.values["device"] == "north"
    if REFUSED in answer.values:
        assert len(client.ledger) == before, "nothing was recorded, as nothing was sent"
        refused(answer)
    else:
        assert len(client.ledger) == before + 1
        assert list(client.ledger)[-1].digest == answer.digest
    assert drawn(client) <= 1


@pytest.mark.parametrize("changes", [{"stride": 2**62}, {"round": 2**62}, {"round": 2**62, "stride": 2**62}])
def test_a_walk_may_be_asked_to_begin_anywhere(digits: Path, tmp_path: Path, changes: dict[str, int]) -> None:
    config = digits_config(scheme="ccfl")
    client = opened(copy_federation(digits, tmp_path / "f", config), config)
    rng = Streams(0).at("walk", device=0)
    order, first = rng.permutation(250), int(rng.integers(250))
    asked = {"round": 1, "stride": 1, **changes}
    begin = first + asked["round"] * asked["stride"]
    rows = np.array([order[(begin + i) % 250] for i in range(40)])
    request = training(client, MODEL, local_steps=1, sampling="walk", **asked)
    expected, error = reference_update(client, [rows], MODEL, 1e-3)
    assert (np.abs(client.answer("train", request).arrays["update"] - expected) <= error).all()


# Secrets ---------------------------------------------------------------------------------------------------------------


def flattened(packet: Packet) -> bytes:
    arrays = b"".join(array.tobytes() for array in packet.arrays.values())
    return (
        arrays
        + repr(dict(packet.values)).encode()
        + b"".join(value for value in packet.values.values() if isinstance(value, bytes))
    )


@pytest.mark.parametrize("sums_only", [False, True])
def test_secrets_are_in_no_message_log_or_file_but_their_own(
    digits_with_keys: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, sums_only: bool
) -> None:
    caplog.set_level(logging.DEBUG)
    config = digits_config(scheme="scfl", coding={"sums_only": sums_only})
    folder = copy_federation(digits_with_keys, tmp_path / "f", config)
    change_client(folder, "north", "sensitivity = 0.0", "sensitivity = 1.23456789")
    client = Client.open(folder / "devices" / "north")
    offer = {"mi_dp_bits": [5.0], "reward": [100.0]}
    requests: dict[Any, Packet] = {kind: asking(client, **offer) for kind in KINDS} | {"train": training(client)}
    answers = [client.answer(kind, request) for kind, request in requests.items()]
    assert sum(REFUSED not in answer.values for answer in answers) == 3, "hello, train, and coded data or keys"
    state = folder / "devices" / "north" / "state"
    pem = (folder / "devices" / "north" / "device.key").read_bytes()
    key = cast(EllipticCurvePrivateKey, load_pem_private_key(pem, None))
    number = key.private_numbers().private_value
    seed = client.batches.seed
    secret_file = state / "secret-batches.bin"
    raw = secret_file.read_bytes()[-8:]
    assert int.from_bytes(raw, "little") >> 1 == seed
    secrets = [
        *(line for line in pem.splitlines() if not line.startswith(b"---")),
        number.to_bytes(48, "big"),
        str(number).encode(),
        raw,
        raw.hex().encode(),
        base64.b64encode(raw).rstrip(b"="),
        str(seed).encode(),
        f"{seed:x}".encode(),
        b"1.23456789",
    ]
    told = [*map(flattened, answers), caplog.text.encode()]
    told += [repr(item).encode() for item in (client, client.vault, client.ledger, client.randomness, client.batches)]
    told += [repr(client.masked).encode(), repr(client.batches.child("x")).encode()]
    private = {secret_file, *state.glob("state-masking-*")}
    told += [path.read_bytes() for path in state.iterdir() if path not in private]
    for secret in secrets:
        assert not any(secret in text for text in told)


def test_its_rows_and_its_sensitivity_are_not_shown(scfl: Path) -> None:
    assert repr(opened(scfl, SCFL)) == "Client('north')"
