from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from codedfl._short_repr import ShortRepr
from codedfl.config import Config


@dataclass(frozen=True, repr=False)
class Holder(ShortRepr):
    value: object
    hidden: int = field(default=3, repr=False)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (3, "3"),
        ("a" * 10, repr("a" * 10)),
        (np.zeros((3, 4)), "float64 (3, 4)"),
        (Holder(np.zeros(3)), "Holder(...)"),
        (Config(seed=3), "Config(...)"),
        (("a", "b"), "('a', 'b')"),
        ({"a": 1.5}, "{'a': 1.5}"),
        ([np.zeros(3)] * 4, "<4 in a list>"),
        ({"a": np.zeros(3)}, "<1 in a dict>"),
        (tuple(range(10_000)), "<10000 in a tuple>"),
        (("word " * 30,), "<1 in a tuple>"),
    ],
)
def test_values_are_shown_if_they_are_short(value: object, shown: str) -> None:
    assert repr(Holder(value)) == f"Holder(value={shown})"


def test_long_text_is_cut() -> None:
    assert len(repr(Holder("x" * 100_000))) < 100
