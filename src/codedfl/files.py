"""Whole files: written so that a reader never sees half of one, and refused in one sentence if they cannot be read."""

from __future__ import annotations

import csv
import io
import math
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import numpy.typing as npt

from codedfl._messages import did_you_mean, listing, shown
from codedfl.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

Arrays = dict[str, npt.NDArray[Any]]

MAX_COLUMNS = 50_000
"""Columns that a .csv or .parquet file may have: parsing time grows with them, not with the size of the file alone."""

PRIVATE = 0o600
"""Permissions of a file that only its owner can read."""

_TEMPORARY = re.compile(r"\..+\.[a-z0-9_]{8}\.tmp", re.DOTALL)

SEPARATORS = (",", ";", "\t")


@contextmanager
def open_atomically(path: str | Path, mode: int = 0o644) -> Iterator[BinaryIO]:
    """Open a file for writing that takes its name only once it is complete and on disk.

    Until then the content is in a hidden file ``.{name}.{random}.tmp`` of the same folder, which only its owner can read. An
    exception removes it; a killed process leaves it behind for `remove_leftovers`. After a crash of the whole machine the file
    may have its old content, unless `sync_folder` was called.

    Args:
        path: the file.
        mode: its permissions once it is complete, whatever the umask and those of an earlier file are.
    """
    path = Path(path)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(mode)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_atomically(path: str | Path, content: bytes | str, mode: int = 0o644) -> None:
    """Write a file so that a reader, or a crash, never sees half of it.

    Args:
        path: the file.
        content: bytes, or text to be written in UTF-8. Parts of a path that are not Unicode are escaped.
        mode: permissions of the file.
    """
    with open_atomically(path, mode) as file:
        file.write(content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content)


