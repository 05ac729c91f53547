"""Results by content, in a folder that can be deleted at any time."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from codedfl.errors import InputError
from codedfl.experiment import Config
from codedfl.files import write_atomically

FORMAT = 1
"""Raised when the meaning of outcomes changes, so that older ones are not used."""


def fingerprint(config: Config) -> str:
    """Return a hash over all fields of a configuration that enter results: where the data is, and threads, do not."""
    values = config.model_dump(mode="json")
    values["data"]["data_dir"] = ""
    return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def content_key(task: str, config: Config) -> str:
    """Return the key of what a task computes from a configuration.

    Example:
        >>> content_key("train", Config()) == content_key("train", Config(data={"data_dir": "/elsewhere"}))
        True
        >>> content_key("train", Config()) == content_key("train", Config(seed=1))
        False
    """
    return sha256(json.dumps([FORMAT, task, fingerprint(config)]).encode()).hexdigest()[:32]


class Cache:
    """A folder of JSON files, each named by the content that determines it.

    Args:
        folder: where; made when something is put there.

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

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def get(self, key: str) -> Any:
        """Return what was put there; None if nothing was."""
        path = self._path(key)
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror}): give another --cache.") from error
        except ValueError as error:
            raise self.refusal(key, str(error)) from error

    def refusal(self, key: str, problem: str) -> InputError:
        """Return what to say of a file that does not hold what it should."""
        return InputError(
            f"{self._path(key)} is not what was kept there ({problem}): delete it, and it is computed again."
        )

    def put(self, key: str, value: Any) -> None:
        """Keep a value that JSON can hold."""
        self.make()
        try:
            write_atomically(self._path(key), json.dumps(value))
        except OSError as error:
            raise self._unwritable(error) from error

    def make(self) -> None:
        """Make the folder, before anything is computed that could not be kept."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> InputError:
        return InputError(f"{self.folder} cannot be written ({error.strerror}): give another --cache.")
