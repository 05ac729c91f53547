"""Fixed-point numbers modulo 2^64, and the masks that hide them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256, Hash

from codedfl._messages import shown
from codedfl._validation import require_finite
from codedfl.errors import InputError
from codedfl.federation.masking._terms import MaskingTerms
from codedfl.typing import FloatArray, row_blocks

RingArray = npt.NDArray[np.uint64]
"""Integers modulo 2^64; signed numbers are in two's complement."""

ENTRIES_PER_MASK_BLOCK = 2**16
_ENTRY_BYTES = 8
_ZEROS = memoryview(bytes(ENTRIES_PER_MASK_BLOCK * _ENTRY_BYTES))
_NONCE = bytes(16)


class Mask:
    """A stream of uniform integers modulo 2^64 (the key stream of ChaCha20), added or subtracted.

    The key belongs to one mask of one upload, so the nonce can be constant.
    """

    def __init__(self, key: bytes, sign: int) -> None:
        self._stream = Cipher(ChaCha20(key, _NONCE), mode=None).encryptor()
        self._combine = np.add if sign > 0 else np.subtract

    def apply(self, block: RingArray, scratch: npt.NDArray[np.uint8]) -> None:
        """Add the next integers of the stream to the block, or subtract them, in place."""
        size = block.size * _ENTRY_BYTES
        self._stream.update_into(_ZEROS[:size], scratch[:size].data)
        # The byte order is fixed, so that masks cancel between different machines.
        self._combine(block, scratch[:size].view("<u8"), out=block)


def apply_masks(arrays: Sequence[RingArray], masks: Sequence[Mask]) -> None:
    """Apply all masks to the contiguous arrays in place, as if the arrays were one, in blocks that fit the cache."""
    scratch = np.empty(len(_ZEROS), np.uint8)
    for array in arrays:
        flat = array.reshape(-1)
        for start in range(0, flat.size, ENTRIES_PER_MASK_BLOCK):
            for mask in masks:
                mask.apply(flat[start : start + ENTRIES_PER_MASK_BLOCK], scratch)


def to_ring(name: str, values: FloatArray, terms: MaskingTerms) -> RingArray:
    """Return ``round(x * 2^fraction_bits)`` modulo ``2^64``.

    An entry is off by at most ``2^-(fraction_bits + 1)``: scaling by a power of two is exact, so rounding is the only error.

    Raises:
        InputError: If the values are no matrix of float32 or float64, or one is not finite or too large for the sum to fit.

    Example:
        >>> to_ring("features", np.array([[1.5, -0.25]]), MaskingTerms("ward", ("a", "b"), roster=None, fraction_bits=2))
        array([[                   6, 18446744073709551615]], dtype=uint64)
    """
    if not (
        isinstance(values, np.ndarray) and values.dtype in (np.float32, np.float64) and values.ndim == 2 and values.size
    ):
        what = f"{values.dtype} of shape {values.shape}" if isinstance(values, np.ndarray) else type(values).__name__
        raise InputError(f"{name}: {what} must be a matrix of float32 or float64 with at least one entry.")
    require_finite(name, values)
    ring = np.empty(values.shape, np.int64)
    for block in row_blocks(*values.shape):
        rows = values[block].astype(np.float64)
        largest = float(max(rows.max(), -rows.min()))
        if largest > terms.largest_value:
            raise InputError(
                f"{name}: the absolute value {shown(largest)} is more than {shown(terms.largest_value)}, "
                f"the most that {len(terms.devices)} devices can add up; scale the data down or use fewer fraction_bits."
            )
        ring[block] = np.rint(rows * 2.0**terms.fraction_bits)
    return ring.view(np.uint64)


def to_floats(ring: RingArray, terms: MaskingTerms) -> npt.NDArray[np.float64]:
    """Return the numbers as float64, in the memory of the contiguous ``ring``, which is overwritten.

    Exact as long as a number has at most 53 significant bits; longer ones are rounded, by at most one part in ``2^53``.

    Example:
        >>> terms = MaskingTerms("ward", ("a", "b"), roster=None, fraction_bits=2)
        >>> to_floats(np.array([6, 2**64 - 1], np.uint64), terms)
        array([ 1.5 , -0.25])
    """
    integers, floats = ring.reshape(-1).view(np.int64), ring.reshape(-1).view(np.float64)
    for start in range(0, integers.size, ENTRIES_PER_MASK_BLOCK):
        block = slice(start, start + ENTRIES_PER_MASK_BLOCK)
        floats[block] = integers[block].astype(np.float64) * 2.0**-terms.fraction_bits
    return floats.reshape(ring.shape)


def upload_digest(arrays: Sequence[RingArray]) -> bytes:
    """Return a digest (SHA-256) of shapes and entries."""
    digest = Hash(SHA256())
    for array in arrays:
        digest.update(repr(array.shape).encode())
        for block in row_blocks(*array.shape):
            digest.update(np.ascontiguousarray(array[block], "<u8").view(np.uint8).reshape(-1).data)
    return digest.finalize()
