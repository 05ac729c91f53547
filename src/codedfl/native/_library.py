"""Finds and loads the compiled kernel, and declares its structs and functions."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import ClassVar

LIBRARY = Path(__file__).resolve().parent / "_kernel.so"

VERSION = 2
"""Must equal ``kernel_version`` in kernel.c."""

_SIZE, _WORD, _REAL, _ADDRESS = ctypes.c_int64, ctypes.c_uint64, ctypes.c_double, ctypes.c_void_p


class KernelStart(ctypes.Structure):
    """``model`` in kernel.c: where a model starts and how it moves."""

    _fields_: ClassVar = [("start", _ADDRESS), ("step_size", _REAL), ("make_up", _REAL)]


class KernelParty(ctypes.Structure):
    """``party`` in kernel.c: the data of a device or the server, its batches, and the models that take the steps."""

    _fields_: ClassVar = [
        ("features", _ADDRESS),
        ("labels", _ADDRESS),
        ("item_bytes", _SIZE),
        ("samples", _SIZE),
        ("dimension", _SIZE),
        ("outputs", _SIZE),
        ("steps", _SIZE),
        ("scale", _REAL),
        ("rows", _ADDRESS),
        ("ends", _ADDRESS),
        ("key0", _WORD),
        ("key1", _WORD),
        ("device", _WORD),
        ("round", _WORD),
        ("probability", _REAL),
        ("first_start", _SIZE),
        ("starts", _SIZE),
        ("totals", _ADDRESS),
    ]


_ARGUMENTS = {
    "take_steps": [ctypes.POINTER(KernelParty), _SIZE, ctypes.POINTER(KernelStart), ctypes.POINTER(_SIZE), _ADDRESS],
    "workspace_bytes": [ctypes.POINTER(KernelParty), _SIZE],
}


@cache
def library() -> ctypes.CDLL | None:
    """Return the compiled kernel, or None if there is none or the environment variable CODEDFL_NATIVE is 0.

    Calls release the interpreter lock. CODEDFL_KERNEL names another library, such as one built with sanitizers.
    """
    path = Path(os.environ.get("CODEDFL_KERNEL", LIBRARY))
    if os.environ.get("CODEDFL_NATIVE") == "0" or not path.exists():
        return None
    try:
        kernel = ctypes.CDLL(str(path))
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
    """Return whether the compiled kernel is in use."""
    return library() is not None


def backend() -> str:
    """Return the name of the backend that takes gradient steps on sampled rows: ``native`` or ``numpy``."""
    return "native" if available() else "numpy"
