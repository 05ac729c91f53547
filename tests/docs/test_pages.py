"""Tutorials do what they show, and the helper that runs them notices if they do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import DOCS, Step, cells, commands, runnable_pages
from tests.docs.running import prepared, run_cells, run_command
from tests.docs.write import replaced

PAGES = pytest.mark.parametrize("page", runnable_pages(), ids=lambda page: str(page.relative_to(DOCS)))


@pytest.mark.slow
@PAGES
def test_a_page_prints_what_it_shows(page: Path, tmp_path: Path) -> None:
    folder = prepared(tmp_path)
    for step in commands(page):
        assert not (problem := step.differs(run_command(step.code, folder))), problem
    if steps := cells(page):
        for step, printed in zip(steps, run_cells(steps, folder), strict=True):
            assert not (problem := step.differs(printed)), problem


def test_there_are_pages_that_run() -> None:
    assert {page.name for page in runnable_pages()} >= {"twelve-hospitals.md", "arrays.md"}
    for page in runnable_pages():
        assert commands(page) + cells(page), f"{page.name} is marked as runnable, and there is nothing to run"


PAGE = """
<!-- varies: \\d+ s -->
```console
$ echo one \\
    two
one two
$ printf '1\\n2\\n3\\n'
1
...
3
$ echo took 3 s
took 4 s
```

```python
1 + 1
```

```text
2
```

```python
x = 1
```
"""


def test_a_page_is_read_as_written(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    first, second, third = commands(page)
    assert first.code == "echo one \\\n    two"
    assert (first.shown, second.shown, third.shown) == ("one two\n", "1\n...\n3\n", "took 4 s")
    assert [(cell.code, cell.shown) for cell in cells(page)] == [("1 + 1", "2"), ("x = 1", None)]
    for step in (first, second, third):
        assert step.differs(run_command(step.code, tmp_path)) == ""


@pytest.mark.parametrize(
    ("shown", "printed", "agrees"),
    [
        ("a\nb", "a\nb\n", True),
        ("a\n...\nd", "a\nb\nc\nd", True),
        ("...", "", True),
        ("took 3 s", "took 41 s", True),
        ("a", "b", False),
        ("a", "a\nb", False),
        ("a\nb", "a", False),
        ("a\n...\nd", "a\nb", False),
        ("took 3 s", "took long", False),
    ],
)
def test_what_differs_is_found(shown: str, printed: str, agrees: bool) -> None:
    assert (Step(1, "command", shown, [r"\d+ s"]).differs(printed) == "") is agrees


def test_a_command_that_fails_fails_the_page(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="no such word"):
        run_command("echo no such word >&2; exit 3", tmp_path)


def test_what_differs_is_written_in_its_place(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ cat a\n$ cat b\nold\n$ cat a\n1\n```\n```python\nb\n```\n\n```text\nold\n```\n")
    first, second, _ = commands(page)
    text = replaced(page.read_text(), second, "new\nlines\n")
    assert text == page.read_text().replace("$ cat b\nold\n", "$ cat b\nnew\nlines\n")
    assert "$ cat a\n1  2\n$ cat b" in replaced(page.read_text(), first, "1  2 \n")
    (cell,) = cells(page)
    assert replaced(page.read_text(), cell, "new").endswith("```text\nnew\n```\n")
    page.write_text("```python\nb\n```\n\n```text\n```\n")
    (cell,) = cells(page)
    assert replaced(page.read_text(), cell, "new") == "```python\nb\n```\n\n```text\nnew\n```\n"
