from __future__ import annotations

from pathlib import Path

import pytest

from codedfl.experiment import Comparison, run
from tests.support import small_config


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CODEDFL_DATA", raising=False)


@pytest.fixture(scope="session")
def comparison() -> Comparison:
    """All schemes on a small problem."""
    return run(small_config(schemes=["fedavg", "cfl-fb", "codedfedl", "dp-cfl", "scfl-fixed", "scfl"]))
