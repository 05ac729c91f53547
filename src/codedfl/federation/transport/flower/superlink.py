"""Flower's SuperLink, with everything but the devices' own interface closed to other machines.

The SuperLink serves three interfaces on one port: devices fetch and return messages on one, programs are started on another and
run on the third. Whoever reaches the second can run code on the server. Here it answers this machine alone.

``codedfl federation server`` runs this file with the arguments of ``flower-superlink`` and in an environment in which Flower does
not call home. It imports nothing of this project, so that it starts quickly.
"""

from __future__ import annotations

import ctypes
import ipaddress
import os
import signal
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any

FOR_DEVICES = "/v1/fleet/"
"""The paths that other machines may use."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class DevicesOnly:
    """Middleware that lets other machines use nothing but the interface of devices.

    Args:
        app: the application behind it.
    """

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer 403."""
        if scope["type"] == "lifespan" or from_this_machine(scope):
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["path"].startswith(FOR_DEVICES):
            await self.app(scope, receive, send)
        else:
            await send({"type": "http.response.start", "status": 403, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})


def from_this_machine(scope: Scope) -> bool:
    """Return whether a request comes from a loopback address.

    Example:
        >>> from_this_machine({"client": ("127.0.0.1", 40000)}), from_this_machine({"client": ("192.0.2.7", 40000)})
        (True, False)
    """
    client = scope.get("client")
    try:
        return client is not None and ipaddress.ip_address(client[0]).is_loopback
    except ValueError:
        return False


def end_with_parent() -> None:
    """Ask the system to end this process when the one that started it ends, however that happens (Linux only)."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)


HOOK = "flwr.ee.superlink.extensions"
"""The module in which a SuperLink looks for middleware; the package itself does not come with Flower."""


def close_to_others() -> None:
    """Put the middleware where the SuperLink of this process will find it."""
    from starlette.middleware import Middleware

    hook = ModuleType(HOOK)
    vars(hook)["get_middleware"] = lambda: (Middleware(DevicesOnly),)
    sys.modules[HOOK] = hook


def main() -> None:
    """Start the SuperLink with the arguments of this process."""
    end_with_parent()
    close_to_others()
    (program,) = entry_points(group="console_scripts", name="flower-superlink")
    run = program.load()
    if os.getppid() == 1:
        return  # the parent ended before the signal was set
    run()


if __name__ == "__main__":
    main()
