from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from codedfl.errors import InputError
from codedfl.federation._client import Client
from codedfl.federation._federation_config import FederationConfig, FederationIncentive
from codedfl.federation._masked_device import masking_terms, read_roster
from codedfl.federation._requests import UploadTask
from codedfl.federation._rounds import Rounds
from codedfl.federation._store import ServerStore, state_folder
from codedfl.federation.transport import REFUSED, Kind, Packet
from codedfl.files import read_npz
from codedfl.privacy import SeededNoise
from codedfl.streams import Streams
from codedfl.typing import FloatArray
from tests.federation.fuzz_checks import with_value
from tests.federation.support import (
    NAMES,
    InProcess,
    Killed,
    SeededRandomness,
    change_client,
    coordinator,
    copy_federation,
    digits_config,
    events,
    kill_at,
    open_clients,
    run,
)
from tests.support import mostly_slow

pytestmark = pytest.mark.usefixtures("naps", "seeded_server")

PHASES: tuple[Kind, ...] = ("keys", "shares", "masked", "agree", "unmask")


def config(**training: Any) -> FederationConfig:
    coding = {"sums_only": True, "coded_samples": 30}
    return digits_config(scheme="scfl", coding=coding, training={"rounds": 2, **training})


@pytest.fixture
def folder(digits_with_keys: Path, tmp_path: Path) -> Path:
    return copy_federation(digits_with_keys, tmp_path / "federation", config())


def plain(clients: dict[str, Client], name: str) -> dict[str, FloatArray]:
    """The coded data of a device as nobody but itself has it."""
    task = UploadTask.of(config())
    assert task is not None
    noise = SeededNoise(Streams(0).at("coding", device=NAMES.index(name)), 0.01)
    return task.upload.draw(task.terms, clients[name].rows, noise)


def assert_is_the_sum(folder: Path, clients: dict[str, Client], names: tuple[str, ...]) -> None:
    terms = masking_terms(config(), read_roster(folder / "server" / "keys", NAMES))
    held = ServerStore(state_folder(folder)).upload("sum", "rows")
    assert held.noise_variance == pytest.approx(0.01 * len(names), rel=1e-15)
    for key in ("features", "labels"):
        exact = np.sum([plain(clients, name)[key].astype(np.float64) for name in names], axis=0)
        # The sum travels in fixed point, and is rounded to float32 at the end.
        bound = terms.error_bound(len(names)) + 2.0**-24 * (np.abs(exact) + terms.error_bound(len(names)))
        assert (np.abs(held.arrays[key] - exact) <= bound).all()


def uploading(rounds: Rounds) -> tuple[str, ...]:
    flags = rounds.prepared.setting.code.uploading
    return tuple(name for name, uploads in zip(rounds.roster.names, flags, strict=True) if uploads)


def draws(clients: dict[str, Client]) -> list[int]:
    return [cast(SeededRandomness, clients[name].randomness).drawn for name in NAMES]


def leaving(exchange: InProcess, phase: Kind, *devices: str) -> None:
    """Let devices be away from the moment at which the first of them is asked for a phase, until training."""

    def tamper(device: str, kind: Kind, request: Packet, reply: Packet) -> Packet | None:  # noqa: ARG001
        if kind == "train":
            exchange.away = set()
        elif kind == phase and device in devices:
            exchange.away = set(devices)
            return None
        return reply

    exchange.tamper = tamper


def test_the_server_holds_the_sum(folder: Path) -> None:
    clients = open_clients(folder, "coding")
    rounds = run(folder, clients)
    assert uploading(rounds) == NAMES
    assert_is_the_sum(folder, clients, NAMES)
    (coded,) = rounds.prepared.held
    np.testing.assert_array_equal(
        coded.features, ServerStore(state_folder(folder)).upload("sum", "rows").arrays["features"]
    )
    assert rounds.prepared.setting.code.noise_variance.tolist() == [0.01] * 4
    assert coded.noise_variance == pytest.approx(0.04, rel=1e-15)
    assert [event["phase"] for event in events(folder, "phase")] == [phase for phase in PHASES for _ in NAMES]
    assert events(folder, "summed")[0]["devices"] == sorted(NAMES)
    assert draws(clients) == [1, 1, 1, 1]


