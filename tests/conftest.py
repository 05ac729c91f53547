from __future__ import annotations

import copy
import functools
import os
from collections.abc import Iterator
from typing import Any

import pytest
import sklearn.datasets

from codedfl.experiment import Comparison, run
from tests.support import small_config


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
