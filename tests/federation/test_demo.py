"""The demonstration in one process; tests/federation/test_federation.py has processes and TLS."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from codedfl.federation import _demo, demo_device, read_ledger, run_demo

ROUNDS = 4


def test_a_demonstration_in_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_device, "SLOW_S", 0.0)
    monkeypatch.setattr(_demo, "AWAY_ROUNDS", 2)
    events: list[dict[str, Any]] = []
    result = run_demo(tmp_path / "demo", events.append, rounds=ROUNDS, transport="local")
    (restarted,) = [event for event in events if event["event"] == "restarted"]
    assert restarted["device"] == "sensor"
    assert result["restarted_in_round"] == restarted["round"] < ROUNDS
    arrived = [event["arrived"] for event in events if event["event"] == "round"]
    assert len(arrived) == ROUNDS
    assert "sensor" in arrived[0]
    assert "sensor" not in arrived[1], "it died in that round"
    assert all(set(names) >= {"clinic", "gateway", "phone"} for names in arrived), "the others go on"
    uploads = [entry for entry in read_ledger(tmp_path / "demo" / "devices" / "sensor") if entry["kind"] == "upload"]
    assert len(uploads) == 1, "it drew nothing again"
    # Of 450 test rows; 10 classes: three standard errors above a guess.
    assert result["accuracy"] > 0.1 + 3 * (0.1 * 0.9 / _demo.TEST_ROWS) ** 0.5


def test_it_needs_no_flower(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['flwr'] = None\n"
        "from codedfl.federation import demo_device, run_demo\n"
        "demo_device.SLOW_S = 0.0\n"
        f"result = run_demo({str(tmp_path / 'demo')!r}, lambda event: None, rounds=3, transport='local')\n"
        "assert result['rounds'] == 3\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
