"""Benchmarks keep working; how fast they are is not asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


def measured(script: str, *options: str) -> dict[str, Any]:
    """Run a benchmark in its quick mode and return the JSON object that it prints."""
    command = [sys.executable, str(ROOT / "benchmarks" / script), "--quick", "--json", *options]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=180).stdout
    result: dict[str, Any] = json.loads(output)
    return result


@pytest.mark.slow
def test_rounds(tmp_path: Path) -> None:
    result = measured("rounds.py", "--out", str(tmp_path / "rounds.json"))
    assert list(result)[:4] == ["ours", "numpy", "ratio", "fraction_of_limit"]
    assert result["ratio"] == pytest.approx(result["ours"] / result["numpy"])
    assert 0 < result["fraction_of_limit"] < 1.5
    draw = [
        sys.executable,
        str(ROOT / "benchmarks" / "roofline.py"),
        str(tmp_path / "rounds.json"),
        str(tmp_path / "r.png"),
    ]
    subprocess.run(draw, check=True, timeout=60)
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_encoding() -> None:
    result = measured("encoding.py")
    assert {row["encoder"] for row in result["rows"]} == {"direct", "gram", "whole"}
    assert result["direct_over_gram"] > 0


@pytest.mark.slow
def test_scaling() -> None:
    result = measured("scaling.py")
    assert {row["varied"] for row in result["rows"]} == {"devices", "cohort", "dimension", "coded_samples"}
    assert all(row["milliseconds_a_round"] > 0 for row in result["rows"])


@pytest.mark.slow
def test_contract_speed_prints_one_json_object() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "contract_speed.py"), "--quick", "--json"]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    assert [row["devices"] for row in json.loads(output)["contract"]] == [1000, 10_000]


@pytest.mark.slow
def test_sweep_prints_and_writes_one_json_object(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "sweep.py"), "--quick", "--json", "--out", str(tmp_path / "a")]
    small = ["--noise-levels", "2", "--repeats", "1", "--dimension", "50"]
    output = subprocess.run([*command, *small], capture_output=True, text=True, check=True, timeout=120).stdout
    measured = json.loads(output)
    assert measured["noise_levels"] == 2
    assert all(measured[name] > 0 for name in ("lock_step_s_a_round", "one_by_one_s_a_round"))
    assert measured["ratio"] >= measured["ratio_fedavg_once"] > 0
    assert json.loads((tmp_path / "a").read_text()) == measured


def test_the_package_runs_as_a_module() -> None:
    output = subprocess.run(
        [sys.executable, "-m", "codedfl", "--version"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert output.startswith("codedfl ")
