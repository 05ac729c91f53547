from __future__ import annotations

import pytest

from codedfl.experiment import Comparison, run
from tests.support import small_config


@pytest.fixture(scope="session")
def comparison() -> Comparison:
    """All schemes on a small problem."""
    return run(small_config(schemes=["fedavg", "cfl-fb", "codedfedl", "dp-cfl", "scfl-fixed", "scfl"]))
