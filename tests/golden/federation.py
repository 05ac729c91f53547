"""Federations in one process whose every draw has an address: what devices and server say to each other, and what they keep.

Each step of a scenario is a function here. It runs with the code of a commit that has a copy of this file, or, for older commits,
with the present copy; so names of the package are looked up in `NAMES`, where a name that moves gets one more place.
"""

from __future__ import annotations

import importlib
import os
import shutil
import traceback
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.frozen import CLOCK, SYSTEM
from tests.golden.scenarios import BETWEEN_ROUNDS, IN_A_ROUND, WHILE_UPLOADING

NAMES: dict[str, tuple[str, ...]] = {
    "Client": ("codedfl.federation", "codedfl.flower"),
    "initialise": ("codedfl.federation", "codedfl.flower"),
    "parse_federation": ("codedfl.federation", "codedfl.flower"),
    "Coordinator": ("codedfl.federation._coordinator", "codedfl.flower._coordinator"),
    "reply_of": ("codedfl.federation.transport", "codedfl.federation._exchange", "codedfl.flower._exchange"),
    "to_records": ("codedfl.federation.transport.flower._records", "codedfl.federation._wire", "codedfl.flower._wire"),
    "from_records": (
        "codedfl.federation.transport.flower._records",
        "codedfl.federation._wire",
        "codedfl.flower._wire",
    ),
    "ExactNoise": ("codedfl.privacy",),
    "UploadGenerator": ("codedfl.flower._randomness",),  # before there was ExactNoise
    "Packet": ("codedfl.federation.transport", "codedfl.federation._packet", "codedfl.flower._packet"),
    "Streams": ("codedfl.streams",),
    "csv_text": ("codedfl.files",),
    "StopTraining": ("codedfl.training",),
    "Callback": ("codedfl.training",),
    "RunFolder": ("codedfl.experiment",),
    "load_config": ("codedfl.experiment",),
    "run": ("codedfl.experiment",),
}
"""Where the package has what is used here; the first place that has it counts."""


def places_of(name: str) -> list[Any]:
    """Return something of the package from every place that has it."""
    found = []
    for place in NAMES[name]:
        try:
            found.append(getattr(importlib.import_module(place), name))
        except (ImportError, AttributeError):
            continue
    return found


def has(name: str) -> bool:
    """Return whether the package has something of that name."""
    return bool(places_of(name))


def use(name: str) -> Any:
    """Return something of the package, wherever it is."""
    if not has(name):
        raise SystemExit(f"{name} is in none of {', '.join(NAMES[name])}: add its place to NAMES in {__file__}")
    return places_of(name)[0]


# The federations ----------------------------------------------------------------------------------------------------------

DEVICES = ("north", "east", "south", "west")
CUTS = (0, 250, 600, 1000, 1397)
PIXELS = tuple(f"p{i}" for i in range(64))
ROUNDS = 6
COMMON: dict[str, Any] = {
    "name": "digits",
    "devices": DEVICES,
    "data": {
        "columns": PIXELS,
        "target": ["digit"],
        "task": "classification",
        "classes": [str(i) for i in range(10)],
    },
    "features": {"map": "rff", "dimension": 50, "gamma": 0.0004, "intercept": False},
    "coding": {"coded_samples": 100, "noise_variance": 0.01},
    "training": {"rounds": ROUNDS, "deadline_s": 5.0, "join_s": 20.0, "upload_s": 20.0, "local_steps": 2},
    "server": {"test_file": "test.csv"},
}
PRIVATE = {"privacy": {"epsilon": 4.0, "delta": 1e-5}}
SYSTEMS_OWN = "system"
"""Marks federations whose devices draw from the operating system, as they do outside of tests."""

