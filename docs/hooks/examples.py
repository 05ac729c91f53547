"""Examples in docstrings as code: the heading of this project is ``Example:``, and the parser knows only its plural."""

from __future__ import annotations

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Renames the heading before docstrings are parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rename it in the docstring of an object."""
        if obj.docstring:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
