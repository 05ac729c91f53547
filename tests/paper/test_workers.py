"""Real processes that are stopped and killed: on the quick version, with two workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from codedfl.paper import Cache
from codedfl.paper._executor import call_in_parallel

PATIENCE_S = 60.0
"""For a busy machine to get to work."""

COMMAND = (sys.executable, "-c", "from codedfl.cli import main; main()", "paper", "fig-tradeoff", "--quick")
OPTIONS = ("--seeds", "1", "--processes", "2", "--cache", "cache", "--out", "out")

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes in /proc")


def members(group: int) -> dict[int, str]:
    """Return the processes of a group that are alive, with their command lines."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, own = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(own) == group and state != "Z":
                found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue  # it has ended meanwhile
    return found


def wait_for(condition: Callable[[], object], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def workers(process: subprocess.Popen[str]) -> list[int]:
    return [pid for pid, command in members(process.pid).items() if "popen_loky" in command]


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The command at work with two workers, in a process group of its own."""
    with subprocess.Popen(
        (*COMMAND, *OPTIONS), cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as command:
        try:
            assert wait_for(lambda: len(workers(command)) == 2, PATIENCE_S), members(command.pid)
            yield command
        finally:
            for pid in members(command.pid):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "to_group"), [("SIGINT", False), ("SIGINT", True), ("SIGTERM", False)])
def test_a_signal_stops_the_command_and_its_workers(
    process: subprocess.Popen[str], number: str, to_group: bool, tmp_path: Path
) -> None:
    (os.killpg if to_group else os.kill)(process.pid, signal.Signals[number])
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130, err
    assert "continues from the finished runs" in err
    assert "Traceback" not in err
    assert wait_for(lambda: not members(process.pid), 10), members(process.pid)
    assert not (tmp_path / "out").exists()
    for path in (tmp_path / "cache").iterdir():
        assert Cache(tmp_path / "cache").get(path.stem) is not None
        assert json.loads(path.read_text())["key"] == path.stem


@pytest.mark.slow
def test_workers_end_by_themselves_when_the_command_is_killed(process: subprocess.Popen[str]) -> None:
    process.kill()
    assert process.wait(timeout=20) == -signal.SIGKILL
    assert wait_for(lambda: not members(process.pid), 30), members(process.pid)  # a worker may still be starting


def test_calls_yield_their_results_as_they_finish() -> None:
    calls = [(number, 2) for number in range(5)]
    assert sorted(call_in_parallel(pow, calls, 1)) == [0, 1, 4, 9, 16]
