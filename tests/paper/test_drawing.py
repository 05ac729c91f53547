from __future__ import annotations

from typing import Literal
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from codedfl.paper import FIGURES, Scope
from codedfl.paper._drawing import Axis, line_figure
from codedfl.paper._reproduce import to_svg
from codedfl.paper._tables import summary_table
from codedfl.plotting import to_png
from tests.paper.made_up import made_up, points
from tests.plotting.pictures import assert_readable
from tests.support import mostly_slow

DRAWN = [name for name, figure in FIGURES.items() if figure.draw]


def drawn(name: str, scope: Scope) -> Figure:
    figure = made_up(FIGURES[name], scope, lambda run: 0.7 + 0.01 * len(run.series)).draw()
    assert figure is not None
    return figure


def labels(figure: Figure) -> list[list[str]]:
    return [axes.get_legend_handles_labels()[1] for axes in figure.axes]


def values(line: Line2D, axis: Literal["x", "y"]) -> list[float]:
    data: list[float] = np.asarray(line.get_xdata() if axis == "x" else line.get_ydata(), float).tolist()
    return data


def test_every_figure_is_drawn_and_no_table() -> None:
    assert set(FIGURES) - set(DRAWN) == {"table-lambda", "table-schemes", "overhead"}


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow(DRAWN, "fig-coded-samples"))
def test_the_same_tables_give_the_same_png_and_svg(name: str) -> None:
    figures = [drawn(name, Scope(quick=True, seeds=(0, 1))) for _ in range(2)]
    (png, svg), again = ((to_png(figure), to_svg(figure)) for figure in figures)
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert (png, svg) == again


@pytest.mark.parametrize("name", mostly_slow(DRAWN, "fig-tau"))
def test_the_full_version_is_drawn_with_lines_that_can_be_told_apart(name: str) -> None:
    figure = drawn(name, Scope(seeds=(0, 1)))
    assert ElementTree.fromstring(to_svg(figure)).tag.endswith("svg")
    assert all(labels(figure))
    for axes in figure.axes:
        assert axes.get_xlabel()
        assert axes.get_ylabel()


@pytest.mark.slow
def test_a_single_seed_can_be_drawn() -> None:
    assert to_png(drawn("fig-convergence", Scope(quick=True, seeds=(0,)))).startswith(b"\x89PNG")


def test_runs_that_only_guess_can_be_drawn_beside_their_limits() -> None:
    figure = made_up(FIGURES["limits"], Scope(quick=True, seeds=(0, 1)), lambda _: 0.1, protection=-1.0).draw()
    assert figure is not None
    low, high = figure.axes[0].get_ylim()
    assert low < 0.1 < high < 0.2


def test_what_guesses_is_left_out_of_a_scale_that_others_need() -> None:
    figure = made_up(FIGURES["limits"], Scope(quick=True), lambda run: 0.1 if run.x < 5 else 0.9).draw()
    assert figure is not None
    assert figure.axes[0].get_ylim()[0] > 0.8


@pytest.mark.slow
def test_there_is_a_panel_for_each_task_with_a_line_for_each_series() -> None:
    figure = drawn("fig-tradeoff", Scope(seeds=(0, 1)))
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["MNIST", "CIFAR-10"]
    assert labels(figure) == [["SCFL", "DP-CFL", "CodedFedL"]] * 2


@pytest.mark.slow
def test_curves_are_drawn_on_both_clocks() -> None:
    figure = drawn("fig-convergence", Scope(seeds=(0, 1)))
    assert len(figure.axes) == 4
    paper, charged = figure.axes[0], figure.axes[2]
    assert values(paper.get_lines()[0], "x") == [0.0, 10.0, 20.0, 30.0, 40.0]
    assert values(charged.get_lines()[0], "x") == [3.0, 13.0, 23.0, 33.0, 43.0]


def test_points_are_connected_from_left_to_right_with_their_means() -> None:
    tables = points({("a", 4.0): (0.7, 0.9), ("a", 1.0): (0.5, 0.5), ("b", 1.0): (0.1, 0.3)})
    figure = line_figure(Axis("places", logarithmic=True))({"summary": summary_table(tables["points"])})
    (axes,) = figure.axes
    a, b = axes.get_lines()
    assert values(a, "x") == [1.0, 4.0]
    assert values(a, "y") == pytest.approx([0.5, 0.8])
    assert values(b, "y") == pytest.approx([0.2])
    assert a.get_color() != b.get_color()
    assert (axes.get_xlabel(), axes.get_xscale()) == ("places", "log")
    low, high = axes.get_ylim()
    assert low < 0.2 < 0.8 < high


def test_a_line_without_any_rise_can_be_drawn() -> None:
    row = {"panel": "mnist", "series": "SCFL", "x": 0.3, "mean": 0.9, "low": 0.9, "high": 0.9}
    figure = line_figure(Axis("share", percent=True))({"summary": pd.DataFrame([row])})
    to_png(figure)
    (axes,) = figure.axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["30%"]


@pytest.mark.parametrize("name", mostly_slow(DRAWN, "fig-coded-samples"))
def test_legends_are_off_the_curves_and_say_what_bands_are(name: str) -> None:
    figure = made_up(FIGURES[name], Scope(seeds=(0, 1)), lambda run: 0.7 + 0.01 * len(run.series)).draw()
    assert figure is not None
    assert_readable(figure)
    (legend,) = figure.legends
    texts = [text.get_text() for text in legend.get_texts()]
    assert len(texts) == len(set(texts))
    bands = [band for axes in figure.axes for band in axes.collections]
    heights = [np.ptp(np.asarray(path.vertices)[:, 1]) for band in bands for path in band.get_paths()]
    assert ("band: 95% interval over 2 seeds" in texts) == (max(heights, default=0.0) > 1e-9)


def test_a_band_of_no_width_is_not_explained() -> None:
    tables = points({("a", 1.0): (0.5, 0.5), ("a", 2.0): (0.7, 0.7)})
    figure = line_figure(Axis("places", whole=True))({"summary": summary_table(tables["points"])})
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a"]
    assert figure.axes[0].get_xticks().tolist() == [1.0, 2.0]
