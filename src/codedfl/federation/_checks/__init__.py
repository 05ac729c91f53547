"""Checks of everything that arrives at the server: a message is as described here, or it is a `BadMessage`."""

from codedfl.federation._checks._fields import BadMessage
from codedfl.federation._checks._messages import (
    MASKED,
    Hello,
    ReceivedAnswer,
    ReceivedUpdate,
    bounded,
    checked_answer,
    checked_hello,
    checked_update,
    checked_upload,
    typical_norm,
)

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
