"""Uploading under masks: the server learns the sum of all coded data, and nothing about any one device's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from codedfl.federation._checks import checked_answer, checked_upload
from codedfl.federation._context import ServerPart
from codedfl.federation._joining import Roster, menu_values, offered_menu, require_bought
from codedfl.federation._masked_device import masking_terms
from codedfl.federation._requests import UploadTask
from codedfl.federation.masking import MaskedSum
from codedfl.federation.transport import Kind, Packet, Value
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
    """

    roster: Roster
    task: UploadTask
    keys: dict[str, bytes] | None
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
        take: Callable[[str, Packet], bool],
    ) -> None:
        """Ask devices until all have answered, or a fifth of the time for uploads is over."""
        common = {"federation": self.config.name, "prescription": self.config.prescription()}
        left = set(names)

        def request(name: str) -> Packet:
            return Packet({}, common | values_for(name))

        for reply in self.gather(kind, self.config.training.upload_s / 5, lambda: left, request):
            accepted = self.checked(reply, kind, partial(take, reply.device))
            excluded = reply.packet is not None and self.standing.is_excluded(reply.device)
            if accepted or reply.declined or excluded:
                left.discard(reply.device)
            if accepted:
                self.journal.note("phase", phase=kind, device=reply.device)

    def _take_keys(self, device: str, packet: Packet) -> bool:
        answer = checked_answer(packet, device=device, phase="keys", names=["published"], most_bytes=LARGEST_ANSWER)
        self.sum.add_keys(device, answer.content["published"])
        return True

    def _take_shares(self, device: str, packet: Packet) -> bool:
        self.sum.add_shares(device, self._by_name(device, packet, "shares"))
        return True

    def _take_signature(self, device: str, packet: Packet) -> bool:
        # Without authentication there is no roster, and a signature is empty.
        answer = checked_answer(
            packet, device=device, phase="agree", names=["signature"], most_bytes=LARGEST_ANSWER, least_bytes=0
        )
        self.sum.add_agreement(device, answer.content["signature"])
        return True

    def _take_answer(self, device: str, packet: Packet) -> bool:
        self.sum.add_answer(device, self._by_name(device, packet, "unmask"))
        return True

    def _by_name(self, device: str, packet: Packet, phase: str) -> dict[str, bytes]:
        names = [f"share.{name}" for name in self.config.devices]
        answer = checked_answer(packet, device=device, phase=phase, names=(), optional=names, most_bytes=LARGEST_ANSWER)
        return {name.removeprefix("share."): content for name, content in answer.content.items()}

    def _take_upload(self, device: str, packet: Packet) -> bool:
        place = self.roster.index(device)
        upload = checked_upload(
            packet,
            device=device,
            upload=self.task.upload,
            terms=self.task.terms,
            samples=self.roster.samples[place],
            masked=True,
        )
        require_bought(self.config, self.roster.items[place], upload.noise_variance)
        self.sum.add(device, upload.arrays["features"], upload.arrays["labels"])
        self.noise[device] = (upload.noise_variance, upload.label_noise_variance)
        self.journal.note("uploaded", device=device, bytes=packet.bytes, masked=True)
        return True


def _by_device(names: Sequence[str], noise: FloatArray) -> dict[str, tuple[float, float]]:
    return {name: (float(features), float(labels)) for name, (features, labels) in zip(names, noise, strict=True)}