FEDERATIONS: dict[str, dict[str, Any]] = {
    "fedavg": {"scheme": "fedavg"},
    "momentum": {"scheme": "momentum"},
    "scfl": {"scheme": "scfl"},
    "scfl-factor": {"scheme": "scfl", "options": {"upload": "factor"}},
    "scfl-fixed": {"scheme": "scfl-fixed"},
    "scfl-clipped": {"scheme": "scfl", "coding": {"clip_norm": 1.0, "label_noise_variance": 0.02}},
    "scfl-contract": {"scheme": "scfl", "incentive": {"total_reward": 20.0}},
    "scfl-masked": {"scheme": "scfl", "coding": {"sums_only": True, "coded_samples": 30}},
    "dp-cfl": {"scheme": "dp-cfl"},
    "ccfl": {"scheme": "ccfl"},
    "ccfl-noise": {"scheme": "ccfl", "options": {"noise": True}},
    "ccfl-factor": {"scheme": "ccfl", "options": {"upload": "factor"}},
    "ccfl-bernoulli": {"scheme": "ccfl", "options": {"sampling": "bernoulli", "memory": "none"}},
    "one-shot": {"scheme": "one-shot"},
    "one-shot-rows": {"scheme": "one-shot", "options": {"upload": "rows"}},
    "dp-gd": {"scheme": "dp-gd", "options": {"rounds": ROUNDS}, **PRIVATE},
    "dp-gd-plain": {"scheme": "dp-gd", "options": {"rounds": ROUNDS, "curvature": "none"}, **PRIVATE},
    "regression": {
        "scheme": "dp-gd",
        "options": {"curvature": "none"},
        "data": {"task": "regression", "classes": []},
        "privacy": {"epsilon": 20.0, "delta": 1e-5, "label_center": 4.5, "label_bound": 3.0},
    },
    "choices": {"scheme": "scfl"},
    f"{SYSTEMS_OWN}-scfl": {"scheme": "scfl"},
    f"{SYSTEMS_OWN}-dp-gd": {"scheme": "dp-gd", "options": {"rounds": ROUNDS}, **PRIVATE},
}
CHOICES = {"east": ("# noise_variance =", "noise_variance = 0.05"), "south": ("most_uploads = 1", "most_uploads = 0")}
"""What devices of the federation ``choices`` have in their own configuration: more noise, and no upload."""

ROW_S = {"north": 0.012, "east": 0.004, "south": 0.002, "west": 0.008}
"""Seconds that devices say they need for a row and a step, so that the server asks some of them for a part of their rows."""


