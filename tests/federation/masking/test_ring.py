from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from codedfl.errors import InputError
from codedfl.federation.masking._ring import (
    ENTRIES_PER_MASK_BLOCK,
    Mask,
    apply_masks,
    to_floats,
    to_ring,
    upload_digest,
)
from codedfl.federation.masking._terms import MaskingTerms

TERMS = MaskingTerms("ward", ("a", "b", "c"), roster=None)
KEY = bytes(range(32))


@given(arrays(np.float64, (2, 3), elements=st.floats(-TERMS.largest_value, TERMS.largest_value)))
def test_rounding_is_the_only_error(values: Any) -> None:
    ring = to_ring("features", values, TERMS)
    unit = Fraction(1, 2**24)
    for number, integer in zip(values.ravel().tolist(), ring.view(np.int64).ravel().tolist(), strict=True):
        assert integer == round(Fraction(number) / unit)
        assert abs(integer * unit - Fraction(number)) <= unit / 2


@given(arrays(np.int64, 5, elements=st.integers(-(2**53), 2**53)))
def test_sums_of_53_bits_become_floats_exactly(integers: Any) -> None:
    wanted = [Fraction(integer, 2**24) for integer in integers.tolist()]
    floats = to_floats(integers.view(np.uint64), TERMS)
    assert [Fraction(number) for number in floats.tolist()] == wanted


def test_no_sum_of_allowed_values_overflows() -> None:
    for bits in (0, 24, 52):
        for count in (2, 3, 10, 1000):
            terms = MaskingTerms("ward", tuple(map(str, range(count))), roster=None, fraction_bits=bits)
            ring = to_ring("features", np.array([[terms.largest_value, -terms.largest_value]]), terms)
            assert count * int(ring.view(np.int64)[0, 0]) < 2**63
            assert count * int(ring.view(np.int64)[0, 1]) >= -(2**63)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_value_that_could_overflow_is_refused(sign: int) -> None:
    values = np.zeros((2, 2))
    values[1, 0] = sign * np.nextafter(TERMS.largest_value, np.inf)
    with pytest.raises(InputError, match=r"features: the absolute value .* is more than .* that 3 devices can add up"):
        to_ring("features", values, TERMS)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[1.0]], "labels: list must be a matrix"),
        (np.ones((2, 2), np.int64), r"labels: int64 of shape \(2, 2\) must be a matrix of float32 or float64"),
        (np.ones((2, 2), np.float16), "float16"),
        (np.ones(3), r"shape \(3,\)"),
        (np.ones((0, 3)), "with at least one entry"),
        (np.array([[1.0, np.nan]]), r"labels has 1 value\(s\) that are NaN or infinite"),
        (np.array([[1.0, -np.inf]], np.float32), r"labels has 1 value\(s\) that are NaN or infinite"),
        (np.array([[object()]]), "object"),
    ],
)
def test_what_is_no_matrix_of_finite_floats_is_refused(values: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        to_ring("labels", values, TERMS)


def test_a_matrix_in_any_memory_order_is_read_alike() -> None:
    values = np.random.default_rng(1).normal(size=(6, 7))
    wanted = to_ring("features", values, TERMS)
    assert np.array_equal(to_ring("features", np.asfortranarray(values), TERMS), wanted)
    assert np.array_equal(to_ring("features", values[::-1], TERMS), wanted[::-1])


def test_a_mask_is_one_key_stream_over_all_arrays() -> None:
    """Against the cipher run once over everything; the sizes are no multiples of blocks."""
    shapes = (ENTRIES_PER_MASK_BLOCK + 3, 2), (5, 1)
    sizes = [rows * columns for rows, columns in shapes]
    stream = Cipher(ChaCha20(KEY, bytes(16)), mode=None).encryptor().update(bytes(8 * sum(sizes)))
    wanted = [int.from_bytes(stream[start : start + 8], "little") for start in range(0, 8 * sum(sizes), 8)]
    for sign in (1, -1):
        features, labels = (np.full(shape, 7, np.uint64) for shape in shapes)
        apply_masks([features, labels], [Mask(KEY, sign)])
        got = [*features.ravel().tolist(), *labels.ravel().tolist()]
        assert got == [(7 + sign * number) % 2**64 for number in wanted]


def test_masks_of_opposite_sign_cancel() -> None:
    values = np.arange(12, dtype=np.uint64).reshape(3, 4)
    masked = values.copy()
    apply_masks([masked], [Mask(KEY, 1), Mask(bytes(32), -1)])
    assert not np.any(masked == values)
    apply_masks([masked], [Mask(bytes(32), 1), Mask(KEY, -1)])
    assert np.array_equal(masked, values)


def test_the_digest_depends_on_shapes_and_entries() -> None:
    values = np.arange(6, dtype=np.uint64)
    digests = {
        upload_digest([values.reshape(2, 3), values.reshape(2, 3)]),
        upload_digest([values.reshape(3, 2), values.reshape(2, 3)]),
        upload_digest([values.reshape(2, 3), values.reshape(3, 2)]),
        upload_digest([values.reshape(2, 3), values.reshape(2, 3) + np.uint64(1)]),
    }
    assert len(digests) == 4
