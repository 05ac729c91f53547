from __future__ import annotations

from hashlib import blake2b
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.errors import InputError
from codedfl.streams import MAX_SEED, Streams

SIGMAS = 4.5


def test_every_address_has_its_own_draws() -> None:
    addresses = list(product([0, 1, 7, MAX_SEED], ["batch", "channel", "batch1", ""], range(4), range(4)))
    draws = {Streams(seed).at(purpose, device=i, round=k).random() for seed, purpose, i, k in addresses}
    assert len(draws) == len(addresses)  # doubles of 53 bits: two of 256 coincide with probability 4e-12


def test_the_digits_of_a_seed_do_not_run_into_the_purpose() -> None:
    assert Streams(1).at("2/x").random() != Streams(12).at("/x").random() != Streams(1).at("2//x").random()


@given(
    seed=st.integers(0, MAX_SEED), purpose=st.text(max_size=20), device=st.integers(0, 2**40), k=st.integers(0, 2**40)
)
def test_an_address_repeats_itself(seed: int, purpose: str, device: int, k: int) -> None:
    streams = Streams(seed)
    first = streams.at(purpose, device=device, round=k)
    streams.at(purpose, device=device, round=k + 1).random(5)  # other draws in between change nothing
    again = Streams(seed).at(purpose, device=device, round=k)
    assert (first.standard_normal(5) == again.standard_normal(5)).all()


def test_device_and_round_are_zero_unless_told() -> None:
    streams = Streams(5)
    assert streams.at("a").random() == streams.at("a", device=0, round=0).random()


def test_a_stream_is_philox_at_the_documented_key_and_counter() -> None:
    """Results on disk depend on this: a change here changes every published number."""
    key = np.frombuffer(blake2b(b"7/batch", digest_size=16).digest(), dtype="<u8")
    bits = np.random.Philox(key=key, counter=3 * 2**128 + 10 * 2**192)
    expected = np.random.Generator(bits).random(10)
    assert (Streams(7).at("batch", device=3, round=10).random(10) == expected).all()
    child = int.from_bytes(blake2b(b"7/child:search", digest_size=16).digest()[:8], "little") >> 1
    assert Streams(7).child("search").seed == child


def test_streams_do_not_overlap() -> None:
    """The lower half of the counter is free: 2**128 blocks of draws before the next device's stream begins."""
    own = Streams(7).at("batch", device=3)
    following = Streams(7).at("batch", device=4)
    assert isinstance(own.bit_generator, np.random.Philox)
    own.bit_generator.advance(2**128)
    assert (own.random(4) == following.random(4)).all()


def assert_uncorrelated(draws: list[np.random.Generator]) -> None:
    """Pair streams (0, 1), (2, 3), ... and check the correlation of each pair, over all pairs.

    For n independent normal draws z = sum a b / sqrt(n) has mean 0 and variance 1, and z^2 has variance 2 + 6 / n.
    """
    n = 200
    values = np.array([stream.standard_normal(n) for stream in draws])
    z = np.sum(values[::2] * values[1::2], axis=1) / np.sqrt(n)
    assert abs(z.mean()) <= SIGMAS / np.sqrt(len(z))
    assert abs(np.mean(z**2) - 1) <= SIGMAS * np.sqrt((2 + 6 / n) / len(z))
    # and together they are standard normal: the variance of x^2 is 2
    assert abs(values.mean()) <= SIGMAS / np.sqrt(values.size)
    assert abs(np.mean(values**2) - 1) <= SIGMAS * np.sqrt(2 / values.size)


def test_streams_are_uncorrelated() -> None:
    count = 1000
    assert_uncorrelated([Streams(1).at("x", device=i) for i in range(count)])
    assert_uncorrelated([Streams(1).at("x", round=k) for k in range(count)])
    assert_uncorrelated([Streams(seed).at("x") for seed in range(count)])
    assert_uncorrelated([Streams(1).at(f"x{i}") for i in range(count)])
    assert_uncorrelated([Streams(1).child(f"x{i}").at("x") for i in range(count)])
    parents_and_children = [s.at("x") for i in range(count // 2) for s in (Streams(i), Streams(i).child("x"))]
    assert_uncorrelated(parents_and_children)


def test_first_draws_of_streams_are_independent() -> None:
    # one draw from each of many streams, in order of device: no correlation at lags 1 to 5
    count = 4000
    first = np.array([Streams(2).at("x", device=i).standard_normal() for i in range(count)])
    for lag in range(1, 6):
        pairs = count - lag
        assert abs(np.sum(first[:-lag] * first[lag:])) <= SIGMAS * np.sqrt(pairs)


def test_children_differ_from_each_other_and_from_their_parent() -> None:
    parent = Streams(3)
    family = [
        parent,
        parent.child("a"),
        parent.child("b"),
        parent.child("a").child("a"),
        parent.child("a").child("b"),
        Streams(4).child("a"),
    ]
    assert len({streams.seed for streams in family}) == len(family)
    assert len({streams.at("x").random() for streams in family}) == len(family)
    assert parent.child("a") == Streams(3).child("a")


@given(seed=st.integers(0, MAX_SEED), purpose=st.text(max_size=20))
def test_the_seed_of_a_child_is_one_that_could_be_typed(seed: int, purpose: str) -> None:
    child = Streams(seed).child(purpose)
    assert type(child.seed) is int
    assert 0 <= child.seed <= MAX_SEED


@pytest.mark.parametrize("seed", [-1, -(2**63), MAX_SEED + 1, 2**200])
def test_seeds_out_of_range_are_refused(seed: int) -> None:
    with pytest.raises(InputError, match=rf"^seed = {seed} is out of range: use an integer from 0 to {2**63 - 1}\.$"):
        Streams(seed)


@pytest.mark.parametrize("seed", [0, MAX_SEED])
def test_seeds_at_the_ends_are_accepted(seed: int) -> None:
    assert 0 <= Streams(seed).at("x").random() < 1
