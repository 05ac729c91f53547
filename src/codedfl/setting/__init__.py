"""The setting in which schemes are compared: the same data, fleet, channel, code and clock for all (Sec. VI-A)."""

from codedfl.setting._code import Code
from codedfl.setting._setting import LARGEST_GRAM, Setting, gram_of

__all__ = ["LARGEST_GRAM", "Code", "Setting", "gram_of"]
