"""Results by content, in a folder that can be deleted at any time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from codedfl.errors import InputError
from codedfl.files import write_atomically


class Cache:
    """A folder of JSON files, each named by the content that determines it.

    Args:
        folder: where; made when something is put there.

    Example:
        >>> import tempfile
        >>> cache = Cache(Path(tempfile.mkdtemp()))
        >>> cache.get("ab12") is None
        True
        >>> cache.put("ab12", {"accuracy": 0.95})
        >>> cache.get("ab12")
        {'accuracy': 0.95}
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def get(self, key: str) -> Any:
        """Return what was put there; None if nothing was."""
        path = self._path(key)
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise InputError(f"{path} cannot be read ({error}): delete it, and it is computed again.") from error

    def put(self, key: str, value: Any) -> None:
        """Keep a value that JSON can hold."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path(key), json.dumps(value))
        except OSError as error:
            raise InputError(f"{self.folder} cannot be written ({error.strerror}): give another --cache.") from error
