"""Read files that may be absent, damaged or of another kind, and refuse those in one sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from codedfl._messages import did_you_mean, listing
from codedfl.errors import InputError

Arrays = dict[str, npt.NDArray[Any]]


def require_file(field: str, path: Path) -> None:
    """Refuse a path at which there is no file."""
    if not path.is_file():
        raise InputError(f"{field} = {str(path)!r} is not a file: check the path and the current directory.")


@contextmanager
def refusing_damage(path: Path, kind: str) -> Iterator[None]:
    """Turn whatever a parser raises on a bad file into an ``InputError`` that names the file."""
    try:
        yield
    except InputError:
        raise
    # Parsers of zip, gzip, LZMA, CSV and Parquet raise dozens of types on damaged files, and the list is nowhere promised.
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(". ")
        raise InputError(
            f"{str(path)!r} cannot be read as {kind} ({reason}): replace it with an undamaged file."
        ) from error


def read_npz(path: Path, required: Sequence[str], optional: Sequence[str] | None = ()) -> Arrays:
    """Read the named arrays of an ``.npz`` file, without unpickling anything.

    Args:
        path: the file.
        required: arrays that must be there.
        optional: arrays that are read if they are there; None for all.

    Raises:
        InputError: the file is damaged, lacks a required array, or holds Python objects.
    """
    # Opened here because numpy leaves a damaged file that it opened itself open.
    with refusing_damage(path, "an .npz file"), path.open("rb") as file:
        archive = np.load(file, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise InputError(f"{str(path)!r} is not an .npz archive: write it with numpy.savez.")
        with archive:
            present = archive.files
            for name in required:
                if name not in present:
                    raise InputError(
                        f"{str(path)!r} has no array {name!r}, only: {listing(present) or 'none'}."
                        + did_you_mean(name, present)
                    )
            others = present if optional is None else [name for name in optional if name in present]
            wanted = dict.fromkeys([*required, *others])
            arrays = {name: archive[name] for name in wanted}
            for name, array in arrays.items():
                # A member that is not an array comes back as bytes.
                if not isinstance(array, np.ndarray):
                    raise InputError(
                        f"the member {name!r} of {str(path)!r} is not an array: write it with numpy.savez."
                    )
            return arrays
