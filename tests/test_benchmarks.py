"""Benchmarks keep working; how fast they are is not asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_round_time_prints_one_json_object() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "round_time.py"), "--quick", "--json"]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    measured = json.loads(output)
    assert {"plain numpy", "engine, 1 worker"} <= set(measured)
    assert all(entry["ms"] > 0 and entry["ratio"] > 0 for entry in measured.values())


def test_contract_speed_prints_one_json_object() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "contract_speed.py"), "--quick", "--json"]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    assert [row["devices"] for row in json.loads(output)["contract"]] == [1000, 10_000]


def test_the_package_runs_as_a_module() -> None:
    output = subprocess.run(
        [sys.executable, "-m", "codedfl", "--version"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert output.startswith("codedfl ")
