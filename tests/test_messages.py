from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from codedfl._messages import did_you_mean, listing, shown


def test_a_short_list_is_shown_in_full_and_a_long_one_is_cut() -> None:
    assert listing(["a", "b"]) == "a, b"
    assert listing([str(number) for number in range(30)]).endswith("18, 19, ... (30 in all)")


def test_a_suggestion_is_made_only_for_a_close_word() -> None:
    assert did_you_mean("prize", ["price", "size"]) == " Did you mean 'price'?"
    assert did_you_mean("colour", ["price", "size"]) == ""


def test_long_values_are_cut() -> None:
    assert shown("a" * 10) == repr("a" * 10)
    assert len(shown("a" * 100_000)) < 100
    assert len(shown(list(range(100_000)))) < 100
    assert shown("a" * 58) == repr("a" * 58)


def test_paths_are_shown_as_text_and_kept_longer() -> None:
    path = Path("folder" * 20, "my.csv")
    assert shown(path) == repr(str(path))
    assert len(shown(Path("f" * 4000))) < 400
    assert shown(Path(os.fsdecode(b"caf\xe9.csv"))).isascii()


def test_numbers_are_shown_plainly() -> None:
    assert (shown(np.float32(0.5)), shown(np.int64(3)), shown(np.str_("a")), shown(1e30), shown(10**5000)) == (
        *("0.5", "3", "'a'", "1e+30"),
        "an integer of more than 1000 digits",
    )


def test_lists_and_suggestions_stay_short() -> None:
    assert len(listing(["n" * 10_000] * 1000)) < 3000
    assert len(did_you_mean("n" * 9_999, ["n" * 10_000])) < 100
