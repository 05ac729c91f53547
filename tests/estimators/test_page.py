"""The examples of the page on estimators."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "estimators.md"


@pytest.mark.slow
def test_the_page_shows_what_happens() -> None:
    failures, examples = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert examples > 20
    assert failures == 0
