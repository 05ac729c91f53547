"""The page on loopback, kept current while a run, a sweep or a federation goes on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any

from codedfl.errors import InputError
from codedfl.report._finding import read_runs, run_folders
from codedfl.report._page import render_page, render_state
from codedfl.report._record import Record
from codedfl.report._results import Overall, read_overall

HOST = "127.0.0.1"


class Watch:
    """Serves the page of a folder on loopback.

    Args:
        folder: that of a run, a sweep or a federation; an empty one is waited for.
        port: 0 for any that is free.

    Raises:
        InputError: the folder holds something else, or the port cannot be used.
    """

    def __init__(self, folder: Path | str, port: int = 0) -> None:
        self.folder = Path(folder)
        if not (self.folder.is_dir() and not any(self.folder.iterdir())):
            read_runs([self.folder])  # refuses what is none
        self._lock = Lock()
        try:
            self._server = _Server((HOST, port), _handler(self))
        except (OSError, OverflowError) as error:
            raise InputError(f"--port = {port} cannot be used ({error}): give another, or 0 for any.") from error

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{HOST}:{self.port}/"

    def serve(self) -> None:
        """Answer until `close` is called in another thread, or Ctrl-C."""
        try:
            self._server.serve_forever(poll_interval=0.2)
        finally:
            self._server.server_close()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()

    def read(self) -> tuple[list[Record], Overall | None]:
        """Read the runs that there are now, none if the first has yet to begin, and what they have in common."""
        with self._lock:  # one reader at a time is enough for all pages that are open
            records = read_runs([self.folder]) if run_folders(self.folder) else []
            return records, read_overall([self.folder])


class _Server(ThreadingHTTPServer):
    daemon_threads = True


def _handler(watch: Watch) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Two addresses: the page, and its content as JSON."""

        def do_GET(self) -> None:
            # A page of another site whose name was pointed here would ask by that name.
            if self.headers.get("Host") not in (f"{HOST}:{watch.port}", f"localhost:{watch.port}"):
                self._answer(HTTPStatus.FORBIDDEN, "text/plain", b"This address is not served.")
                return
            answers: dict[str, Callable[[], None]] = {"/": self._page, "/data.json": self._data}
            answers.get(self.path.partition("?")[0], self._nothing)()

        def _page(self) -> None:
            self._read(lambda runs, overall: ("text/html", render_page(runs, overall, live=True).encode()))

        def _data(self) -> None:
            self._read(lambda runs, overall: ("application/json", json.dumps(render_state(runs, overall)).encode()))

        def _nothing(self) -> None:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"There is no such page.")

        def _read(self, render: Callable[[list[Record], Overall | None], tuple[str, bytes]]) -> None:
            try:
                kind, content = render(*watch.read())
            except InputError as error:
                self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", str(error).encode())
                return
            version = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            if self.headers.get("If-None-Match") == version:
                self._answer(HTTPStatus.NOT_MODIFIED, kind, b"", version)
            else:
                self._answer(HTTPStatus.OK, kind, content, version)

        def _answer(self, status: HTTPStatus, kind: str, content: bytes, version: str = "") -> None:
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("X-Frame-Options", "DENY")
            self.send_header("Cross-Origin-Resource-Policy", "same-origin")
            self.send_header("Referrer-Policy", "no-referrer")
            if version:
                self.send_header("ETag", version)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing: a page asks every two seconds."""

    return Handler
