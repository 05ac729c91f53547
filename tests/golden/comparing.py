"""Comparison of two folders, file by file and byte by byte, apart from fields that are masked by name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from io import BytesIO
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

MOST_LINES = 20
"""Lines of a difference that are shown of each file."""

MOST_CHARACTERS = 240
"""Characters that are shown of each line."""


FAILURES = "*.failed"
"""Files with what was said by something that failed."""


@dataclass(frozen=True)
class Mask:
    """A field that is not compared.

    Args:
        files: pattern of the files that have it, as for `fnmatch`.
        field: its name: a key of JSON, an array of an archive, a term of HTML or the heading of a column of a printed table.
        why: what is in it.
    """

    files: str
    field: str
    why: str


MASKS = (
    Mask("*.json", "wall_time_s", "seconds that training took"),
    Mask("*.out", "wall_time_s", "the same, printed as JSON"),
    Mask("*.out", "wall s", "the same, printed as a table"),
    Mask("*.html", "real time", "the same, on a page"),
    Mask("*/checkpoints/*.npz", "wall_time_s", "the same, in the checkpoint of a run"),
    Mask("*/checkpoints/*.npz", "checksum", "of everything in the checkpoint, the seconds included"),
    Mask("*/paper/outcomes.json", "wall_time_of_this_sitting_s", "seconds that all figures took"),
    Mask("*-paper.out", "wall_time_of_this_sitting_s", "the same, printed"),
    Mask("*/cache/*.json", "checksum", "of a finished run of a figure, the seconds that it took included"),
)
"""Everything that may differ. Federations run on a clock that the scenario holds, so nothing of theirs is here."""


@dataclass(frozen=True)
class Difference:
    """A file that is not the same in both folders.

    Args:
        file: its path in the folders.
        first: the first difference in a few words.
        details: lines that show more.
    """

    file: str
    first: str
    details: tuple[str, ...] = ()


def files_of(folder: Path, patterns: Sequence[str] = ("*",)) -> set[str]:
    """Return the relative paths of all files in a folder whose paths match one of the patterns."""
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return {name for name in found if any(fnmatch(name, pattern) for pattern in patterns)}


def compare(
    before: Path, now: Path, patterns: Sequence[str] = ("*",), masks: Sequence[Mask] = MASKS
) -> list[Difference]:
    """Return which files of two folders differ, in the order of their names."""
    old, new = files_of(before, patterns), files_of(now, patterns)
    different = [Difference(name, "is missing now") for name in old - new]
    different += [Difference(name, "is new", _end_of_failure(now / name)) for name in new - old]
    for name in old & new:
        fields = [mask.field for mask in masks if fnmatch(f"/{name}", mask.files)]
        found = _compare_files(before / name, now / name, fields)
        if found:
            different.append(Difference(name, found[0], tuple(found[1:])))
    return sorted(different, key=lambda difference: difference.file)


def _end_of_failure(path: Path) -> tuple[str, ...]:
    """Return the last lines of what a process that failed said, where a file holds that."""
    return tuple(path.read_text(encoding="utf-8").splitlines()[-MOST_LINES:]) if path.match(FAILURES) else ()


def _compare_files(before: Path, now: Path, fields: Sequence[str]) -> list[str]:
    """Return what differs: the first difference, then lines that show more; nothing if nothing does."""
    old, new = before.read_bytes(), now.read_bytes()
    if old == new:
        return []
    if before.suffix == ".npz":
        try:
            return list(_compare_archives(old, new, fields))
        except (ValueError, OSError, BadZipFile) as error:
            return [f"is no archive ({error})"]
    try:
        texts = [_masked(raw.decode("utf-8"), before.suffix, fields) for raw in (old, new)]
    except UnicodeDecodeError:
        return [_first_byte(old, new)]
    return [] if texts[0] == texts[1] else _compare_texts(*texts)


def _compare_archives(before: bytes, now: bytes, fields: Sequence[str]) -> Iterator[str]:
    with np.load(BytesIO(before), allow_pickle=False) as old, np.load(BytesIO(now), allow_pickle=False) as new:
        for name in sorted((set(old.files) ^ set(new.files)) - set(fields)):
            yield f"array {name} is {'missing now' if name in old.files else 'new'}"
        for name in sorted((set(old.files) & set(new.files)) - set(fields)):
            a, b = old[name], new[name]
            if (a.dtype, a.shape) != (b.dtype, b.shape):
                yield f"array {name} was {a.dtype} {a.shape}, is {b.dtype} {b.shape}"
            elif a.tobytes() != b.tobytes():
                yield f"array {name}: {_first_byte(a.tobytes(), b.tobytes())}{_numbers(a, b)}"


def _numbers(a: np.ndarray, b: np.ndarray) -> str:
    """Return in how many places numbers differ, and by how much at most."""
    if a.dtype.kind not in "iuf":
        return f", was {str(a)[:80]!r}, is {str(b)[:80]!r}"
    with np.errstate(all="ignore"):
        difference = np.abs(a.astype(np.float64) - b.astype(np.float64))
    return f", {np.count_nonzero(difference)} of {a.size} numbers, by at most {np.max(difference, initial=0.0):.3g}"


def _first_byte(old: bytes, new: bytes) -> str:
    place = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    return f"differs from byte {place} on ({len(old)} bytes, now {len(new)})"


def _compare_texts(old: str, new: str) -> list[str]:
    changes = list(difflib.unified_diff(_lines(old), _lines(new), n=1, lineterm=""))[2:]
    changes = [_shortened(line, changes[i - 1], changes[(i + 1) % len(changes)]) for i, line in enumerate(changes)]
    more = [f"... {len(changes) - MOST_LINES} more lines"] if len(changes) > MOST_LINES else []
    first = next(line for line in changes if line[:1] in "+-")
    return [first, *changes[:MOST_LINES], *more]


def _lines(text: str) -> list[str]:
    """Return lines without what ends them, a carriage return before that being part of the line; of a page, its elements."""
    return re.split("(?=<)", text) if "</html>" in text else text.split("\n")


def _shortened(line: str, before: str, after: str) -> str:
    """Return a changed line from a little before the place where it differs from the one that replaces it, if it is long."""
    other = {"-": after, "+": before}.get(line[:1], "")
    if len(line) <= MOST_CHARACTERS or other[:1] not in "-+":
        return line[:MOST_CHARACTERS]
    same = next((i for i, (a, b) in enumerate(zip(line[1:], other[1:], strict=False)) if a != b), 0)
    start = max(same - 60, 0)
    return f"{line[0]}{'...' if start else ''}{line[1:][start : start + MOST_CHARACTERS]}"


def _masked(text: str, suffix: str, fields: Sequence[str]) -> str:
    """Return a text with the values of some fields replaced."""
    for field in fields:
        name = re.escape(field)
        text = re.sub(rf'("{name}": ?)("[^"]*"|[-+.0-9eE]+)', r'\1"masked"', text)
        if suffix == ".html":
            text = re.sub(rf"(<dt>{name}</dt>\s*<dd>)[^<]*", r"\1masked", text)
        if suffix == ".out":
            text = _without_column(text, field)
    return text


def _without_column(text: str, heading: str) -> str:
    """Return printed tables without the cells of a column, which end where its heading does."""
    lines, start, end = text.splitlines(keepends=True), 0, 0
    for i, line in enumerate(lines):
        if heading in line:
            end = line.index(heading) + len(heading)
            start = end - len(heading)
        elif end and len(line.rstrip()) != end:
            end = 0  # the table is over
        elif end:
            lines[i] = f"{line[:start]}{'#' * len(heading)}{line[end:]}"
    return "".join(lines)
