"""What the tests of the compiled kernel share."""

from __future__ import annotations

import pytest

from codedfl import native

needs_kernel = pytest.mark.skipif(
    not native.available(), reason="the kernel is not compiled (no C compiler, or CODEDFL_NATIVE=0)"
)
