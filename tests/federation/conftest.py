from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from codedfl.federation import _coordinator
from codedfl.federation._arrivals import Pace
from codedfl.federation._context import ServerContext
from tests.federation.support import Clock, copy_federation, digits_config, make_federation, open_clients


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A federation without keys on which tests base their own, with its rows mapped once."""
    folder = tmp_path_factory.mktemp("digits") / "federation"
    make_federation(folder, digits_config())
    open_clients(folder)
    return folder


@pytest.fixture(scope="session")
def digits_with_keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with certificates and keys."""
    folder = tmp_path_factory.mktemp("digits-with-keys") / "federation"
    make_federation(folder, digits_config(), insecure=False)
    open_clients(folder)
    return folder


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let servers neither wait between attempts nor draw pictures, and return for how long they would have waited."""
    monkeypatch.setattr("codedfl.federation._results.picture", lambda *_: b"")
    clock = Clock()
    monkeypatch.setattr(_coordinator, "ServerContext", partial(ServerContext, clock=clock, sleep=clock.sleep))
    return clock.naps


@pytest.fixture
def seeded_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let servers sample coded rows as the simulator does with seed 0."""
    monkeypatch.setattr("codedfl.federation._joining.secrets", SimpleNamespace(randbits=lambda bits: 0))  # noqa: ARG005


@pytest.fixture
def parts_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask every device for a part of its rows that depends on nothing measured."""

    def request(self: Pace, device: int, samples: int, *_: Any) -> int:
        return int(max(1, self.share[device] * samples // (2 + device)))

    monkeypatch.setattr(Pace, "request", request)


@pytest.fixture
def made(digits: Path, tmp_path: Path) -> Callable[..., Path]:
    return lambda config, name="federation": copy_federation(digits, tmp_path / name, config)
