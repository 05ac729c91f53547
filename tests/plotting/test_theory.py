from __future__ import annotations

import pytest

from codedfl.audits import TheoryReport, run_theory
from codedfl.plotting._theory import theory_figure
from tests.plotting.pictures import assert_readable
from tests.support import small_config


@pytest.fixture(scope="module")
def report() -> TheoryReport:
    return run_theory(small_config())


@pytest.mark.slow
def test_every_line_is_named_where_no_curve_is(report: TheoryReport) -> None:
    figure = theory_figure(report)
    assert_readable(figure)
    named = {text.get_text() for text in figure.legends[0].get_texts()}
    assert {"corrected bound", "floor, predicted", "as configured"} <= named
    assert "label noise" not in named, "there is none"
