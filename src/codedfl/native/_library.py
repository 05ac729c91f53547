"""Finds and loads the compiled kernel."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path

LIBRARY = Path(__file__).resolve().parent / "_kernel.so"

VERSION = 2
"""Must equal ``kernel_version`` in kernel.c."""

_SIZE, _ADDRESS = ctypes.c_int64, ctypes.c_void_p
_ARGUMENTS = {
    "take_steps": [_ADDRESS, _SIZE, _ADDRESS, _ADDRESS, _ADDRESS],
    "workspace_bytes": [_ADDRESS, _SIZE],
}


@cache
def library() -> ctypes.CDLL | None:
    """Return the compiled kernel, or None if there is none or the environment variable CODEDFL_NATIVE is 0.

    Calls into it release the interpreter lock.
    """
    if os.environ.get("CODEDFL_NATIVE") == "0" or not LIBRARY.exists():
        return None
    try:
        kernel = ctypes.CDLL(str(LIBRARY))
        kernel.kernel_version.restype = _SIZE
        if kernel.kernel_version() != VERSION:
            return None
        for name, arguments in _ARGUMENTS.items():
            function = getattr(kernel, name)
            function.argtypes, function.restype = arguments, _SIZE
    except (OSError, AttributeError):  # built for another system, or from older source
        return None
    return kernel


def available() -> bool:
    """Return whether the compiled kernel is used where it can be."""
    return library() is not None


def backend() -> str:
    """Return which backend computes gradient steps on sampled rows: ``native`` or ``numpy``."""
    return "native" if available() else "numpy"
