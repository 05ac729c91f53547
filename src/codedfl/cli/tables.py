"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from rich.table import Table
from rich.text import Text

from codedfl.cli.privacy_tables import number
from codedfl.cli.style import new_table
from codedfl.data import DatasetStatus, DeviceSummary
from codedfl.experiment import Comparison
from codedfl.experiment._privacy_summary import clipped_share, privacy_of
from codedfl.experiment._summary import SHARES, time_to_share
from codedfl.schemes import SCHEMES, make_scheme
from codedfl.schemes._table import COLUMNS, describe
from codedfl.training import RunResult

MOST_DEVICES = 40
"""Devices that are listed one by one."""

HARDLY_EVER = 1e-3
"""An arrival probability below which a device deserves a note."""


def results_table(comparison: Comparison) -> Table:
    """Return the table that a run ends with; it fits a terminal of 80 columns."""
    reference, metric = comparison.evaluator.reference, comparison.evaluator.metric
    title = f"{comparison.config.data.dataset}: " + (
        f"the centralised optimum has {metric} {reference.score:.4f}" if reference else "no centralised reference"
    )
    table = new_table(
        title,
        "to 90%/95%: simulated seconds until that share of the centralised score; charged: simulated seconds"
        " with encoding and coded upload; MI-DP: bits for an entry of the coded features, for all data",
    )
    table.add_column("scheme", no_wrap=True)
    times = [f"to {share}%" for share in SHARES]
    for name in (metric, *times, "arrive", "MB up", "charged", "MI-DP", "wall s"):
        table.add_column(name, justify="right", no_wrap=True)
    best = max((result.final.score for result in comparison.results if _usable(result)), default=0.0)
    for result in comparison.results:
        table.add_row(*_result_row(comparison, result), style="bold" if _is_best(result, best) else "")
    return table


def _result_row(comparison: Comparison, result: RunResult) -> list[str]:
    final, bits = result.final, privacy_of(result, comparison.config.privacy.delta)["mi_dp_bits"]
    times = [time_to_share(comparison, result, share) for share in SHARES]
    return [
        result.scheme.title,
        f"{final.score:.4f}" if _usable(result) else "diverged",
        *("never" if seconds is None else f"{seconds:.0f}" for seconds in times),
        f"{final.mean_arrivals:.1f}",
        f"{final.bytes_up / 1e6:.1f}",
        f"{final.everything_charged_s:.0f}",
        "-" if bits is None else f"{bits:.2f}",
        f"{result.progress.wall_time_s:.1f}",
    ]


def _usable(result: RunResult) -> bool:
    return result.status != "diverged"


def _is_best(result: RunResult, best: float) -> bool:
    return _usable(result) and result.final.score == best


def devices_table(comparison: Comparison) -> Table:
    """Return who holds which data and how often each device makes the deadline with its smallest batch."""
    setting = comparison.setting
    probability = setting.timing().arrival_probability(1)
    summaries = setting.federation.describe()
    table = new_table(f"devices ({setting.channel.bandwidth_hz / 1e3:.1f} kHz each)")
    table.add_column("device")
    table.add_column("samples", justify="right")
    table.add_column("classes: samples" if setting.federation.task == "classification" else "")
    table.add_column("power dBm", justify="right")
    table.add_column("arrives", justify="right")
    for i, device in enumerate(summaries[:MOST_DEVICES]):
        table.add_row(
            Text(device.name),
            str(device.samples),
            Text(_classes(device)),
            f"{setting.fleet.transmit_power_dbm[i]:.1f}",
            f"{probability[i]:.2f}",
        )
    if len(summaries) > MOST_DEVICES:
        table.add_row(f"and {len(summaries) - MOST_DEVICES} more", "", "", "", "")
    return table


def _classes(device: DeviceSummary) -> str:
    shown = [f"{name}: {count}" for name, count in list(device.classes.items())[:6]]
    return ", ".join(shown) + (", ..." if len(device.classes) > 6 else "")


