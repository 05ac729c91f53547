from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest

from codedfl.federation._checks import BadMessage
from codedfl.federation._context import Journal, ServerContext, Standing
from codedfl.federation._store import ServerStore
from codedfl.federation.transport import Reply
from tests.federation.support import InProcess, digits_config


def test_events_are_written_logged_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "codedfl.federation")
    store = ServerStore(tmp_path)
    told: list[dict[str, Any]] = []
    began = time.time()
    Journal(store, told.append).note("joined", device="north", samples=3)
    (event,) = store.events()
    assert told == [event]
    assert abs(event.pop("time") - began) < 5
    assert event == {"event": "joined", "device": "north", "samples": 3}
    assert "joined" in caplog.text


def test_the_state_changes_by_parts_and_outlives_the_server(tmp_path: Path) -> None:
    Journal(ServerStore(tmp_path)).status(phase="joining", devices=4)
    Journal(ServerStore(tmp_path)).status(phase="training", round=1)
    status = ServerStore(tmp_path).read_status()
    assert status is not None
    assert {key: status[key] for key in ("phase", "devices", "round")} == {
        "phase": "training",
        "devices": 4,
        "round": 1,
    }


def test_refusals_are_counted_and_silence_is_told_apart(tmp_path: Path) -> None:
    store = ServerStore(tmp_path)
    context = ServerContext(digits_config(), store, InProcess({}), Journal(store), Standing(2))
    reply = Reply("north", 1.0, None, "no room", declined=True)
    assert [context.refuse(reply, "update", BadMessage("bad"), round=k) for k in range(2)] == [False, True]
    context.note_silence(reply)
    context.note_silence(Reply("north", 1.0, None, "crashed"), round=7)
    assert [{key: value for key, value in event.items() if key != "time"} for event in store.events()] == [
        {"event": "refused", "device": "north", "what": "update", "reason": "bad", "excluded": False, "round": 0},
        {"event": "refused", "device": "north", "what": "update", "reason": "bad", "excluded": True, "round": 1},
        {"event": "declined", "device": "north", "reason": "no room"},
        {"event": "failed", "device": "north", "reason": "crashed", "round": 7},
    ]
    assert context.standing.excluded == ("north",)
    assert context.standing.of("north").refused == 2
