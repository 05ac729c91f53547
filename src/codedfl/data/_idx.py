"""The IDX format of the MNIST files."""

from __future__ import annotations

import gzip
import math
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from codedfl._messages import shown
from codedfl.errors import InputError
from codedfl.files import refusing_damage

_GZIP_MAGIC = b"\x1f\x8b"
_UNSIGNED_BYTE = 0x08


def read_idx(path: Path, dimensions: int) -> npt.NDArray[np.uint8]:
    """Read an array of bytes from an IDX file, gzipped or not.

    The file starts with the bytes 0, 0, 8 (unsigned bytes) and the number of dimensions, then each dimension as a
    big-endian 32-bit integer, then the entries in row-major order.

    Args:
        path: the file; gzip is recognised from the content.
        dimensions: required number of dimensions: 3 for images, 1 for labels.

    Raises:
        InputError: the file is of another kind, truncated, or too long.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "labels")
        ...     _ = path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]))
        ...     read_idx(path, dimensions=1)
        array([7, 9], dtype=uint8)
    """
    with refusing_damage(path, "an IDX file"):
        content = path.read_bytes()
        if content.startswith(_GZIP_MAGIC):
            content = gzip.decompress(content)
    magic = bytes([0, 0, _UNSIGNED_BYTE, dimensions])
    if content[:4] != magic:
        raise InputError(
            f"{shown(path)} starts with the bytes {content[:4].hex(' ') or 'of an empty file'} instead of "
            f"{magic.hex(' ')}: replace it with an IDX file of {dimensions}-dimensional bytes."
        )
    header = 4 + 4 * dimensions
    if len(content) < header:
        raise InputError(f"{shown(path)} is truncated within its header: download it again.")
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    promised, found = math.prod(shape), len(content) - header
    if promised != found:
        fault = "is truncated" if found < promised else "is too long"
        raise InputError(
            f"{shown(path)} {fault}: its header promises {promised} bytes and {found} follow, so download it again."
        )
    if promised == 0:
        raise InputError(f"{shown(path)} has no entries: download it again.")
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)
