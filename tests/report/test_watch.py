from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from codedfl.errors import InputError
from codedfl.report import Watch


@contextmanager
def serving(folder: Path) -> Iterator[Watch]:
    watch = Watch(folder)
    thread = threading.Thread(target=watch.serve)
    thread.start()
    try:
        yield watch
    finally:
        watch.close()
        thread.join()


def ask(watch: Watch, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", watch.port, timeout=5)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.read(), dict(answer.getheaders())
    finally:
        connection.close()


def test_a_run_is_followed_to_its_end(unfinished: Path, made: Path) -> None:
    with serving(unfinished) as watch:
        status, page, headers = ask(watch, "/")
        assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert b"connect-src &#x27;self&#x27;" in page
        assert b"in progress" in page
        first = json.loads(ask(watch, "/data.json")[1])
        assert first["going"]
        for name in ("curves/scfl.csv", "curves/ccfl.csv", "details.json", "versions.json", "summary.json"):
            (unfinished / name).write_bytes((made / "first" / name).read_bytes())
        last = json.loads(ask(watch, "/data.json")[1])
    assert not last["going"]
    assert (len(first["data"]["curves"]), len(last["data"]["curves"])) == (2, 3)
    assert "Verdict" in last["body"]


def test_what_has_not_changed_is_not_sent_again(finished: Path) -> None:
    with serving(finished) as watch:
        _, _, headers = ask(watch, "/data.json")
        status, content, _ = ask(watch, "/data.json", If_None_Match=headers["ETag"])
        assert (status, content) == (304, b"")
        (finished / "summary.json").write_text((finished / "summary.json").read_text().replace("FedAvg", "Average"))
        assert ask(watch, "/data.json", If_None_Match=headers["ETag"])[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", ""])
def test_a_request_by_another_name_is_refused(finished: Path, host: str) -> None:
    with serving(finished) as watch:
        for path in ("/", "/data.json"):
            status, content, _ = ask(watch, path, Host=host)
            assert (status, content) == (403, b"This address is not served.")
        assert ask(watch, "/", Host=f"localhost:{watch.port}")[0] == 200


@pytest.mark.parametrize("path", ["/config.toml", "/../config.toml", "/curves/", "/%2e%2e/config.toml"])
def test_nothing_else_is_served(finished: Path, path: str) -> None:
    with serving(finished) as watch:
        assert ask(watch, path)[:2] == (404, b"There is no such page.")
        assert ask(watch, "/", method="POST")[0] == 501


def test_only_this_machine_can_connect(finished: Path) -> None:
    with serving(finished) as watch:
        assert watch.url == f"http://127.0.0.1:{watch.port}/"
        assert watch._server.server_address[0] == "127.0.0.1"


def test_a_run_that_has_yet_to_begin_is_waited_for(tmp_path: Path, made: Path) -> None:
    (tmp_path / "sweep").mkdir()
    with serving(tmp_path / "sweep") as watch:
        empty = json.loads(ask(watch, "/data.json")[1])
        assert (empty["going"], empty["title"]) == (True, "no run yet")
        (tmp_path / "sweep/point").symlink_to(made / "first")
        assert json.loads(ask(watch, "/data.json")[1])["title"] == "table.csv: 3 schemes on 4 devices"


def test_a_damaged_run_is_told_and_does_not_end_the_server(finished: Path) -> None:
    whole = (finished / "summary.json").read_text()
    with serving(finished) as watch:
        (finished / "summary.json").write_text("{")
        status, content, _ = ask(watch, "/data.json")
        assert status == 503
        assert b"summary.json" in content
        (finished / "summary.json").write_text(whole)
        assert ask(watch, "/data.json")[0] == 200


def test_other_folders_and_ports_are_refused(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other/letter.txt").write_text("")
    for folder in (tmp_path / "other", tmp_path / "nowhere"):
        with pytest.raises(InputError, match="give the folder"):
            Watch(folder)
    with serving(finished) as watch, pytest.raises(InputError, match=f"--port = {watch.port} cannot be used"):
        Watch(finished, watch.port)
