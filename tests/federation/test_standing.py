from __future__ import annotations

import json
from typing import Any

import pytest

from codedfl.federation._context import Conduct, Standing
from tests.support import refusal_of


def test_a_device_is_excluded_after_so_many_refusals_in_a_row() -> None:
    standing = Standing(3)
    assert [standing.refuse("a", "bad") for _ in range(4)] == [False, False, True, True]
    assert standing.is_excluded("a")
    assert standing.excluded == ("a",)
    assert not standing.is_excluded("b")


def test_an_accepted_message_starts_the_count_again() -> None:
    standing = Standing(2)
    for _ in range(5):
        assert not standing.refuse("a", "bad")
        standing.accept("a")
    assert standing.of("a") == Conduct(accepted=5, refused=5, last_reason="bad")


def test_lateness_is_counted_and_held_against_nobody() -> None:
    standing = Standing(2)
    standing.refuse("a", "bad")
    for _ in range(10):
        standing.late("a")
    assert not standing.is_excluded("a")
    assert standing.of("a").late == 10
    assert standing.refuse("a", "bad"), "two in a row, with late ones between"


def test_an_exclusion_is_never_taken_back() -> None:
    standing = Standing(1)
    standing.refuse("a", "bad")
    standing.accept("a")
    assert standing.is_excluded("a")
    assert Standing.from_dict(standing.to_dict(), most_refusals=100).excluded == ("a",)


def test_devices_are_counted_apart_and_the_last_reason_is_kept() -> None:
    standing = Standing(3)
    standing.refuse("a", "first")
    standing.refuse("a", "second")
    standing.refuse("b", "x" * 5000)
    assert standing.of("a").last_reason == "second"
    assert len(standing.of("b").last_reason) < 310
    assert standing.of("b").refused == 1
    assert standing.of("c") == Conduct()


def test_counts_come_back_from_json_and_go_on() -> None:
    standing = Standing(3)
    standing.accept("a")
    standing.refuse("a", "bad")
    standing.refuse("a", "worse")
    standing.late("b")
    back = Standing.from_dict(json.loads(json.dumps(standing.to_dict())), most_refusals=3)
    assert back.to_dict() == standing.to_dict()
    assert back.of("a") == standing.of("a")
    assert back.refuse("a", "bad")


@pytest.mark.parametrize(
    "counts",
    [
        None,
        3,
        {},
        {"accepted": 1},
        Standing(1).of("a").__dict__ | {"extra": 1},
        Standing(1).of("a").__dict__ | {"late": True},
        Standing(1).of("a").__dict__ | {"refused": 1.0},
    ],
)
def test_what_it_did_not_write_is_refused(counts: Any) -> None:
    assert "the standing of device 'a' is " in refusal_of(lambda: Standing.from_dict({"a": counts}, most_refusals=3))


@pytest.mark.parametrize("most", [0, -1, True, 1.5])
def test_a_limit_below_one_is_refused(most: Any) -> None:
    assert "training.most_refusals = " in refusal_of(lambda: Standing(most))
