"""A cache of outcomes by the content that determines them. Its folder can be deleted at any time."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from codedfl.errors import InputError
from codedfl.experiment import Config
from codedfl.files import write_atomically
from codedfl.identity import identity

FORMAT = 2
"""Raised when outcomes or their files change meaning, so that older ones are computed again."""


def content_key(task: str, config: Config) -> str:
    """Return the key of what a task computes from a configuration.

    Example:
        >>> content_key("train", Config()) == content_key("train", Config(data={"data_dir": "/elsewhere"}))
        True
        >>> content_key("train", Config()) == content_key("train", Config(seed=1))
        False
    """
    return identity((FORMAT, task, config))[:32]


def _hash(values: Any) -> str:
    return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


class DamagedEntryError(Exception):
    """A file of the cache does not hold what was stored there. The message says which file and why."""


class Cache:
    """A folder of JSON files, one per outcome, each with its key and a checksum.

    Args:
        folder: created when something is stored.

    Example:
        >>> import tempfile
        >>> cache = Cache(tempfile.mkdtemp())
        >>> cache.get("ab12") is None
        True
        >>> cache.put("ab12", {"accuracy": 0.95})
        >>> cache.get("ab12")
        {'accuracy': 0.95}
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def path(self, key: str) -> Path:
        """Return the file of a key."""
        return self.folder / f"{key}.json"

    def get(self, key: str) -> Any:
        """Return what is stored under a key, None if nothing is.

        Raises:
            DamagedEntryError: if the file was truncated or edited, or belongs to another key.
            InputError: if the file cannot be read.
        """
        path = self.path(key)
        if path.exists() and not path.is_file():
            raise InputError(f"{path} is not a file: delete it, or choose another folder for the cache.")
        try:
            entry = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(
                f"{path} cannot be read ({error.strerror}): choose another folder for the cache."
            ) from error
        except (ValueError, RecursionError) as error:
            raise DamagedEntryError(f"{path} is not JSON") from error
        if not isinstance(entry, dict) or set(entry) != {"key", "checksum", "outcome"}:
            raise DamagedEntryError(f"{path} is not an entry of the cache")
        if entry["key"] != key:
            raise DamagedEntryError(f"{path} belongs to another key")
        if entry["checksum"] != _hash(entry["outcome"]):
            raise DamagedEntryError(f"{path} does not match its checksum")
        return entry["outcome"]

    def put(self, key: str, outcome: Any) -> None:
        """Store an outcome that JSON can represent."""
        self.make()
        try:
            entry = {"key": key, "checksum": _hash(outcome), "outcome": outcome}
            write_atomically(self.path(key), json.dumps(entry))
        except OSError as error:
            raise self._unwritable(error) from error

    def make(self) -> None:
        """Create the folder, before anything is computed that could not be stored."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> InputError:
        return InputError(f"{self.folder} cannot be written ({error.strerror}): choose another folder for the cache.")
