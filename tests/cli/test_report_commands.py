from __future__ import annotations

import json
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support import CLI_SMALL, Cli


def test_the_page_of_a_run(cli: Cli) -> None:
    assert cli("run", *CLI_SMALL, "--out", "first").code == 0
    result = cli("report", "first")
    assert result.out == "page: first/report.html\n"
    page = Path("first/report.html").read_text(encoding="utf-8")
    assert "<!doctype html>" in page
    told = json.loads(cli("report", "first", "--out", "page.html", "--json").out)
    assert told["runs"] == [{"run": "first", "folder": "first", "state": "completed"}]
    assert told["bytes"] == len(Path("page.html").read_bytes())
    cli("report", "nowhere").assert_refused("'nowhere' does not exist: give the folder of a run")
    cli("report", "first", "--out", "no/such/page.html").assert_refused("--out = no/such/page.html cannot be written")
    cli("report").assert_refused("RUN")


def test_watching_ends_quietly(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ThreadingHTTPServer, "serve_forever", stop)
    Path("empty").mkdir()
    result = cli("watch", "empty")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("http://127.0.0.1:")
    assert json.loads(cli("watch", "empty", "--json").out)["folder"] == "empty"
    cli("watch", "nowhere").assert_refused("does not exist")
    cli("watch", "empty", "--port", "70000").assert_refused("--port")