def test_one_shot_solves_from_the_sum_alone(digits_with_keys: Path, tmp_path: Path) -> None:
    coding = {"sums_only": True, "coded_samples": 200, "clip_norm": 1.0, "label_noise_variance": 0.02}
    given = digits_config(scheme="one-shot", options={"upload": "rows"}, coding=coding)
    folder = copy_federation(digits_with_keys, tmp_path / "federation", given)
    rounds = run(folder, open_clients(folder, "coding"))
    assert rounds.state.round == 0
    np.testing.assert_array_equal(rounds.model, given.algorithm.init(rounds.prepared, rounds.model).model)
    assert [path.stem for path in (state_folder(folder) / "uploads").iterdir()] == ["sum"]
    assert rounds.curve[-1]["score"] > 0.5, "a constant answer is right for a tenth of the digits"
    assert json.loads((folder / "results" / "summary.json").read_text())["privacy"]["covers"] == "everything"


def test_each_device_may_have_noise_of_its_own(folder: Path) -> None:
    change_client(folder, "east", "# noise_variance =", "noise_variance = 0.5")
    rounds = run(folder, open_clients(folder, "coding"))
    assert rounds.prepared.setting.code.noise_variance.tolist() == [0.01, 0.5, 0.01, 0.01]
    assert rounds.prepared.held[0].noise_variance == pytest.approx(0.53, rel=1e-15)


@pytest.mark.parametrize("phase", mostly_slow(PHASES, "masked", "unmask"))
def test_a_device_may_drop_out_in_every_phase(folder: Path, phase: Kind) -> None:
    clients = open_clients(folder, "coding")
    exchange = InProcess(clients)
    leaving(exchange, phase, "east")
    rounds = coordinator(folder, exchange).run()
    survivors = NAMES if phase in ("agree", "unmask") else ("north", "south", "west")
    assert uploading(rounds) == survivors
    assert_is_the_sum(folder, clients, survivors)
    assert rounds.state.round == 2
    assert rounds.arrivals.arrays()["arrived"][1].all(), "it is back, and trains with the others"
    assert rounds.standing.excluded == ()
    assert rounds.standing.of("east").refused == 0


@pytest.mark.parametrize("phase", mostly_slow(PHASES, "masked"))
def test_too_few_devices_end_the_upload_which_can_be_resumed(folder: Path, phase: Kind) -> None:
    clients = open_clients(folder, "coding")
    exchange = InProcess(clients)
    leaving(exchange, phase, "east", "west")
    with pytest.raises(InputError, match="2 of 4 devices are too few, a sum-only upload needs 3"):
        coordinator(folder, exchange).run()
    rounds = run(folder, clients)
    assert uploading(rounds) == NAMES
    assert_is_the_sum(folder, clients, NAMES)
    assert draws(clients) == [1, 1, 1, 1]


def test_a_device_that_missed_the_agreement_helps_to_unmask(folder: Path) -> None:
    """East is away while others agree, west while others unmask: three of four are enough each time."""
    clients = open_clients(folder, "coding")
    exchange = InProcess(clients)

    def tamper(device: str, kind: Kind, request: Packet, reply: Packet) -> Packet | None:  # noqa: ARG001
        return None if (device, kind) in (("east", "agree"), ("west", "unmask")) else reply

    exchange.tamper = tamper
    rounds = coordinator(folder, exchange).run()
    assert uploading(rounds) == NAMES
    assert_is_the_sum(folder, clients, NAMES)
    answered = {(event["phase"], event["device"]) for event in events(folder, "phase")}
    assert answered & {("agree", "east"), ("unmask", "west")} == set()
    assert {("agree", "west"), ("unmask", "east")} <= answered


def test_without_keys_signatures_are_empty(digits: Path, tmp_path: Path) -> None:
    folder = copy_federation(digits, tmp_path / "federation", config())
    clients = open_clients(folder, "coding")
    signatures: list[Any] = []

    def watch(device: str, kind: Kind, request: Packet, reply: Packet) -> Packet:  # noqa: ARG001
        if kind == "agree":
            signatures.append(reply.values["signature"])
        return reply

    assert uploading(run(folder, clients, watch)) == NAMES
    assert signatures == [b""] * 4


def test_a_device_whose_policy_refuses_takes_part_without_coded_data(folder: Path) -> None:
    change_client(folder, "west", "\nleast_noise_variance = 0.0", "\nleast_noise_variance = 1.0")
    clients = open_clients(folder, "coding")
    rounds = run(folder, clients)
    assert uploading(rounds) == ("north", "east", "south")
    assert_is_the_sum(folder, clients, ("north", "east", "south"))
    assert rounds.standing.excluded == ()
    assert "policy.least_noise_variance" in events(folder, "declined")[0]["reason"]
    assert draws(clients) == [1, 1, 1, 0]


