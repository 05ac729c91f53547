from __future__ import annotations

from typing import Any

import pytest

from codedfl.errors import InputError
from codedfl.federation.masking._terms import MaskingTerms, default_threshold
from tests.federation.masking.support import names


@pytest.mark.parametrize("devices", range(2, 300))
def test_the_default_threshold_withstands_what_the_docstring_says(devices: int) -> None:
    threshold = default_threshold(devices)
    assert threshold <= devices
    assert 3 * threshold > 2 * devices
    assert 2 * threshold > devices + devices // 3
    assert MaskingTerms("ward", names(devices), roster=None).threshold == threshold


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"devices": ("a",)}, "devices = a: a sum hides nothing"),
        ({"devices": ("a", "b", "a")}, "every name must be there once"),
        ({"devices": ("a", "")}, "devices: the name ''"),
        ({"devices": ("a", 3)}, "devices: the name 3"),
        ({"federation": "a\n"}, "federation: the name"),
        ({"roster": {"a": b""}}, "roster: there is no public key of b, c, d"),
        ({"threshold": 2}, "threshold = 2 must be more than half of the 4 devices"),
        ({"threshold": 5}, "threshold = 5 must be more than half of the 4 devices and at most all"),
        ({"threshold": -1}, "threshold = -1"),
        ({"fraction_bits": 53}, "fraction_bits = 53 must be 52 or less"),
        ({"fraction_bits": -1}, "fraction_bits = -1"),
        ({"fraction_bits": True}, "fraction_bits = True"),
    ],
)
def test_bad_terms_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        MaskingTerms(**{"federation": "ward", "devices": ("a", "b", "c", "d"), "roster": None, **change})
