"""The file of a model: tensors and a description in one ``.safetensors`` file, guarded by a checksum."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from codedfl._messages import shown
from codedfl.errors import InputError
from codedfl.files import Arrays, refusing_damage, require_file, require_room_for, write_atomically

FORMAT = 1
"""Version of the description; a reader refuses later ones."""

ENDING = ".safetensors"
KEY = "codedfl"
NO_CHECKSUM = "0" * 64


def write_model_file(path: Path | str, tensors: Arrays, description: Mapping[str, Any]) -> None:
    """Write tensors and a description to one file, atomically and without pickle; equal content gives equal bytes.

    The description is one JSON object in the header of the file, with two more keys: ``format``, and ``sha256``, which is the
    checksum of the whole file with this field set to zeros. It reveals damage and careless edits, not a forger.

    Args:
        path: the file, which must end in ``.safetensors``.
        tensors: arrays by name.
        description: what JSON can hold.

    Raises:
        InputError: if the path ends differently, or its folder is missing.
    """
    from safetensors.numpy import save

    if Path(path).suffix != ENDING:
        raise InputError(f"a model cannot be written to {shown(Path(path))}: give a name that ends in {ENDING}.")
    require_room_for(path)
    text = json.dumps({"sha256": NO_CHECKSUM, "format": FORMAT, **description}, allow_nan=False)
    content = save({name: np.asarray(array, order="C") for name, array in tensors.items()}, {KEY: text})
    checksum = sha256(content).hexdigest()
    write_atomically(path, content.replace(NO_CHECKSUM.encode(), checksum.encode(), 1))


def read_model_file(path: Path | str) -> tuple[Arrays, dict[str, Any]]:
    """Read tensors and description of a file that `write_model_file` wrote.

    Raises:
        InputError: if it is another kind of file, of a later format, damaged or altered.
    """
    from safetensors import safe_open
    from safetensors.numpy import load

    path = Path(path)
    require_file("", path)
    foreign = InputError(
        f"{shown(path)} is not a model of codedfl: give a {ENDING} file from the models/ folder of a run; the .npz models of "
        "earlier versions have to be trained again."
    )
    if path.suffix != ENDING:
        raise foreign
    with refusing_damage(path, "a model of codedfl"):
        content = path.read_bytes()
        with safe_open(path, framework="numpy") as file:
            text = (file.metadata() or {}).get(KEY)
        description = None if text is None else json.loads(text)
        if not isinstance(description, dict):
            raise foreign
        _require_checksum(path, content, description.pop("sha256", None))
        version = description.pop("format", None)
        if version != FORMAT:
            raise InputError(
                f"{shown(path)} has the format {shown(version)}, but this version of codedfl reads {FORMAT}: use the version "
                "that wrote it."
            )
        return load(content), description


def _require_checksum(path: Path, content: bytes, checksum: object) -> None:
    # The header comes first, and no file contains its own checksum anywhere else.
    valid = isinstance(checksum, str) and re.fullmatch("[0-9a-f]{64}", checksum) is not None
    unsigned = content.replace(str(checksum).encode(), NO_CHECKSUM.encode(), 1) if valid else b""
    if sha256(unsigned).hexdigest() != checksum:
        raise InputError(
            f"{shown(path)} was damaged or altered, as it does not match its checksum: copy it again, or train the model again."
        )
