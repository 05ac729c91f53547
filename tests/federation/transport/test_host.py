"""The SuperLink as a child process; tests/federation/test_federation.py starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from codedfl.federation.transport.flower._host import SUPERLINK, SuperLink, is_program


@pytest.mark.parametrize(
    ("address", "bind", "host"),
    [
        ("127.0.0.1:9092", "127.0.0.1", "127.0.0.1"),
        ("localhost:9092", "127.0.0.1", "127.0.0.1"),
        ("[::1]:9092", "::1", "[::1]"),
        ("192.0.2.7:9092", "0.0.0.0", "127.0.0.1"),
        ("[2001:db8::7]:9092", "::", "127.0.0.1"),
        ("hospital.example:9092", "0.0.0.0", "127.0.0.1"),
    ],
)
def test_it_listens_where_devices_connect_and_no_further(address: str, bind: str, host: str) -> None:
    link = SuperLink(Path(), address, insecure=True)
    assert (link._bind, link._host) == (bind, host)


def test_processes_are_known_by_their_command_line() -> None:
    assert is_program(os.getpid(), "pytest") or is_program(os.getpid(), Path(sys.executable).name)
    assert not is_program(os.getpid(), "no such program")
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    assert not is_program(ended.pid, "python")


def test_the_file_that_runs_it_imports_nothing_of_this_project_when_loaded() -> None:
    code = f"import runpy, sys; runpy.run_path({str(SUPERLINK)!r}); assert 'codedfl' not in sys.modules"
    subprocess.run([sys.executable, "-P", "-c", code], check=True, timeout=60)