SPOILT: dict[str, Callable[[Packet], Packet]] = {
    "nothing": lambda _: Packet(),
    "other device": lambda reply: Packet(reply.arrays, {**reply.values, "device": "north"}),
    "too long": lambda reply: Packet(
        reply.arrays, {key: bytes(5000) if isinstance(value, bytes) else value for key, value in reply.values.items()}
    ),
    "zeros": lambda reply: Packet(
        {key: array[:-1] for key, array in reply.arrays.items()},
        {key: bytes(len(value)) if isinstance(value, bytes) else value for key, value in reply.values.items()},
    ),
}


NOT_NOTICED = {("shares", "zeros"), ("masked", "too long")}
"""Only their receivers can open shares; a masked upload has no byte strings."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("phase", "fault"),
    [(phase, fault) for phase in PHASES[:3] for fault in SPOILT if (phase, fault) not in NOT_NOTICED],
)
def test_a_device_that_answers_wrongly_is_left_out(folder: Path, phase: Kind, fault: str) -> None:
    clients = open_clients(folder, "coding")

    def tamper(device: str, kind: Kind, request: Packet, reply: Packet) -> Packet:  # noqa: ARG001
        return SPOILT[fault](reply) if (device, kind) == ("east", phase) else reply

    rounds = run(folder, clients, tamper)
    assert uploading(rounds) == ("north", "south", "west")
    assert_is_the_sum(folder, clients, ("north", "south", "west"))
    assert rounds.standing.excluded == ("east",)
    assert [event["what"] for event in events(folder, "refused")] == [phase] * 3


@pytest.mark.slow
def test_a_device_that_adds_more_noise_than_it_sold_is_left_out(digits_with_keys: Path, tmp_path: Path) -> None:
    contract = config().model_copy(update={"incentive": FederationIncentive(total_reward=20.0)})
    folder = copy_federation(digits_with_keys, tmp_path / "federation", contract)
    change_client(folder, "east", "sensitivity = 0.0", "sensitivity = 0.5")
    clients = open_clients(folder, "coding")

    def tamper(device: str, kind: Kind, request: Packet, reply: Packet) -> Packet:  # noqa: ARG001
        return with_value(reply, "noise_variance", 1e6) if (device, kind) == ("east", "masked") else reply

    rounds = run(folder, clients, tamper)
    assert uploading(rounds) == ("north", "south", "west")
    assert_is_the_sum(folder, clients, ("north", "south", "west"))
    assert rounds.standing.excluded == ("east",)
    refusals = events(folder, "refused")
    assert [(event["device"], event["what"]) for event in refusals] == [("east", "masked")] * 3
    assert all("as the contract item" in event["reason"] for event in refusals)


@pytest.mark.parametrize("fault", mostly_slow(SPOILT, "zeros"))
def test_a_survivor_that_signs_wrongly_stays_in_the_sum(folder: Path, fault: str) -> None:
    """The survivors are fixed by then. Its signature is not shown to anybody, and it is excluded from the rounds."""
    clients = open_clients(folder, "coding")
    shown: list[set[str]] = []

    def tamper(device: str, kind: Kind, request: Packet, reply: Packet) -> Packet:
        if kind == "unmask":
            shown.append({name for name in request.values if name.startswith("signature.")})
        return SPOILT[fault](reply) if (device, kind) == ("east", "agree") else reply

    rounds = run(folder, clients, tamper)
    assert uploading(rounds) == NAMES
    assert_is_the_sum(folder, clients, NAMES)
    assert rounds.standing.excluded == ("east",)
    assert [event["what"] for event in events(folder, "refused")] == ["agree"] * 3
    assert shown == [{"signature.north", "signature.south", "signature.west"}] * 4


# What the server sees --------------------------------------------------------------------------------------------------


def test_neither_messages_nor_the_servers_folder_hold_the_coded_data_of_a_device(folder: Path) -> None:
    clients = open_clients(folder, "coding")
    messages: list[Packet] = []
    files: dict[Path, set[bytes]] = {}

    def watch(device: str, kind: Kind, request: Packet, reply: Packet) -> Packet:  # noqa: ARG001
        messages.append(reply)
        for path in (folder / "server").rglob("*"):
            if path.is_file():
                files.setdefault(path, set()).add(path.read_bytes())
        return reply

    run(folder, clients, watch)
    for path in (folder / "server").rglob("*"):
        if path.is_file():
            files.setdefault(path, set()).add(path.read_bytes())
    assert len(files) > 8
    told = [array.tobytes() for packet in messages for array in packet.arrays.values()]
    kept = [content for contents in files.values() for content in contents]
    total = ServerStore(state_folder(folder)).upload("sum", "rows").arrays["features"]
    assert any(total[3].tobytes() in content for content in kept), "the search finds what is there"
    for name in NAMES:
        own = plain(clients, name)
        for key, array in own.items():
            fixed = np.rint(array[3].astype(np.float64) * 2**24).astype(np.int64)
            for row in (array[3].tobytes(), array[3].astype(np.float64).tobytes(), fixed.tobytes()):
                assert not any(row in content for content in (*told, *kept)), (name, key)


def test_masked_uploads_look_like_random_numbers(folder: Path) -> None:
    """Every bit is set in half of the numbers, within five standard errors, also the high ones that are all alike in the data."""
    masked: dict[str, Any] = {}

    def watch(device: str, kind: Kind, request: Packet, reply: Packet) -> Packet:  # noqa: ARG001
        if kind == "masked":
            masked[device] = reply.arrays["features"]
        return reply

    run(folder, open_clients(folder, "coding"), watch)
    assert sorted(masked) == sorted(NAMES)
    for numbers in masked.values():
        bits = np.unpackbits(np.ascontiguousarray(numbers).view(np.uint8)).reshape(-1, 64)
        assert np.abs(bits.mean(axis=0) - 0.5).max() < 5 * 0.5 / np.sqrt(len(bits))


@pytest.mark.parametrize("kind", ["coded", "masked", "agree", "unmask", "shares"])
def test_a_server_that_skips_phases_gets_nothing(folder: Path, kind: Kind) -> None:
    client = open_clients(folder, "coding")["north"]
    values: dict[str, Any] = {"prescription": config().prescription(), "survivors": list(NAMES)}
    answer = client.answer(kind, Packet({}, values))
    assert REFUSED in answer.values
    assert answer.arrays == {}


def test_a_server_that_names_other_survivors_later_gets_nothing(folder: Path) -> None:
    clients = open_clients(folder, "coding")
    requests: dict[Kind, Packet] = {}
    replies: dict[Kind, Packet] = {}

    def watch(device: str, kind: Kind, request: Packet, reply: Packet) -> Packet:
        if device == "north":
            requests[kind], replies[kind] = request, reply
        return reply

    run(folder, clients, watch)
    for kind in ("agree", "unmask"):
        asked = requests[kind]
        for survivors in (["north", "east", "south"], ["north"], [], [*NAMES, 7], "everybody", 7):
            lie = Packet({}, {**asked.values, "survivors": cast(Any, survivors)})
            assert REFUSED in clients["north"].answer(kind, lie).values
        again = open_clients(folder, "coding")["north"].answer(kind, asked)
        assert again.values == replies[kind].values, "the same question gets the same answer"


def test_a_server_that_shows_too_few_or_wrong_signatures_gets_nothing(folder: Path) -> None:
    clients = open_clients(folder, "coding")
    asked: list[Packet] = []

    def watch(device: str, kind: Kind, request: Packet, reply: Packet) -> Packet:
        if (device, kind) == ("north", "unmask"):
            asked.append(request)
        return reply

    run(folder, clients, watch)
    values = asked[0].values
    signatures = [name for name in values if name.startswith("signature.")]
    assert len(signatures) == 4
    east: Any = values["signature.east"]
    spoilt: list[dict[str, Any]] = [
        {name: value for name, value in values.items() if name not in signatures},
        {name: value for name, value in values.items() if name not in ("signature.east", "signature.west")},
        {**values, "signature.east": values["signature.west"]},
        {**values, "signature.east": bytes(len(east))},
        {**values, "signature.east": b""},
        {**values, "signature.mallory": east},
        {**values, "signature.east": "text", "signature.west": 7},
    ]
    for wrong in spoilt:
        answer = clients["north"].answer("unmask", Packet({}, wrong))
        assert "signature" in str(answer.values.get(REFUSED))
    assert REFUSED not in clients["north"].answer("unmask", Packet({}, values)).values


# Killed and resumed ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("count", [*range(3, 25, 2), 24])
def test_a_server_killed_in_any_phase_ends_with_the_same_sum(folder: Path, count: int) -> None:
    """Greetings are messages 0 to 3, then four of each phase. The devices are started again as well."""
    processes = [open_clients(folder, "coding")]
    with pytest.raises(Killed):
        run(folder, processes[0], kill_at(count))
    processes.append(open_clients(folder, "coding"))
    rounds = run(folder, processes[1])
    assert uploading(rounds) == NAMES
    assert_is_the_sum(folder, processes[1], NAMES)
    assert events(folder, "refused") == []
    assert [sum(each) for each in zip(*map(draws, processes), strict=True)] == [1, 1, 1, 1]
    assert all(len(client.ledger.uploads()) == 1 for client in processes[1].values())


@pytest.mark.slow
@pytest.mark.parametrize("gone", ["north", "west"])
@pytest.mark.parametrize("after", [0, 3, 4])
def test_a_survivor_may_be_gone_for_good_when_the_server_is_back(folder: Path, gone: str, after: int) -> None:
    """Devices answer for one set of survivors alone, so nobody can be taken out of it any more."""
    clients = open_clients(folder, "coding")
    with pytest.raises(Killed):
        run(folder, clients, kill_at(4 + 3 * 4 + after))
    exchange = InProcess(clients)
    exchange.away = {gone}
    rounds = coordinator(folder, exchange).run()
    assert uploading(rounds) == NAMES
    assert_is_the_sum(folder, clients, NAMES)
    assert rounds.prepared.setting.code.noise_variance.tolist() == [0.01] * 4
    assert {kind for _, kind in exchange.asked} == ({"unmask", "train"} if after == 4 else {"agree", "unmask", "train"})


@pytest.mark.parametrize(
    ("missed", "killed_in"),
    [
        ("keys", "masked"),
        ("masked", "unmask"),
        *(
            pytest.param(missed, killed_in, marks=pytest.mark.slow)
            for missed, killed_in in (
                ("keys", "shares"),
                ("keys", "agree"),
                ("keys", "unmask"),
                ("shares", "masked"),
                ("shares", "unmask"),
                ("masked", "agree"),
                ("masked", "train"),
            )
        ),
    ],
)
def test_a_device_that_missed_a_phase_is_no_offender_after_a_restart(
    folder: Path, missed: Kind, killed_in: Kind
) -> None:
    clients = open_clients(folder, "coding")

    def tamper(device: str, kind: Kind, request: Packet, reply: Packet) -> Packet | None:  # noqa: ARG001
        if kind == killed_in and device == "west":
            raise Killed
        return None if (device, kind) == ("east", missed) else reply

    with pytest.raises(Killed):
        run(folder, clients, tamper)
    rounds = run(folder, clients)
    assert uploading(rounds) == ("north", "south", "west")
    assert_is_the_sum(folder, clients, ("north", "south", "west"))
    assert events(folder, "refused") == []
    assert rounds.standing.of("east").refused == 0
    assert rounds.arrivals.arrays()["arrived"].all()


def test_a_survivor_that_missed_the_agreement_is_no_offender_after_a_restart(folder: Path) -> None:
    clients = open_clients(folder, "coding")

    def tamper(device: str, kind: Kind, request: Packet, reply: Packet) -> Packet | None:  # noqa: ARG001
        if (device, kind) == ("west", "unmask"):
            raise Killed
        return None if (device, kind) == ("east", "agree") else reply

    with pytest.raises(Killed):
        run(folder, clients, tamper)
    exchange = InProcess(open_clients(folder, "coding"))
    rounds = coordinator(folder, exchange).run()
    assert uploading(rounds) == NAMES
    assert_is_the_sum(folder, clients, NAMES)
    assert events(folder, "refused") == []
    assert {kind for _, kind in exchange.asked} == {"unmask", "train"}, "enough signatures are on disk"


def test_once_summed_nobody_is_asked_again(folder: Path) -> None:
    clients = open_clients(folder, "coding")
    with pytest.raises(Killed):
        run(folder, clients, kill_at(4 + 5 * 4 + 1))
    exchange = InProcess(clients)
    coordinator(folder, exchange).run()
    assert {kind for _, kind in exchange.asked} == {"train"}
    kept = read_npz(state_folder(folder) / "masked-sum.npz", required=("names", "noise"))
    assert kept["names"].tolist() == sorted(NAMES)


def test_files_of_the_upload_are_private(folder: Path) -> None:
    run(folder, open_clients(folder, "coding"))
    for name in ("masked-upload.npz", "masked-sum.npz", "uploads/sum.npz"):
        assert (state_folder(folder) / name).stat().st_mode & 0o077 == 0, name


def test_a_missing_public_key_is_named(folder: Path) -> None:
    (folder / "devices" / "north" / "roster" / "west.pub").unlink()
    with pytest.raises(InputError, match="the public key of west: copy it from the operator"):
        Client.open(folder / "devices" / "north")
