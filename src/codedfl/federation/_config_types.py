"""Values in the two configuration files: names, addresses, files and numbers, each with its range."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from codedfl.config import MAX_COUNT, Positive, Text
from codedfl.data import is_file_name

_DEVICE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9.-]*[A-Za-z0-9]):([0-9]{1,5})")


def _device_name(text: str) -> str:
    # The name becomes that of a folder and a file, so it must not hide them or lead out of theirs.
    if not _DEVICE_NAME.fullmatch(text):
        raise ValueError(
            "it must have 1 to 64 characters out of A-Z, a-z, 0-9, dot, dash and underscore, the first not a dot"
        )
    return text


def _address(text: str) -> str:
    match = _ADDRESS.fullmatch(text)
    if not match or not 1 <= int(match[1]) <= 65535:
        raise ValueError(
            'it must be a host and a port from 1 to 65535, such as "192.0.2.7:9092" or "[2001:db8::7]:9092"'
        )
    return text


def table_file(text: str) -> str:
    """Refuse a name that is not that of a table."""
    if not is_file_name(text):
        raise ValueError("it must be a file whose name ends in .csv, .tsv, .npz or .parquet")
    return text


Name = Annotated[Text, Field(min_length=1)]
DeviceName = Annotated[str, AfterValidator(_device_name)]
Address = Annotated[str, AfterValidator(_address)]
TableFile = Annotated[Text, AfterValidator(table_file)]
Seconds = Annotated[Positive, Field(le=MAX_COUNT)]
Constant = Annotated[float, Field(ge=-1e30, le=1e30, allow_inf_nan=False)]
Scale = Annotated[float, Field(ge=1e-30, le=1e30, allow_inf_nan=False)]
