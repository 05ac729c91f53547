"""Uploading: every device sends its coded data once, and the server keeps it on disk."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial

from codedfl.federation._checks import checked_upload
from codedfl.federation._context import ServerPart
from codedfl.federation._joining import Roster, menu_values, offered_menu, require_bought
from codedfl.federation._requests import UploadTask
from codedfl.federation.transport import Packet, Reply
from codedfl.uploads import Received


@dataclass
class Uploading(ServerPart):
    """Collects the uploads that are not yet on disk.

    A device that is asked again, because a server or a device was killed, sends the same upload: it draws once.

    Args:
        context: the server.
        roster: the devices.
        task: what each uploads.
    """

    roster: Roster
    task: UploadTask

    def collect(self) -> tuple[str, ...]:
        """Return the devices whose upload the server holds, all of them or those that made it within ``training.upload_s``."""
        config = self.config
        request = Packet(
            {},
            {
                "federation": config.name,
                "prescription": config.prescription(),
                "kind": self.task.upload.name,
                **menu_values(offered_menu(config)),
            },
        )
        declined = set[str]()
        for reply in self.gather("coded", config.training.upload_s, lambda: self._missing(declined), lambda _: request):
            if reply.declined:
                declined.add(reply.device)
            self._keep(reply)
        held = tuple(name for name in self.roster.names if self.store.has_upload(name))
        for name in self._missing():
            if name not in declined:
                self.standing.late(name)
            self.journal.note("no upload", device=name)
        return held

    def _missing(self, declined: Collection[str] = ()) -> list[str]:
        """Return who is still to upload."""
        expected = self.roster.uploading(self.standing)
        return [name for name in expected if not self.store.has_upload(name) and name not in declined]

    def _keep(self, reply: Reply) -> None:
        upload = self.checked(reply, "upload", partial(self._checked_upload, reply.device))
        if upload is None or reply.packet is None:
            return
        self.store.put_upload(reply.device, upload)
        self.journal.note("uploaded", device=reply.device, bytes=reply.packet.bytes, seconds=round(reply.elapsed_s, 3))
        held = sum(self.store.has_upload(name) for name in self.roster.names)
        self.journal.status(phase="uploading", uploaded=held, devices=len(self.roster.names))

    def _checked_upload(self, device: str, packet: Packet) -> Received:
        place = self.roster.index(device)
        upload = checked_upload(
            packet,
            device=device,
            upload=self.task.upload,
            terms=self.task.terms,
            samples=self.roster.samples[place],
        )
        require_bought(self.config, self.roster.items[place], upload.noise_variance)
        return upload
