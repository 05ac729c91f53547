"""Files that are either whole or not there."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write a file so that a reader, or a crash, never sees half of it.

    The content goes to a temporary file in the same folder, is flushed to disk, and then takes the name in one step.
    """
    data = content.encode() if isinstance(content, str) else content
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_npz(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write arrays to one ``.npz`` file, atomically and without pickle."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    write_atomically(path, buffer.getvalue())