def warnings_of(comparison: Comparison) -> list[str]:
    """Return, in plain words, what a reader of the table should know."""
    notes = []
    for rare, titles in _rare_devices(comparison).items():
        notes.append(
            f"in {', '.join(titles)}, {_listed(rare)} hardly ever make the deadline: only coded data, if any, stands in for them."
        )
    notes += _incentive_notes(comparison) + _privacy_notes(comparison)
    if any(result.choice for result in comparison.results):
        chosen = ", ".join(f"{result.scheme.title} {result.scale:g}" for result in comparison.results)
        notes.append(f"step sizes, in units of 1 / L, chosen on held-out training data: {chosen}.")
    for result in comparison.results:
        if result.message:
            notes.append(f"{result.scheme.title} {result.message}.")
        if result.choice and result.choice.at_edge and len(result.choice.trials) > 1:
            notes.append(
                f"{result.scheme.title} did best with the step size {result.scale:g} / L at the edge of learning_rate.grid:"
                " a wider grid might do better."
            )
    return notes


def _incentive_notes(comparison: Comparison) -> list[str]:
    """Return what an incentive mechanism bought."""
    incentive, code = comparison.config.incentive, comparison.setting.code
    if incentive.mechanism == "none":
        return []
    noise = code.noise_variance[code.uploading]
    return [
        f"{incentive.mechanism} with a total reward of {incentive.total_reward:g}: {noise.size} of {code.uploading.size} devices"
        f" upload, with noise variances from {noise.min():.4g} to {noise.max():.4g}, {noise.sum():.4g} in total."
    ]


def _privacy_notes(comparison: Comparison) -> list[str]:
    """Return what clipping did and which worst-case guarantee it buys; nothing without clipping."""
    code, delta = comparison.setting.code, comparison.config.privacy.delta
    if code.clip_norm is None:
        return []
    notes = [
        f"clipping to norm {code.clip_norm:g} weighted {clipped_share(comparison.setting):.0%} of the samples down."
    ]
    budgets = {result.scheme.title: privacy_of(result, delta) for result in comparison.results}
    epsilons = [
        f"{title} {', '.join(number(budget[name]) for name in ('epsilon_features', 'epsilon', 'epsilon_in_sum'))}"
        for title, budget in budgets.items()
        if budget["epsilon"] is not None
    ]
    if epsilons:
        notes.append(
            f"worst-case epsilon at delta = {delta:g} of the coded features, of features and labels, and of both if the server"
            f" sees only the sum (training not covered): {'; '.join(epsilons)}."
        )
    return notes


def _rare_devices(comparison: Comparison) -> dict[tuple[str, ...], list[str]]:
    """Return which devices hardly ever arrive, and in which schemes."""
    names = comparison.setting.federation.device_names
    found: dict[tuple[str, ...], list[str]] = {}
    for result in comparison.results:
        plan = result.prepared.device
        rare = tuple(names[i] for i in np.flatnonzero(plan.arrivals.probability < HARDLY_EVER))
        if rare and plan.broadcasts:
            found.setdefault(rare, []).append(result.scheme.title)
    return found


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def datasets_table(found: Iterable[DatasetStatus]) -> Table:
    """Return the named datasets and where they are."""
    table = Table()
    for name in ("dataset", "available", "where", "what"):
        table.add_column(name, overflow="fold")
    for status in found:
        available = Text("yes", style="green") if status.available else Text("no", style="red")
        where = status.location if status.available else f"{status.location}: {status.hint}"
        table.add_row(status.name, available, Text(where), status.description)
    return table


def schemes_table() -> Table:
    """Return Table I of the paper as it stands in the code."""
    rows = [[cell.strip("`") for cell in describe(make_scheme(name))] for name in SCHEMES]
    table = new_table()
    for name, cells in zip(COLUMNS, zip(*rows, strict=True), strict=True):
        longest_word = max(len(word) for cell in (name, *cells) for word in cell.split())
        table.add_column(name, width=None if "each round" in name else longest_word)
    for row in rows:
        table.add_row(*row)
    return table
