"""Coded federated learning for Python."""

from codedfl._version import __version__
from codedfl.errors import InputError

__all__ = ["InputError", "__version__"]
