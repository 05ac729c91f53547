from __future__ import annotations

import copy
import functools
import os
from collections.abc import Iterator
from typing import Any

import pytest
import sklearn.datasets
from hypothesis import settings

from codedfl.experiment import Comparison, run
from tests.support import small_config

# The same examples every time, so that a run that passes passes again, and no limit on the time of one: machines are busy.
settings.register_profile("quick", max_examples=20, deadline=None, derandomize=True)
settings.register_profile("thorough", max_examples=60, deadline=None, derandomize=True)
settings.register_profile("search", max_examples=1000, deadline=None)
settings.load_profile("quick")


@pytest.fixture(scope="session", autouse=True)
def digits_read_once() -> Iterator[None]:
    """Read the digits of scikit-learn once: hundreds of tests train on a copy of them."""
    read = functools.cache(sklearn.datasets.load_digits)

    def copied(**options: Any) -> Any:
        return copy.deepcopy(read(**options))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sklearn.datasets, "load_digits", copied)
        yield


@pytest.fixture(scope="session", autouse=True)
def disks_not_waited_for() -> Iterator[None]:
    """Leave it to the system when files reach the disk: no test cuts the power, and those of durability watch the calls."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture(scope="session")
def comparison() -> Comparison:
    """All schemes on a small problem."""
    return run(small_config(schemes=["fedavg", "cfl-fb", "codedfedl", "dp-cfl", "scfl-fixed", "scfl"]))
