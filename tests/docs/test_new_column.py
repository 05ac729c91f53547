"""The worked example of docs/architecture.md: a new column is a change of one file."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import pytest

from codedfl.cli.tables import results_table
from codedfl.experiment import Comparison, RunFolder, run
from codedfl.report import read_runs, render_page
from codedfl.results import VIEWS, Column, SweepResults, _columns, summarise
from tests.cli.test_tables import text_of
from tests.support import small_config

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
SECTION = re.compile(r"^## A new column in one file$(.*?)^## ", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return run(small_config(schemes=["fedavg", "scfl"]))


@pytest.fixture
def column(monkeypatch: pytest.MonkeyPatch) -> Column:
    """Add the column as the page tells: its declaration, and a place at the end of four lists."""
    (section,) = SECTION.findall(PAGE.read_text(encoding="utf-8"))
    (declaration,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    names: dict[str, Any] = dict(vars(_columns))
    exec(declaration, names)
    column: Column = names["BYTES_DOWN"]
    views = re.findall(r'`"([^`]+)"`', section)
    assert views == ["terminal", "notebook", "page", "sweep.csv"]
    for view in views:
        monkeypatch.setitem(VIEWS, view, (*VIEWS[view], column))
    return column


def downloaded(comparison: Comparison) -> list[float]:
    return [float(scheme["bytes_down"]) for scheme in summarise(comparison)["schemes"]]


def test_it_is_in_the_table_of_the_terminal(comparison: Comparison, column: Column) -> None:
    heading, _, *rows = text_of(results_table(comparison), width=120).splitlines()[1:5]
    assert heading.endswith(" MB down")
    assert [row.split()[-1] for row in rows] == [column.text(value) for value in downloaded(comparison)]


def test_it_is_in_the_notebook(comparison: Comparison, column: Column) -> None:
    html = comparison._repr_html_()
    assert ">MB down</th>" in html
    assert all(f">{column.text(value)}</td></tr>" in html for value in downloaded(comparison))


def test_it_is_on_the_page_with_the_least_marked(
    comparison: Comparison, column: Column, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("codedfl.experiment._run_folder.curves_png", lambda *_: b"no picture")
    RunFolder.create(tmp_path / "run", comparison.config).write_results(comparison)
    page = render_page(read_runs([tmp_path / "run"]))
    cells = re.findall(r'data-label="MB down">(.*?)</td>', page)
    values = downloaded(comparison)
    assert [re.sub("<.*?>", "", cell) for cell in cells] == [column.words(value) for value in values]
    assert ["best" in cell for cell in cells] == [value == min(values) for value in values]


def test_it_is_in_the_csv_file_of_a_sweep(comparison: Comparison, column: Column) -> None:
    results = SweepResults.of({"seed": [0]}, [("001", {"seed": 0}, summarise(comparison))], 1)
    rows = list(csv.DictReader(io.StringIO(results.to_csv())))
    assert [float(row[column.name]) for row in rows] == downloaded(comparison)
