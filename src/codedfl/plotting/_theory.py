"""The picture of a theory report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from codedfl.plotting._canvas import BLUE, DARK, GREEN, GREY, ORANGE, PINK, RED, new_figure, tidy, to_png
from codedfl.theory import GapBound, Knob, LimitError, LimitPoint, Reading, RoundLaw

TERMS = {
    "bias_of_code": ("bias of the coded data", RED),
    "bias_of_drift": ("bias of local steps", PINK),
    "projection": ("projection", ORANGE),
    "drift": ("drift squared", "#F0A3C8"),
    "noise": ("noise", BLUE),
    "noise_and_data": ("noise and data", "#56B4E9"),
    "arrivals": ("arrivals", GREEN),
    "device_batches": ("batches of devices", "#7FCDBB"),
    "server_batches": ("batches of the server", "#8C6BB1"),
    "label_noise": ("label noise", "#A6761D"),
    "initial_distance": ("initial distance", "#000000"),
}
"""Label and colour of every term of the corrected bound."""

KNOBS: dict[Knob, str] = {
    "noise_variance": "noise variance of a device, σ²",
    "coded_samples": "coded samples, c",
    "local_steps": "local steps, τ",
    "stragglers": "share of late devices, mean of 1 - p",
}


class TheoryPoint(Protocol):
    """The theory at one value of a parameter."""

    @property
    def value(self) -> float: ...
    @property
    def corrected(self) -> dict[str, float]: ...
    @property
    def printed(self) -> float: ...
    @property
    def floor(self) -> float: ...


class Report(Protocol):
    """The data to draw; all gaps are per sample."""

    @property
    def title(self) -> str: ...
    @property
    def rounds(self) -> int: ...
    @property
    def samples(self) -> int: ...
    @property
    def measured(self) -> list[tuple[int, float]]: ...
    @property
    def gap_at_start(self) -> float: ...
    @property
    def round(self) -> RoundLaw: ...
    @property
    def bounds(self) -> dict[Reading, GapBound]: ...
    @property
    def limit(self) -> LimitError | None: ...
    @property
    def drawn_limit(self) -> LimitPoint | None: ...
    @property
    def sensitivity(self) -> Mapping[Knob, Sequence[TheoryPoint]]: ...
    @property
    def tradeoff(self) -> Sequence[TheoryPoint]: ...


def draw_theory(report: Report) -> bytes:
    """Draw the measured gap against the bounds, the trade-off with privacy, and the terms against four parameters.

    Returns:
        A PNG file.
    """
    return to_png(theory_figure(report))


def theory_figure(report: Report) -> Figure:
    """Return the figure that `draw_theory` writes."""
    figure = new_figure(15, 9.6)
    grid = figure.add_gridspec(2, 4, height_ratios=(1.1, 1))
    _draw_gap(figure.add_subplot(grid[0, :2]), report)
    _draw_tradeoff(figure.add_subplot(grid[0, 2:]), report)
    panels: list[Axes] = []
    for column, (knob, title) in enumerate(KNOBS.items()):
        panels.append(figure.add_subplot(grid[1, column], sharey=panels[0] if panels else None))
        _draw_terms(panels[-1], report.sensitivity[knob], knob)
        panels[-1].axvline(_configured(report, knob), color=GREY, linewidth=0.8, zorder=0, label="as configured")
        panels[-1].set_xlabel(title)
        if knob == "local_steps":
            panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    panels[0].set_ylabel("terms of the corrected bound, per sample")
    # The bound explodes as devices stop arriving; its values elsewhere should remain visible.
    at_run = sum(
        report.sensitivity["noise_variance"][len(report.sensitivity["noise_variance"]) // 2].corrected.values()
    )
    panels[0].set_ylim(at_run * 1e-11, at_run * 1e3)
    for axes in figure.axes:
        tidy(axes)
        axes.set_axisbelow(True)
    named = {label: line for panel in panels for line, label in zip(*panel.get_legend_handles_labels(), strict=True)}
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=7, fontsize=9, frameon=False)
    return figure


def _draw_gap(axes: Axes, report: Report) -> None:
    rounds = np.arange(1, report.rounds + 1)
    for reading, colour, label in (
        ("corrected", RED, "Theorem 1, corrected"),
        ("printed", GREY, "Theorem 1, as printed"),
    ):
        total = report.bounds[reading].total / report.samples  # type: ignore[index]
        positive = np.where(total > 0, total, np.nan)
        axes.plot(rounds, positive, color=colour, linewidth=1.8, label=label)
    measured = np.array(report.measured)
    axes.plot(measured[:, 0], measured[:, 1], color=BLUE, linewidth=2.6, label="measured")
    drawn = report.drawn_limit
    if drawn is not None and drawn.stable and drawn.gap > 0:
        axes.axhline(
            drawn.gap / report.samples, color=BLUE, linestyle="--", linewidth=1, label="limit of this coded data"
        )
    if report.limit is not None and report.limit.total() > 0:
        axes.axhline(
            report.limit.total() / report.samples, color=DARK, linestyle=":", linewidth=1.2, label="limit as predicted"
        )
    axes.axhline(report.gap_at_start, color=GREY, linestyle="-.", linewidth=1, label="first model")
    axes.set_yscale("log")
    axes.set_xlim(0, rounds[-1])
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("rounds")
    axes.set_ylabel("optimality gap, per sample")
    _legend_below(axes)
    axes.set_title(
        f"{report.title}: gap of SCFL, measured and bounded",
        loc="left",
        fontsize=11,
        parse_math=False,
    )


def _draw_tradeoff(axes: Axes, report: Report) -> None:
    bits = [point.value for point in report.tradeoff]
    lines = (
        (RED, "-", "bound, corrected", [sum(point.corrected.values()) for point in report.tradeoff]),
        (GREY, "-", "bound, as printed", [point.printed for point in report.tradeoff]),
        (DARK, ":", "floor of the coded data, predicted", [point.floor for point in report.tradeoff]),
    )
    for colour, style, label, values in lines:
        positive = np.where(np.array(values) > 0, values, np.nan)
        axes.plot(bits, positive, style, color=colour, linewidth=1.8, label=label)
    axes.axhline(report.gap_at_start, color=GREY, linestyle="-.", linewidth=1, label="first model")
    axes.set_yscale("log")
    axes.set_xlabel("privacy budget of every device: MI-DP of an entry, bits")
    axes.set_ylabel("optimality gap, per sample")
    _legend_below(axes)
    axes.set_title("what privacy costs", loc="left", fontsize=11)


def _legend_below(axes: Axes) -> None:
    """Name the lines below their panel, where no curve can be."""
    axes.legend(fontsize=9, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=3)


def _draw_terms(axes: Axes, points: Sequence[TheoryPoint], knob: Knob) -> None:
    values = [point.value for point in points]
    for name, (label, colour) in TERMS.items():
        heights = np.array([point.corrected[name] for point in points])
        if (heights > 0).any():
            axes.plot(values, np.where(heights > 0, heights, np.nan), color=colour, linewidth=1.3, label=label)
    total = [sum(point.corrected.values()) for point in points]
    axes.plot(values, total, color=DARK, linewidth=2.4, label="corrected bound")
    axes.plot(values, [point.floor for point in points], ":", color=DARK, linewidth=1.6, label="floor, predicted")
    axes.set_yscale("log")
    if knob in ("noise_variance", "coded_samples"):
        axes.set_xscale("log")


def _configured(report: Report, knob: Knob) -> float:
    """Return the configured value of a parameter."""
    round = report.round
    values: dict[Knob, float] = {
        "noise_variance": float(np.mean(round.noise_variance)),
        "coded_samples": float(round.coded_samples),
        "local_steps": float(round.local_steps),
        "stragglers": float(np.mean(1 - round.arrival_probability)),
    }
    return values[knob]
