"""A device of a real federation: answers what the server asks, within its own policy."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from codedfl._messages import shown
from codedfl._version import __version__
from codedfl.coding import Rows, clipped_labels, compute_gram
from codedfl.errors import InputError
from codedfl.federation._checks import MASKED
from codedfl.federation._client_config import ClientConfig
from codedfl.federation._config_files import read_client, read_federation
from codedfl.federation._device_data import load_rows
from codedfl.federation._federation_config import FederationConfig
from codedfl.federation._masked_device import MaskedDevice
from codedfl.federation._policy import (
    NoiseLevel,
    agreed_noise,
    check_batch,
    check_prescription,
    check_update,
    check_upload,
    noise_of,
    upload_request,
)
from codedfl.federation._private_update import check_private_release, make_private_update, requested_private_train
from codedfl.federation._randomness import DeviceRandomness, OperatingSystemRandomness
from codedfl.federation._release_ledger import ReleaseLedger
from codedfl.federation._requests import TrainRequest, UploadTask, requested_menu, requested_train, wants_smoothness
from codedfl.federation._vault import Memory, Vault, digest_of
from codedfl.federation.transport import MASKED_KINDS, REFUSED, Kind, Packet
from codedfl.files import Arrays
from codedfl.identity import identity
from codedfl.losses import Loss
from codedfl.parallel import one_blas_thread
from codedfl.privacy import Mechanism, epsilon_of
from codedfl.streams import Streams
from codedfl.training import Local, Scheme, Start, Steps, bernoulli_steps, device_update, initial_memory, walking_steps

log = logging.getLogger("codedfl.federation")


@dataclass(repr=False)
class Client:
    """What a device computes and releases, whatever carries the messages.

    Everything that leaves the device is first in its ledger, on disk. An upload is drawn once and kept: a second request gets
    the same bytes.

    Args:
        config: ``client.toml``.
        federation: the device's own copy of ``federation.toml``.
        rows: its samples, as the federation prescribes.
        vault: what it released, and its secrets.
        ledger: everything that it ever released.
        randomness: the source of projection, noise and batches.
        masked: its part in an upload of which the server learns only the sum; None for uploads in the clear.
    """

    config: ClientConfig
    federation: FederationConfig
    rows: Rows
    vault: Vault
    ledger: ReleaseLedger
    randomness: DeviceRandomness
    masked: MaskedDevice | None = field(default=None)

    def __repr__(self) -> str:
        return f"Client({self.config.name!r})"  # its rows and its sensitivity are in no log

    def __post_init__(self) -> None:
        if self.config.name not in self.federation.devices:
            raise InputError(
                f"name = {shown(self.config.name)} in client.toml is not one of the devices of federation.toml: correct one of"
                " them."
            )

    @classmethod
    def open(cls, folder: Path | str, *, randomness: DeviceRandomness | None = None) -> Client:
        """Open the device whose ``client.toml`` is in a folder.

        Args:
            folder: the folder.
            randomness: replaces that of the operating system, in tests alone; no configuration can.
        """
        folder = Path(folder)
        config = read_client(folder / "client.toml")
        federation = read_federation(folder / config.federation)
        state = folder / config.state
        vault = Vault(state)
        rows = load_rows(folder / config.data, federation, cache=state)
        masked = MaskedDevice.open(folder, config, federation, vault) if federation.coding.sums_only else None
        ledger = ReleaseLedger(state / "ledger.jsonl")
        return cls(config, federation, rows, vault, ledger, randomness or OperatingSystemRandomness(vault), masked)

    @property
    def index(self) -> int:
        """The index of the device in the federation."""
        return self.federation.devices.index(self.config.name)

    @cached_property
    def task(self) -> UploadTask | None:
        """What the federation asks it to upload."""
        return UploadTask.of(self.federation)

    @cached_property
    def scheme(self) -> Scheme:
        """The scheme of the federation, of which this device runs its half."""
        return self.federation.algorithm

    @cached_property
    def loss(self) -> Loss:
        """What it takes its steps on."""
        return self.scheme.loss_for(self.federation.data.task)

    @property
    def _shape(self) -> tuple[int, int]:
        """The shape of the model, ``(d, o)``."""
        return self.federation.dimension, self.federation.outputs

    @cached_property
    def memory(self) -> Memory | None:
        """What it remembers between rounds; None if its scheme remembers nothing."""
        first = initial_memory(self.scheme, self._shape, np.dtype(np.float32))
        return None if first is None else Memory(self.vault, self.federation.prescription(), first)

    @cached_property
    def batches(self) -> Streams:
        """The source of its batches."""
        return self.randomness.batches()

    def answer(self, kind: Kind, request: Packet) -> Packet:
        """Answer a request, or say in one sentence why not."""
        handlers: Mapping[str, Callable[[Packet], Packet]] = {
            "hello": self.introduce,
            "train": self.train,
            # Where only sums are agreed on, nothing is ever uploaded in the clear, whoever asks.
            **({"coded": self.upload} if self.masked is None else self._masked_phases()),
        }
        try:
            if kind not in handlers:
                raise InputError(f"there is no request {shown(kind)}, only {', '.join(handlers)}.")
            asked = request.values.get("prescription")
            check_prescription(self.config.policy, self.federation, str(asked))
            reply = handlers[kind](request)
        except InputError as refusal:
            log.warning("refused %s: %s", kind, refusal)
            return Packet({}, {"device": self.config.name, REFUSED: str(refusal)})
        log.info("answered %s%s with %d bytes", kind, _of_round(request), reply.bytes)
        return reply

    def introduce(self, request: Packet) -> Packet:
        """Say how many rows it has, and which item of the contract it takes."""
        menu = requested_menu(request)
        noise = noise_of(self.config, self.federation, samples=len(self.rows), menu=menu)
        values: dict[str, int | float | str] = {
            "device": self.config.name,
            "prescription": self.federation.prescription(),
            "samples": len(self.rows),
            "version": __version__,
        }
        if noise is None:
            values["choice"] = -1
        elif noise.item is not None:
            values["choice"] = noise.item
        # Whether anybody needs it, its own copy of federation.toml says: of a private scheme, nobody does.
        told = request.values.get("smoothness") is True and wants_smoothness(self.federation)
        if told:
            values["smoothness"] = max(compute_gram([self.rows]).smoothness, 1e-300)
        # The number of rows is taken to be public; the curvature of the loss is a function of the data.
        return self._released("answer", Packet({}, values), epsilon=None if told else 0.0)

    def upload(self, request: Packet) -> Packet:
        """Return the coded upload: drawn at the first request, the same bytes at every further one."""
        arrays, noise = self.coded(request)
        return Packet(arrays, self._declared(noise))

    def coded(self, request: Packet) -> tuple[Arrays, NoiseLevel]:
        """Return the arrays of the upload and its noise, recorded in the ledger."""
        task = self.task
        if task is None:
            raise InputError(f"scheme = {shown(self.federation.scheme)} has no upload: nothing is sent.")
        noise = noise_of(self.config, self.federation, samples=len(self.rows), menu=requested_menu(request))
        if noise is None:
            raise InputError("no item of the contract is worth it to this device: it uploads nothing.")
        key = task.key(self.federation.prescription(), noise.noise_variance, noise.label_noise_variance)
        described = upload_request(key, self.config, self.federation, noise, samples=len(self.rows))
        agreed = agreed_noise(self.federation)
        declared, stored = self._declared(noise), self.vault.stored(key)
        sent = stored is not None and self.ledger.has("upload", key, Packet(stored, declared).digest)
        check_upload(self.config.policy, described, self.ledger, stored=sent)
        if agreed is not None and not sent:
            check_private_release(self.config, self.federation, self.ledger, agreed.mechanism)
        arrays = stored if stored is not None else self.vault.release(key, lambda: self._drawn(task, noise))
        packet = Packet(arrays, declared)
        self.ledger.append(
            "upload",
            federation=self.federation.name,
            size_bytes=packet.bytes,
            digest=packet.digest,
            key=key,
            noise_variance=noise.noise_variance,
            label_noise_variance=noise.label_noise_variance,
            epsilon=described.epsilon,
            mechanism=None if agreed is None else agreed.mechanism,
        )
        return arrays, noise

    def _reserved(self) -> tuple[Mechanism, ...]:
        """Return the mechanism of an upload that all devices agreed on, as long as it is not in the ledger."""
        agreed = agreed_noise(self.federation)
        if self.task is None or agreed is None:
            return ()
        key = self.task.key(self.federation.prescription(), agreed.noise_variance, agreed.label_noise_variance)
        return () if key in self.ledger.uploads() else (agreed.mechanism,)

    @one_blas_thread()
    def _drawn(self, task: UploadTask, level: NoiseLevel) -> Arrays:
        noise, rows, bound = self.randomness.encoding(), self.rows, self.federation.privacy.label_bound
        if bound > 0:
            rows = Rows(rows.features, clipped_labels(noise.precise(rows.labels), bound))
        return task.upload.draw(task.terms, rows, noise.of(level.noise_variance, level.label_noise_variance))

    def _declared(self, noise: NoiseLevel) -> dict[str, int | float | str]:
        task = self.task
        assert task is not None
        values: dict[str, int | float | str] = {
            "device": self.config.name,
            "kind": MASKED if self.masked else task.upload.name,
            "coded_samples": task.terms.coded_samples,
            "noise_variance": noise.noise_variance,
            "label_noise_variance": noise.label_noise_variance,
        }
        if task.upload.declares_rows:
            values["rows"] = task.upload.rows_behind(len(self.rows))
        return values

    @one_blas_thread()
    def train(self, request: Packet) -> Packet:
        """Return the accumulated gradient of the round, (3) in the paper, or a private sum of gradients."""
        if self.scheme.private:
            return self._private_update(request)
        asked = requested_train(request, self.federation)
        check_update(self.config.policy, self.ledger)
        check_batch(self.config.policy, asked.batch_size, len(self.rows))
        began = time.perf_counter()
        local = Local(lambda starts: self.steps(asked, starts), asked.local_steps, asked.step_size, len(self.rows))
        before = self.memory.at(asked.counted) if self.memory else None
        with np.errstate(over="ignore", invalid="ignore"):
            after, payload = device_update(self.scheme, before, asked.sent, local, self._shape)
        if self.memory:
            self.memory.keep(asked.counted, asked.round, after)
        values: dict[str, int | float | str] = {
            "device": self.config.name,
            "round": asked.round,
            "batch_size": min(asked.batch_size, len(self.rows)),
            "compute_s": time.perf_counter() - began,
        }
        return self._released("update", Packet(dict(payload), values), asked.round)

    def _private_update(self, request: Packet) -> Packet:
        """Return the private update of a round: drawn at the first request, the same bytes if it is asked for again.

        A server that was killed asks again for a round that it had begun. Another model or other noise makes it another release.
        """
        asked = requested_private_train(request, self.federation)
        told = asked.model, asked.clip_norm, asked.noise_multiplier, asked.geometry
        key = identity((self.federation.prescription(), "update", asked.round, told))
        stored = self.vault.stored(key)
        if stored is None or not self.ledger.has("update", key, digest_of(stored)):
            check_update(self.config.policy, self.ledger)
            check_private_release(self.config, self.federation, self.ledger, asked.mechanism, self._reserved())

        def drawn() -> Arrays:
            noise = self.randomness.update(asked.round)
            return {"update": make_private_update(self.rows, asked, self.federation, noise)}

        arrays = stored if stored is not None else self.vault.release(key, drawn)
        values: dict[str, int | float | str] = {
            "device": self.config.name,
            "round": asked.round,
            "batch_size": len(self.rows),
            "compute_s": 0.0,  # no epsilon covers times, so it tells none
        }
        packet = Packet(arrays, values)
        self.ledger.append(
            "update",
            federation=self.federation.name,
            size_bytes=packet.bytes,
            digest=digest_of(arrays),
            round=asked.round,
            key=key,
            noise_variance=(asked.clip_norm * asked.noise_multiplier) ** 2,
            epsilon=epsilon_of((asked.mechanism,), self.config.privacy.delta),
            mechanism=asked.mechanism,
        )
        return packet

    def steps(self, asked: TrainRequest, starts: Sequence[Start]) -> Steps:
        """Return the gradient steps of a round, as the simulator takes them."""
        work = (self.rows, self.batches, asked.batch_size, asked.local_steps, starts)
        if asked.sampling == "walk":
            return walking_steps(*work, device=self.index, round=asked.round, stride=asked.stride, loss=self.loss)
        return bernoulli_steps(*work, device=self.index, round=asked.round, loss=self.loss)

    def _masked_phases(self) -> dict[str, Callable[[Packet], Packet]]:
        return {name: self.masked_phase(name) for name in MASKED_KINDS}

    def masked_phase(self, phase: str) -> Callable[[Packet], Packet]:
        """Return the handler of one phase of the masked upload."""
        masked = self.masked
        assert masked is not None

        def handle(request: Packet) -> Packet:
            if phase != "masked":
                return self._released("answer", masked.answer(phase, request), epsilon=0.0)
            arrays, noise = self.coded(request)
            hidden = masked.mask(request, arrays["features"], arrays["labels"])
            # Its content is in the ledger as an upload; by itself, what is sent is uniformly random.
            return self._released("masked", Packet(hidden, self._declared(noise)), epsilon=0.0)

        return handle

    def _released(self, kind: str, packet: Packet, round: int | None = None, epsilon: float | None = None) -> Packet:
        """Record what is about to be sent."""
        self.ledger.append(
            kind,
            federation=self.federation.name,
            size_bytes=packet.bytes,
            digest=packet.digest,
            round=round,
            epsilon=epsilon,
        )
        return packet


def _of_round(request: Packet) -> str:
    return f" of round {request.values['round']!r}" if "round" in request.values else ""
