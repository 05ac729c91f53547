from __future__ import annotations

from codedfl._messages import did_you_mean, listing


def test_a_short_list_is_shown_in_full_and_a_long_one_is_cut() -> None:
    assert listing(["a", "b"]) == "a, b"
    assert listing([str(number) for number in range(30)]).endswith("18, 19, ... (30 in all)")


def test_a_suggestion_is_made_only_for_a_close_word() -> None:
    assert did_you_mean("prize", ["price", "size"]) == " Did you mean 'price'?"
    assert did_you_mean("colour", ["price", "size"]) == ""
