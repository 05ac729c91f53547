"""Checks of everything that arrives at the server: a message is as described here, or it is a `BadMessage`."""

from codedfl.federation._checks._answer import ReceivedAnswer, checked_answer
from codedfl.federation._checks._fields import BadMessage
from codedfl.federation._checks._hello import Hello, checked_hello
from codedfl.federation._checks._update import ReceivedUpdate, bounded, checked_update, typical_norm
from codedfl.federation._checks._upload import MASKED, checked_upload

__all__ = [
    "MASKED",
    "BadMessage",
    "Hello",
    "ReceivedAnswer",
    "ReceivedUpdate",
    "bounded",
    "checked_answer",
    "checked_hello",
    "checked_update",
    "checked_upload",
    "typical_norm",
]