def settings(given: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Return the values of a federation, section by section over those that are common to all."""
    values = dict(COMMON)
    for key, value in {**given, **more}.items():
        values[key] = {**values[key], **value} if isinstance(values.get(key), dict) else value
    return values


def make_federation(folder: Path, name: str) -> None:
    """Set a federation up without keys, whose signatures would differ every time, with its data in place."""
    given = FEDERATIONS[name]
    masked = given.get("coding", {}).get("sums_only", False)
    config = use("parse_federation")(settings({**given, "coding": {**given.get("coding", {}), "sums_only": False}}))
    use("initialise")(folder, config, hosts=["127.0.0.1"], insecure=True)
    if masked:  # which initialise does not offer without keys
        for path in folder.rglob("federation.toml"):
            edit(path, "sums_only = false", "sums_only = true")
    if name == "choices":
        for device, (old, new) in CHOICES.items():
            edit(folder / "devices" / device / "client.toml", old, new)
    from sklearn.datasets import load_digits

    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    test, train = order[:400], order[400:]
    train = train[np.argsort(data.target[train] // 3, kind="stable")]
    write_table(folder / "test.csv", data, test)
    for device, (start, end) in zip(DEVICES, pairwise(CUTS), strict=True):
        write_table(folder / "devices" / device / "data.csv", data, train[start:end])


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    if text.count(old) != 1:
        raise SystemExit(f"{path.name} has {old!r} {text.count(old)} times")
    path.write_text(text.replace(old, new), encoding="utf-8")


def write_table(path: Path, data: Any, rows: Any) -> None:
    lines = [[*map(float, data.data[row]), int(data.target[row])] for row in rows]
    path.write_text(use("csv_text")([*PIXELS, "digit"], lines), encoding="utf-8")
    os.utime(path, (0, 0))  # the names of files with mapped rows depend on it


# Devices ------------------------------------------------------------------------------------------------------------------


class Addressed:
    """Exact randomness of a device, by what is drawn and in which round.

    Args:
        device: its name.
        again: whether it draws for a federation that is continued: an upload is then another one, so that it shows.
    """

    def __init__(self, device: str, again: bool) -> None:
        self.device, self.again = device, again
        self.drawn: list[str] = []

    def _generator(self, name: str, round: int | None = None) -> Any:
        self.drawn.append(name if round is None else f"{name} {round}")
        again = self.again and round is None
        seed = int.from_bytes(sha256(repr((self.device, name, round, again)).encode()).digest()[:16], "little")
        more = np.random.Generator(np.random.Philox(key=seed, counter=1))

        if has("ExactNoise"):
            return use("ExactNoise")(np.random.Generator(np.random.Philox(key=seed)), random_bytes=more.bytes)

        class Exact(use("UploadGenerator")):  # type: ignore[misc]
            def random_bytes(self, size: int) -> bytes:
                return more.bytes(size)

        return Exact(np.random.Philox(key=seed))

    def encoding(self) -> Any:
        return self._generator("upload")

    def update(self, round: int) -> Any:
        return self._generator("update", round)

    def batches(self) -> Any:
        return use("Streams")(DEVICES.index(self.device))


def open_devices(folder: Path, again: bool) -> dict[str, Any]:
    """Open all devices of a federation."""
    opened = {}
    for device in DEVICES:
        own = folder.name.startswith(SYSTEMS_OWN)
        with SYSTEM.of(device):
            randomness = None if own else Addressed(device, again)
            opened[device] = use("Client").open(folder / "devices" / device, randomness=randomness)
    return opened


class Killed(BaseException):
    """Stands for the end of the server's process."""


Stop = Callable[[str, Mapping[str, Any], int], bool]
"""Tells from the kind of a question, one of the messages and the number of replies that were read whether the server ends now."""


class Exchange:
    """Carries messages between a server and devices in this process, as Flower's records, and writes them down.

    Args:
        devices: the devices by name.
        stop: when to end the server.
    """

    def __init__(self, devices: Mapping[str, Any], stop: Stop = lambda *_: False) -> None:
        self.devices, self.stop = devices, stop
        self.said: dict[str, list[str]] = {device: [] for device in devices}

    def online(self) -> frozenset[str]:
        return frozenset(self.devices)

    def ask(self, kind: str, requests: Mapping[str, Any], within_s: float) -> Iterator[Any]:
        values: dict[str, Any] = next((dict(request.values) for request in requests.values()), {})
        if self.stop(kind, values, 0):
            raise Killed
        answers = []
        for device in filter(requests.__contains__, DEVICES):  # a server may ask in any order
            request = requests[device]
            self.said[device].append(f"{kind}, within {within_s:g} s")
            with SYSTEM.of(device):
                answer = self.devices[device].answer(kind, self._carried(device, ">", request))
            answers.append((device, self._carried(device, "<", answer)))
        return self._replies(kind, values, answers)

    def _replies(self, kind: str, values: Mapping[str, Any], answers: list[tuple[str, Any]]) -> Iterator[Any]:
        for number, (device, answer) in enumerate(answers, 1):
            if self.stop(kind, values, number):
                raise Killed
            if kind == "train" and int(values["round"]) % (2 + DEVICES.index(device)) == 1:
                continue  # lost on the way
            compute_s = 0.0
            if "compute_s" in answer.values and "epsilon" not in values:
                compute_s = ROW_S[device] * 2 * int(answer.values["batch_size"])
                answer = use("Packet")(answer.arrays, {**answer.values, "compute_s": compute_s})
            yield use("reply_of")(device, compute_s + 0.25, answer)

    def _carried(self, device: str, direction: str, packet: Any) -> Any:
        """Write a message down, and return what arrives at the other end."""
        records = use("to_records")(packet)
        self.said[device] += [f"{direction} {line}" for line in described(packet, records)]
        return use("from_records")(records)


def described(packet: Any, records: Any) -> Iterator[str]:
    """Yield a message in readable lines: size, digest on the wire, values, and arrays with their digests."""
    from flwr.common.serde import recorddict_to_proto

    wire = recorddict_to_proto(records).SerializeToString(deterministic=True)
    yield f"{packet.bytes} bytes, on the wire {len(wire)} of sha256 {sha256(wire).hexdigest()}"
    for name in sorted(packet.values):
        value = packet.values[name]
        yield f"  {name}: {type(value).__name__} = {value.hex() if isinstance(value, bytes) else repr(value)}"
    for name in sorted(packet.arrays):
        array = np.asarray(packet.arrays[name])
        digest = sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
        size = float(np.linalg.norm(array.astype(np.float64)))
        yield f"  {name}: {array.dtype.str} {array.shape}, norm {size!r}, sha256 {digest}"


def run_federation(folder: Path, process: str, stop: Stop = lambda *_: False) -> None:
    """Run a federation, or continue one, until it is complete or stopped; leave what was said and drawn."""
    again = process == "continued"
    SYSTEM.begin("again" if again else "first")
    CLOCK.now_s = 100.0
    devices = open_devices(folder, again)
    exchange = Exchange(devices, stop)
    coordinator = use("Coordinator").open(folder, exchange)
    (folder / "server" / "state").mkdir(parents=True, exist_ok=True)
    try:
        coordinator.run()
    except Killed:
        pass
    except Exception:  # the other federations go on
        (folder / f"{process}.failed").write_text(traceback.format_exc(), encoding="utf-8")
    else:
        if stop("never", {}, -1):
            raise SystemExit(f"{folder} was to be stopped, and was not")
    for device, client in devices.items():
        write_lines(folder / "said" / f"{process}-{device}.txt", exchange.said[device])
        if isinstance(client.randomness, Addressed):
            write_lines(folder / "drawn" / f"{process}-{device}.txt", client.randomness.drawn)


def write_lines(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


# Steps of scenarios -------------------------------------------------------------------------------------------------------


def federations() -> None:
    """Run all federations to their ends."""
    for name in FEDERATIONS:
        make_federation(Path(name), name)
        run_federation(Path(name), "whole")


def at(kind: str, replies: int, round: int = -1) -> Stop:
    """Return when to stop: before a question, or when so many replies to it were read."""

    def stop(asked: str, values: Mapping[str, Any], number: int) -> bool:
        return number < 0 or (asked == kind and number == replies and int(values.get("round", -1)) == round)

    return stop


STOPS: dict[str, tuple[str, Stop]] = {
    **{f"{name}-between-rounds": (name, at("train", 0, 3)) for name in BETWEEN_ROUNDS},
    **{f"{name}-in-a-round": (name, at("train", 3, 3)) for name in IN_A_ROUND},
    **{f"{name}-while-uploading": (name, at("coded", 3)) for name in WHILE_UPLOADING},
    **{f"scfl-masked-in-{phase}": ("scfl-masked", at(phase, 2)) for phase in ("shares", "masked", "agree", "unmask")},
}
"""Federations that are stopped, and when."""


def stopped() -> None:
    """Run federations to their ends in ``whole``, and stop them in ``parts``."""
    for name in dict.fromkeys(name for name, _ in STOPS.values()):
        make_federation(Path("new") / name, name)
        shutil.copytree(Path("new") / name, Path("whole") / name)
        run_federation(Path("whole") / name, "whole")
    for name, (federation, stop) in STOPS.items():
        folder = Path("parts") / name
        shutil.copytree(Path("new") / federation, folder)
        run_federation(folder, "begun", stop)
    shutil.rmtree("new")


def continued() -> None:
    """Continue what `stopped` left, in a folder of its own."""
    for folder in sorted(Path("parts").iterdir()):
        made = Path("continued") / folder.name
        shutil.copytree(folder, made)
        run_federation(made, "continued")


RUN = {"training.rounds": 12, "learning_rate.scale": 0.5}
RUN_SCHEMES = ("fedavg", "scfl", "scfl-fixed", "dp-cfl", "codedfedl", "cfl-fb", "momentum", "ccfl", "one-shot")


def stopped_run() -> None:
    """Run schemes to their ends in ``whole``, and stop each after five rounds in ``parts``."""

    class Stopping(use("Callback")):  # type: ignore[misc]
        def on_round(self, progress: Any) -> None:
            if progress.state.round == 5:
                raise use("StopTraining")("stopped")

    for scheme in RUN_SCHEMES:
        config = use("load_config")(overrides={**RUN, "schemes": [scheme]})
        for name, callbacks in (("whole", []), ("parts", [Stopping()])):
            folder = use("RunFolder").create(Path(name) / scheme, config)
            use("run")(config, folder=folder, callbacks=callbacks)


def continued_run() -> None:
    """Continue what `stopped_run` left, in a folder of its own."""
    shutil.copytree("parts", "continued")
    for folder in sorted(Path("continued").iterdir()):
        again = use("RunFolder").reopen(folder)
        use("run")(again.config, folder=again)


STEPS: dict[str, Callable[[], None]] = {
    each.__name__: each for each in (federations, stopped, continued, stopped_run, continued_run)
}


def main(arguments: list[str]) -> None:
    for name in arguments:
        STEPS[name]()
