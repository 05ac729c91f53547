"""Errors that tell a person what is wrong and what to do about it."""

from __future__ import annotations


class InputError(ValueError):
    """Bad input, refused before work starts.

    The message is one sentence that names the field, the value and the fix. The command line prints it and exits with
    code 2, without a traceback.
    """
