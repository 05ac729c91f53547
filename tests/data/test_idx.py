from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.data._idx import read_idx
from codedfl.errors import InputError


def idx_bytes(array: npt.NDArray[Any]) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


IMAGES = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_reads_back_what_was_written(tmp_path: Path, compress: Any) -> None:
    path = tmp_path / "images"
    path.write_bytes(compress(idx_bytes(IMAGES)))
    np.testing.assert_array_equal(read_idx(path, dimensions=3), IMAGES)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "starts with the bytes of an empty file instead of 00 00 08 03"),
        (b"\x00\x00\x08\x01\x00\x00\x00\x01\x07", "starts with the bytes 00 00 08 01 instead of 00 00 08 03"),
        (idx_bytes(IMAGES)[:10], "is truncated within its header"),
        (idx_bytes(IMAGES)[:-1], "is truncated: its header promises 24 bytes and 23 follow"),
        (idx_bytes(IMAGES) + b"x", "is too long: its header promises 24 bytes and 25 follow"),
        (idx_bytes(IMAGES[:0]), "has no entries"),
        (gzip.compress(idx_bytes(IMAGES), mtime=0)[:-9], "cannot be read as an IDX file"),
        (b"\x1f\x8bnonsense", "cannot be read as an IDX file"),
    ],
)
def test_a_bad_file_is_refused_by_name(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "train-images"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"train-images' {message}"):
        read_idx(path, dimensions=3)


def test_an_unreadable_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read as an IDX file"):
        read_idx(tmp_path, dimensions=1)


@given(prefix=st.sampled_from([b"", b"\x00\x00\x08\x01", b"\x00\x00\x08\x01\x00\x00\x00"]), rest=st.binary(max_size=40))
def test_arbitrary_bytes_give_labels_or_a_refusal(
    tmp_path_factory: pytest.TempPathFactory, prefix: bytes, rest: bytes
) -> None:
    path = tmp_path_factory.mktemp("idx") / "labels"
    path.write_bytes(prefix + rest)
    refusal = "labels"
    try:
        assert read_idx(path, dimensions=1).ndim == 1
    except InputError as error:
        refusal = str(error)
    assert "labels" in refusal
