"""Pages that run: their commands and their Python code are executed in order, and must print what the page shows.

A page takes part if it has the comment ``<!-- runnable -->``. Then

- in a block ``console`` every line after ``$`` is a command of the shell (a line that ends in a backslash continues on the next),
  and the lines up to the next command are what it prints to standard output;
- a block ``python`` is a cell of a notebook, and a block ``text`` right after it is what the cell prints or returns;
- a block ``text`` that does not follow a block ``python`` is not looked at;
- the line ``...`` stands for any number of lines;
- ``<!-- varies: PATTERN -->`` before a block makes what matches the regular expression equal to whatever else matches it: only
  for what depends on the machine, such as seconds and dates.

``python -m tests.docs.write PAGE`` runs a page and writes what differs into it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MARK = "<!-- runnable -->"


@dataclass(frozen=True)
class Step:
    """A command or a cell, and what it prints.

    Args:
        line: where it is on the page.
        code: what to execute.
        shown: what it prints according to the page; None if the page does not say.
        varies: patterns of what depends on the machine.
    """

    line: int
    code: str
    shown: str | None
    varies: Sequence[str] = field(default=())

    def differs(self, printed: str) -> str:
        """Return what is wrong with what was printed, empty if nothing is."""
        if self.shown is None or _matches(self._lines(self.shown), self._lines(printed)):
            return ""
        return f"line {self.line}: {self.code}\n--- the page shows\n{self.shown}\n--- printed\n{printed}"

    def _lines(self, text: str) -> list[str]:
        for pattern in self.varies:
            text = re.sub(pattern, "(varies)", text, flags=re.MULTILINE)
        return [line.rstrip() for line in text.strip("\n").splitlines()]


def runnable_pages() -> list[Path]:
    """Return all pages that take part."""
    return [page for page in sorted(DOCS.rglob("*.md")) if MARK in page.read_text(encoding="utf-8")]


def blocks(page: Path) -> Iterator[tuple[int, str, str, list[str]]]:
    """Return line, language, content and varying patterns of every fenced block of a page."""
    varies: list[str] = []
    language: str | None = None
    start, content = 0, list[str]()
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if language is None:
            if found := re.fullmatch(r"<!-- varies: (.*) -->", line.strip()):
                varies.append(found[1])
            elif line.startswith("```"):
                language, start, content = line[3:].strip(), number, []
        elif line.startswith("```"):
            yield start, language, "\n".join(content), varies
            language, varies = None, []
        else:
            content.append(line)


def commands(page: Path) -> list[Step]:
    """Return the commands of all ``console`` blocks in their order."""
    found = []
    for line, language, content, varies in blocks(page):
        if language == "console":
            for part in re.split(r"^\$ ", content, flags=re.MULTILINE)[1:]:
                code, shown = re.fullmatch(r"((?:.*\\\n)*.*)\n?((?s:.*))", part).groups()  # type: ignore[union-attr]
                found.append(Step(line, code, shown, tuple(varies)))
    return found


def cells(page: Path) -> list[Step]:
    """Return the cells: ``python`` blocks, each with the ``text`` block that follows it."""
    found: list[Step] = []
    before = ""
    for line, language, content, varies in blocks(page):
        if language == "python":
            found.append(Step(line, content, None))
        elif language == "text" and before == "python":
            found[-1] = Step(found[-1].line, found[-1].code, content, tuple(varies))
        before = language
    return found


def _matches(shown: list[str], printed: list[str]) -> bool:
    """Whether lines agree, with ``...`` for any number of lines."""
    if not shown:
        return not printed
    if shown[0].strip() == "...":
        return any(_matches(shown[1:], printed[place:]) for place in range(len(printed) + 1))
    return bool(printed) and shown[0] == printed[0] and _matches(shown[1:], printed[1:])
