from __future__ import annotations

import json
from pathlib import Path

import pytest

from codedfl.federation._checks import Hello
from codedfl.federation._joining import Roster
from tests.support import refusal_of

HELLOS = {
    "west": Hello(samples=30, smoothness=2.5, choice=None, joins=False, version="1"),
    "north": Hello(samples=10, smoothness=None, choice=1, joins=True, version=""),
}


def roster() -> Roster:
    return Roster.of(HELLOS, ("north", "east", "west"), seed=5, prescription="ab12")


def test_devices_are_in_the_order_of_the_federation_whoever_joined_first() -> None:
    assert roster() == Roster(("north", "west"), (10, 30), (0.0, 2.5), (True, False), (1, -1), 5, "ab12")
    assert roster().sizes.tolist() == [10, 30]
    assert [roster().index(name) for name in ("north", "west")] == [0, 1]


def test_it_comes_back_from_disk(tmp_path: Path) -> None:
    path = tmp_path / "roster.json"
    assert Roster.read(path, "ab12") is None, "nobody has joined yet"
    roster().write(path)
    assert Roster.read(path, "ab12") == roster()


def test_a_federation_that_was_changed_since_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "roster.json"
    roster().write(path)
    refusal = refusal_of(lambda: Roster.read(path, "cd34"))
    assert "federation.toml has been changed since the devices joined" in refusal
    assert "undo the change" in refusal


@pytest.mark.parametrize("content", ["", "{", "[]", '"roster"', '{"names": []}', b"\xff\xfe", '{"what": 1}'])
def test_a_damaged_file_is_refused_in_one_sentence(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "roster.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    refusal = refusal_of(lambda: Roster.read(path, "ab12"))
    assert "roster.json" in refusal
    assert "is damaged" in refusal
    assert "\n" not in refusal


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "roster.json"
    roster().write(path)
    whole = path.read_text()
    assert json.loads(whole)["seed"] == 5
    for length in range(0, len(whole) - 1, 7):
        path.write_text(whole[:length])
        assert "is damaged" in refusal_of(lambda: Roster.read(path, "ab12"))
