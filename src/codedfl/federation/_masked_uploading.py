"""Uploading under masks: the server learns the sum of all coded data, and nothing about any one device's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from codedfl.errors import InputError
from codedfl.federation._checks import BadMessage, checked_answer, checked_upload
from codedfl.federation._context import ServerPart
from codedfl.federation._joining import menu_values, offered_menu, require_bought
from codedfl.federation._masked_device import masking_terms
from codedfl.federation._roster import Roster
from codedfl.federation._uploads import UploadTask
from codedfl.federation.masking import MaskedSum
from codedfl.federation.transport import Kind, Packet, Reply, Value
from codedfl.files import PRIVATE, Arrays, read_npz, write_npz
from codedfl.typing import FloatArray
from codedfl.uploads import Received

SUM = "sum"
"""The name under which the sum of all uploads is kept."""

LARGEST_ANSWER = 4096
"""Bytes of the longest answer of the protocol."""


@dataclass
class MaskedUploading(ServerPart):
    """Collects a masked upload in five phases, each of which may lose devices; what is left at the end is their sum.

    Args:
        context: the server.
        roster: the devices.
        task: what each uploads.
        keys: public keys of the devices; None without authentication.
        clock: seconds, for tests.
        sleep: waits between attempts, for tests.
    """

    roster: Roster
    task: UploadTask
    keys: dict[str, bytes] | None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    noise: dict[str, tuple[float, float]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        shape = (self.task.terms.coded_samples, self.config.dimension, self.config.outputs)
        terms = masking_terms(self.config, self.keys)
        self.sum = MaskedSum(terms, *shape)
        if self._progress.is_file():
            kept = read_npz(self._progress, required=("record",), optional=("features", "labels", "noise"))
            sums = (kept["features"], kept["labels"]) if "noise" in kept else None
            self.sum = MaskedSum.from_bytes(kept["record"].tobytes(), terms, shape, sums)
            if sums is not None:
                self.noise = _by_device(self.sum.survivors, kept["noise"])

    @property
    def _progress(self) -> Path:
        return self.store.folder / "masked-upload.npz"

    def collect(self) -> tuple[str, ...]:
        """Return the devices in the sum.

        Raises:
            InputError: if too few answer in a phase.
        """
        if self._held.is_file():
            return tuple(str(name) for name in read_npz(self._held, required=("names",))["names"])
        # What a phase was closed with is on disk: after a restart, whoever missed it is not asked any more.
        if not self.sum.participants:
            self._phase("keys", self.roster.uploading(self.standing), lambda _: {}, self._take_keys)
        published = self.sum.close_keys()
        self._save()
        keys: dict[str, Value] = {f"key.{name}": key for name, key in published.items()}
        if not self.sum.senders:
            self._phase("shares", tuple(published), lambda _: keys, self._take_shares)
        senders = self.sum.close_shares()
        self._save()
        if not self.sum.survivors:
            self._phase("masked", senders, self._shares_for, self._take_upload)
        survivors = self.sum.close_uploads()
        self._save()
        names: list[str] = list(survivors)
        if not self.sum.agreed:
            self._phase("agree", survivors, lambda _: {"survivors": names}, self._take_signature)
        signatures = self.sum.close_agreement()
        self._save()
        agreed: dict[str, Value] = {f"signature.{name}": signature for name, signature in signatures.items()}
        # Whoever missed the agreement may answer now: the survivors are the same, and enough have signed.
        self._phase("unmask", survivors, lambda _: {"survivors": names, **agreed}, self._take_answer)
        features, labels = self.sum.total()
        noise = self._noise(survivors)
        upload = Received(
            {"features": features.astype(np.float32), "labels": labels.astype(np.float32)},
            float(noise[:, 0].sum()),
            float(noise[:, 1].sum()),
            kind=self.task.upload.name,
        )
        self.store.put_upload(SUM, upload)
        write_npz(self._held, {"names": np.array(survivors), "noise": noise}, PRIVATE)
        self.journal.note("summed", devices=names)
        return survivors

    @property
    def _held(self) -> Path:
        return self.store.folder / "masked-sum.npz"

    def declared(self) -> dict[str, tuple[float, float]]:
        """Return the noise variances that each device in the sum declared."""
        kept = read_npz(self._held, required=("names", "noise"))
        return _by_device([str(name) for name in kept["names"]], kept["noise"])

    def received(self) -> Iterator[tuple[int, Received]]:
        """Yield the sum, as if one device had uploaded it."""
        yield 0, self.store.upload(SUM, self.task.upload.name)

    def _save(self) -> None:
        """Write down who takes part before anybody is told: devices answer one version of each request.

        With the survivors goes their sum, still masked: one of them may be gone for good when the server starts again.
        """
        content: Arrays = {"record": np.frombuffer(self.sum.to_bytes(), np.uint8)}
        if survivors := self.sum.survivors:
            features, labels = self.sum.sums
            content |= {"features": features, "labels": labels, "noise": self._noise(survivors)}
        write_npz(self._progress, content, PRIVATE)

    def _noise(self, devices: Sequence[str]) -> FloatArray:
        return np.array([self.noise[name] for name in devices])

    def _shares_for(self, device: str) -> dict[str, Value]:
        shares: dict[str, Value] = {f"share.{name}": share for name, share in self.sum.shares_for(device).items()}
        return shares | menu_values(offered_menu(self.config))

    def _phase(
        self,
        kind: Kind,
        names: tuple[str, ...],
        values_for: Callable[[str], dict[str, Value]],
        take: Callable[[Reply], None],
    ) -> None:
        """Ask devices until all have answered, or a fifth of the time for uploads is over."""
        common = {"federation": self.config.name, "prescription": self.config.prescription()}
        began, left = self.clock(), set(names)
        while left and (within_s := self.config.training.upload_s / 5 - (self.clock() - began)) > 0:
            ready = left & self.hub.online()
            requests = {name: Packet({}, common | values_for(name)) for name in ready}
            for reply in self.hub.ask(kind, requests, within_s) if requests else ():
                if reply.packet is None:
                    self.context.note_silence(reply)
                    if reply.declined:
                        left.discard(reply.device)
                    continue
                try:
                    take(reply)
                except (BadMessage, InputError) as bad:
                    if self.context.refuse(reply, kind, bad):
                        left.discard(reply.device)
                    continue
                self.standing.accept(reply.device)
                left.discard(reply.device)
                self.journal.note("phase", phase=kind, device=reply.device)
            if left:
                self.sleep(0.5)

    def _take_keys(self, reply: Reply) -> None:
        assert reply.packet is not None
        answer = checked_answer(
            reply.packet, device=reply.device, phase="keys", names=["published"], most_bytes=LARGEST_ANSWER
        )
        self.sum.add_keys(reply.device, answer.content["published"])

    def _take_shares(self, reply: Reply) -> None:
        self.sum.add_shares(reply.device, self._by_name(reply, "shares"))

    def _take_signature(self, reply: Reply) -> None:
        assert reply.packet is not None
        # Without authentication there is no roster, and a signature is empty.
        answer = checked_answer(
            reply.packet,
            device=reply.device,
            phase="agree",
            names=["signature"],
            most_bytes=LARGEST_ANSWER,
            least_bytes=0,
        )
        self.sum.add_agreement(reply.device, answer.content["signature"])

    def _take_answer(self, reply: Reply) -> None:
        self.sum.add_answer(reply.device, self._by_name(reply, "unmask"))

    def _by_name(self, reply: Reply, phase: str) -> dict[str, bytes]:
        assert reply.packet is not None
        names = [f"share.{name}" for name in self.config.devices]
        answer = checked_answer(
            reply.packet, device=reply.device, phase=phase, names=(), optional=names, most_bytes=LARGEST_ANSWER
        )
        return {name.removeprefix("share."): content for name, content in answer.content.items()}

    def _take_upload(self, reply: Reply) -> None:
        assert reply.packet is not None
        place = self.roster.index(reply.device)
        upload = checked_upload(
            reply.packet,
            device=reply.device,
            upload=self.task.upload,
            terms=self.task.terms,
            samples=self.roster.samples[place],
            masked=True,
        )
        require_bought(self.config, self.roster.items[place], upload.noise_variance)
        self.sum.add(reply.device, upload.arrays["features"], upload.arrays["labels"])
        self.noise[reply.device] = (upload.noise_variance, upload.label_noise_variance)
        self.journal.note("uploaded", device=reply.device, bytes=reply.packet.bytes, masked=True)


def _by_device(names: Sequence[str], noise: FloatArray) -> dict[str, tuple[float, float]]:
    return {name: (float(features), float(labels)) for name, (features, labels) in zip(names, noise, strict=True)}