def make_private_folder(folder: str | Path) -> Path:
    """Create a folder that only its owner can enter, or close an existing one to others, and return its path.

    Folders above it that are missing are created as usual.
    """
    folder = Path(folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if stat.S_IMODE(folder.stat().st_mode) != 0o700:
        folder.chmod(0o700)
    return folder


def sync_folder(folder: str | Path) -> None:
    """Wait until the names of the files in a folder are on disk, and not their content alone."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def csv_text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    r"""Return a table as CSV, with numbers written so that they read back exactly.

    Example:
        >>> csv_text(["round", "loss"], [(1, 0.1)])
        'round,loss\n1,0.1\n'
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def write_npz(path: str | Path, arrays: Mapping[str, npt.NDArray[Any]], mode: int = 0o644) -> None:
    """Write arrays to one ``.npz`` file with the given permissions, atomically and without pickle."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    write_atomically(path, buffer.getvalue(), mode)


def remove_leftovers(folder: str | Path) -> int:
    """Delete the temporary files that killed writers left in a folder and its subfolders.

    Only the owner of the folder may call this, while nobody writes to it.

    Returns:
        How many files were deleted.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, ".curves.csv.a1b2c3d4.tmp").write_text("half of a f")
        ...     remove_leftovers(folder), remove_leftovers(folder)
        (1, 0)
    """
    leftovers = [path for path in Path(folder).rglob(".*.tmp") if _TEMPORARY.fullmatch(path.name) and path.is_file()]
    for path in leftovers:
        path.unlink(missing_ok=True)
    return len(leftovers)


def require_file(field: str, path: str | Path) -> None:
    """Refuse a path that is not a regular file, or whose name could not be recorded.

    A pipe or a device would block the reader or never end.

    Args:
        field: what the path was given as; empty if it has no name.
        path: the file.
    """
    name = f"{field} = {shown(Path(path))}" if field else shown(Path(path))
    # Path.is_file raises on names that are too long; these do not.
    if not os.path.isfile(path):  # noqa: PTH113
        if os.path.exists(path) and not os.path.isdir(path):  # noqa: PTH110, PTH112
            raise InputError(f"{name} is a pipe or a device: copy its content to a file and give that.")
        raise InputError(f"{name} is not a file: check the path and the current directory.")
    if not _is_unicode(str(path)):
        raise InputError(f"{name} has a name that is not valid UTF-8: rename the file or its folder.")


def require_room_for(path: str | Path) -> None:
    """Refuse a path at which no file can be written."""
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{shown(path)} is a folder: give the name of a file.")
    if not path.parent.is_dir():
        raise InputError(
            f"{shown(path)} cannot be written, as there is no folder {shown(path.parent)}: create it, or give another path."
        )
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise InputError(
            f"{shown(path)} cannot be written, as its folder is closed to you: give another path, or ask for permission."
        )


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@contextmanager
def refusing_damage(path: str | Path, kind: str) -> Iterator[None]:
    """Turn whatever a parser raises on a bad file into an ``InputError`` that names the file."""
    try:
        yield
    except InputError:
        raise
    # Parsers of zip, gzip, LZMA, CSV and Parquet raise dozens of types on damaged files, and no documentation lists them.
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(". ")[:200]
        raise InputError(
            f"{shown(Path(path))} cannot be read as {kind} ({reason}): replace it with an undamaged file."
        ) from error


def read_npz(path: str | Path, required: Sequence[str], optional: Sequence[str] | None = ()) -> Arrays:
    """Read arrays of an ``.npz`` file by name, without unpickling anything.

    Args:
        path: the file.
        required: arrays that must be there.
        optional: arrays to read if they are there; None for all.

    Raises:
        InputError: the file is damaged, lacks a required array, or holds Python objects.
    """
    path = Path(path)
    require_file("", path)
    # Opened here because numpy does not close a damaged file that it opened itself.
    with refusing_damage(path, "an .npz file"), path.open("rb") as file:
        archive = np.load(file, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise InputError(f"{shown(path)} is not an .npz archive: write it with numpy.savez.")
        with archive:
            present = archive.files
            for name in required:
                if name not in present:
                    raise InputError(
                        f"{shown(path)} has no array {shown(name)}, only: {listing(present) or 'none'}."
                        + did_you_mean(name, present)
                    )
            others = present if optional is None else [name for name in optional if name in present]
            arrays = {name: archive[name] for name in dict.fromkeys([*required, *others])}
            for name, array in arrays.items():
                # A member that is not an array comes back as bytes.
                if not isinstance(array, np.ndarray):
                    raise InputError(
                        f"the member {shown(name)} of {shown(path)} is not an array: write it with numpy.savez."
                    )
            return arrays


def read_parquet(path: str | Path) -> pd.DataFrame:
    """Read a ``.parquet`` file.

    Raises:
        InputError: the file is damaged or has more than ``MAX_COLUMNS`` columns, or pyarrow is not installed.
    """
    path = Path(path)
    if find_spec("pyarrow") is None:
        raise InputError(f'reading {shown(path)} needs pyarrow: run pip install "codedfl[parquet]".')
    from pyarrow import parquet

    require_file("", path)
    with refusing_damage(path, "a .parquet file"), path.open("rb") as source, parquet.ParquetFile(source) as file:
        refuse_too_many_columns(path, file.metadata.num_columns)
        table = file.read()
        # Damaged text would otherwise only show when it is looked at.
        table.validate(full=True)
        frame: pd.DataFrame = table.to_pandas()
        return frame


def refuse_too_many_columns(path: Path, columns: int) -> None:
    """Refuse a table that would take hours to read."""
    if columns > MAX_COLUMNS:
        raise InputError(
            f"{shown(path)} has {columns} columns, more than the {MAX_COLUMNS} that a table may have: leave columns out, or give "
            "the features as the array X of an .npz file."
        )


def csv_header(path: Path) -> tuple[list[str], str]:
    """Return the names in the first line of a .csv or .tsv file, and the separator: that which makes the most names.

    The file is in UTF-8, with or without a byte order mark; lines before the header may be empty.
    """
    best: list[str] = []
    separator = SEPARATORS[0]
    for candidate in SEPARATORS:
        # With the wrong separator, a wide header is a single field that exceeds the limit of the parser.
        with suppress(csv.Error), path.open(encoding="utf-8-sig", newline="") as file:
            names = next(filter(None, csv.reader(file, delimiter=candidate)), [])
            if len(names) > len(best):
                best, separator = names, candidate
    return best, separator


@contextmanager
def refusing_other_encodings(source: str | Path) -> Iterator[None]:
    """Turn what Python raises on text that is not in UTF-8 into an ``InputError``.

    Args:
        source: the file, or how messages name it.
    """
    try:
        yield
    except UnicodeDecodeError as error:
        name = shown(source) if isinstance(source, Path) else source
        raise InputError(f"{name} is not text in UTF-8: save it as UTF-8 in the program that wrote it.") from error


def plain(value: Any) -> Any:
    """Convert recursively: arrays to lists, and numbers that JSON lacks (NaN, infinities) to None."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
