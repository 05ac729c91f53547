"""Uploading: every device sends its coded data once, and the server keeps it on disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from codedfl.federation._checks import BadMessage, checked_upload
from codedfl.federation._context import ServerPart
from codedfl.federation._joining import menu_values, offered_menu, require_bought
from codedfl.federation._roster import Roster
from codedfl.federation._uploads import UploadTask
from codedfl.federation.transport import Packet, Reply


@dataclass
class Uploading(ServerPart):
    """Collects the uploads that are not yet on disk.

    A device that is asked again, because a server or a device was killed, sends the same upload: it draws once.

    Args:
        context: the server.
        roster: the devices.
        task: what each uploads.
        clock: seconds, for tests.
        sleep: waits between attempts, for tests.
    """

    roster: Roster
    task: UploadTask
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

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
        began, declined = self.clock(), set[str]()
        while (left_s := config.training.upload_s - (self.clock() - began)) > 0:
            missing = self._missing(declined)
            if not missing:
                break
            online = self.hub.online()
            ready = [name for name in missing if name in online]
            for reply in self.hub.ask("coded", dict.fromkeys(ready, request), left_s) if ready else ():
                if reply.declined:
                    declined.add(reply.device)
                self._keep(reply)
            if self._missing(declined):
                self.sleep(0.5)
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
        if reply.packet is None:
            self.context.note_silence(reply)
            return
        try:
            upload = checked_upload(
                reply.packet,
                device=reply.device,
                upload=self.task.upload,
                terms=self.task.terms,
                samples=self.roster.samples[self.roster.index(reply.device)],
            )
            require_bought(self.config, self.roster.items[self.roster.index(reply.device)], upload.noise_variance)
        except BadMessage as bad:
            self.context.refuse(reply, "upload", bad)
            return
        self.store.put_upload(reply.device, upload)
        self.standing.accept(reply.device)
        self.journal.note("uploaded", device=reply.device, bytes=reply.packet.bytes, seconds=round(reply.elapsed_s, 3))
        held = sum(self.store.has_upload(name) for name in self.roster.names)
        self.journal.status(phase="uploading", uploaded=held, devices=len(self.roster.names))
