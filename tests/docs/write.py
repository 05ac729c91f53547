"""Writes into pages what their commands and cells print: ``python -m tests.docs.write docs/tutorials/arrays.md``."""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from tests.docs.pages import Step, cells, commands
from tests.docs.running import prepared, run_cells, run_command


def rewrite(page: Path) -> int:
    """Run a page and replace what it shows where something else is printed; return the number of places."""
    with tempfile.TemporaryDirectory() as name:
        folder = prepared(Path(name))
        ran = [(step, run_command(step.code, folder)) for step in commands(page)]
        steps = cells(page)
        ran += list(zip(steps, run_cells(steps, folder) if steps else [], strict=True))
    wrong = [(step, printed) for step, printed in ran if step.differs(printed)]
    text = page.read_text(encoding="utf-8")
    for step, printed in sorted(wrong, key=lambda pair: pair[0].line)[
        ::-1
    ]:  # from the end, so that lines keep their numbers
        text = replaced(text, step, printed)
    page.write_text(text, encoding="utf-8")
    return len(wrong)


def replaced(text: str, step: Step, printed: str) -> str:
    """Return the text of a page with something else shown after a step."""
    start = sum(len(line) + 1 for line in text.splitlines()[: step.line - 1])
    after_code = text.index(step.code, start) + len(step.code)
    shown = (step.shown or "").rstrip("\n")
    if shown:
        place = text.index(shown, after_code)
    else:  # of a cell, after the line that opens its block of text
        place = len((re.match(r"\n(```\n\s*```text\n)?", text[after_code:]) or [""])[0]) + after_code
    lines = "\n".join(line.rstrip() for line in printed.rstrip("\n").splitlines())
    return text[:place] + lines + ("" if shown else "\n") + text[place + len(shown) :]


if __name__ == "__main__":
    for each in map(Path, sys.argv[1:]):
        print(f"{each}: {rewrite(each)} places were written")
