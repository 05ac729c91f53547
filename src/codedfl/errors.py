"""Errors that tell the user what is wrong and how to fix it."""

from __future__ import annotations


class InputError(ValueError):
    """Invalid input, refused before work starts.

    The message is one sentence that names the field, the value and the fix. The command line prints it and exits with
    code 2, without a traceback.
    """


class InputListError(InputError):
    """Several problems with one input, found together: a sentence, followed by one line for each."""
