"""``codedfl plan``: the choice, the table of all schemes, and what became of a prediction."""

from __future__ import annotations

import json
import math
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from codedfl.cli.options import Json, Settings, configurable

if TYPE_CHECKING:
    from codedfl.planning import Forecast, Outcome, Plan

CAPTION = (
    "time: simulated seconds to the target, everything charged, and their likely range (one standard error of the rows that"
    " models are scored on, and an allowance for what the model of training leaves out); prepare: the part before the"
    " first round; ends: points below the centralised score"
)


@configurable(
    *("scheme", "dataset", "target", "device_column", "drop", "task", "devices", "tau"),
    *("coded_samples", "noise_variance", "clip_norm", "seed", "data_dir", "trace"),
)
def plan(
    settings: Settings,
    *,
    within: Annotated[
        float | None,
        typer.Option(
            help="Points of accuracy (hundredths of R2) below the centralised score to get within.", show_default="0.5"
        ),
    ] = None,
    time: Annotated[
        float | None,
        typer.Option(help="Ask instead which scheme is closest to the optimum after this many simulated seconds."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the plan to this TOML file, for `codedfl run --plan`.", show_default="print only"),
    ] = None,
    json_: Json = False,
) -> None:
    """Predict which scheme reaches a target first, and why not the others, without training.

    Example: codedfl plan --within 1 --out plan.toml
    """
    from codedfl._progress_display import ProgressDisplay
    from codedfl.cli.outputs import require_writable
    from codedfl.errors import InputError
    from codedfl.files import write_atomically
    from codedfl.planning import Target, make_plan, plan_to_toml

    if within is not None and time is not None:
        raise InputError("--within and --time exclude each other: give one of them.")
    target = Target(Target.within if within is None else within, time)
    if out is not None:
        require_writable("--out", out)
    config = settings.load()
    with ProgressDisplay(Console(stderr=True), verbose=not json_) as display:
        settings.tell_preset(display)
        made = make_plan(config, target, progress=display)
    if out is not None:
        write_atomically(out, plan_to_toml(made))
    if json_:
        print(json.dumps(made.as_dict()))
    else:
        print_plan(made, out, Console())


def print_plan(plan: Plan, out: Path | None, console: Console) -> None:
    """Print the choice, the table of all schemes, and why not the others."""
    for line in choice_lines(plan):
        console.print(Text(line), soft_wrap=True)
    console.print(forecasts_table(plan))
    for each in plan.forecasts:
        if each.reason:
            console.print(Text(f"not {each.title}: {each.reason}"), soft_wrap=True)
    if out is not None:
        console.print(Text(f"run it: codedfl run --plan {quote(str(out))}"), soft_wrap=True)


def choice_lines(plan: Plan) -> list[str]:
    """Describe the plan in words."""
    choice, target = plan.choice, plan.target
    if choice is None:
        return ["no scheme can be planned for in this setting"]
    unit = "points" if plan.metric == "accuracy" else "hundredths of R2"
    if target.time_s is not None:
        aim = f"closest to the optimum after {target.time_s:g} s: {choice.below_in_time:.2f} {unit} below"
    elif choice.time_s is None:
        aim = f"nothing gets within {target.within:g} {unit}; closest: {choice.best_below:.2f} below"
    else:
        aim = f"within {target.within:g} {unit} of the centralised optimum in {_seconds(choice.time_s)} s"
        aim += f" ({_range(choice)} s)"
    lines = [f"plan: {choice.title}, {aim}"]
    if choice.one_shot:
        lines.append("rounds: none")
    else:
        step = "chosen by the scheme" if choice.step_size_scale is None else f"{choice.step_size_scale:g} / L"
        count = "" if choice.rounds is None else f"{choice.rounds} "
        lines.append(
            f"rounds: {count}of {choice.round_s:.3g} s, {choice.arrivals:.1f} arrivals each, {choice.local_steps} step(s) on"
            f" batches of about {choice.batch:.0f}, step size {step}"
        )
    lines.append(f"upload: {_upload(choice)}")
    lines.append(f"privacy of the upload: {_privacy(choice)}")
    if choice.bytes_up is not None:
        lines.append(f"bytes up to the target: {choice.bytes_up / 1e6:.3g} MB")
    return lines


def forecasts_table(plan: Plan) -> Table:
    """Return the table of all forecasts; it fits a terminal of 80 columns."""
    from codedfl.cli.tables import new_table

    title = (
        f"{plan.config.data.dataset}: centralised {plan.metric} {plan.centralised:.4f} on {plan.held_out} held-out rows"
    )
    table = new_table(title, CAPTION)
    table.add_column("scheme", no_wrap=True)
    names = ["time", "likely", "prepare", "arrive", "T", "MB up", "ends"]
    if plan.target.time_s is not None:
        names.append("by then")
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for each in plan.forecasts:
        table.add_row(*_row(each, plan), style="bold" if each.scheme == plan.chosen else "")
    return table


def outcome_lines(outcome: Outcome) -> list[str]:
    """Describe a prediction and what became of it."""
    promise = outcome.promise
    if promise.time_s is None:
        predicted = f"not to get within {promise.within:g} points"
    else:
        likely = (
            f"{_seconds(promise.low_s or 0.0)} to {'never' if promise.high_s is None else _seconds(promise.high_s)}"
        )
        predicted = f"within {promise.within:g} points after {_seconds(promise.time_s)} s ({likely})"
    measured = "never in this run" if outcome.measured_s is None else f"after {_seconds(outcome.measured_s)} s"
    verdict = "as predicted" if outcome.in_interval else "outside of the range predicted"
    return [f"predicted: {predicted}", f"measured: {measured}, {verdict}"]


def _row(each: Forecast, plan: Plan) -> list[str]:
    if each.status == "impossible":
        return [each.title, "impossible", *[""] * (6 + (plan.target.time_s is not None))]
    end = each.best_below if each.end_below is None else each.end_below
    cells = [
        each.title,
        "never" if each.time_s is None else _seconds(each.time_s),
        _range(each),
        _seconds(each.preparation_total_s),
        f"{each.arrivals:.1f}",
        f"{each.round_s:.3g}",
        "-" if each.bytes_up is None else f"{each.bytes_up / 1e6:.3g}",
        "diverges" if each.end_below is None else f"{end:.2f}",
    ]
    if plan.target.time_s is not None:
        cells.append("-" if each.below_in_time is None else f"{each.below_in_time:.2f}")
    return cells


def _range(each: Forecast) -> str:
    if each.low_s is None:
        return "-"
    return f"{_seconds(each.low_s)} to {'never' if each.high_s is None else _seconds(each.high_s)}"


def _upload(each: Forecast) -> str:
    if each.upload_bytes == 0:
        return "none"
    size = f", {each.coded_rows} rows" if each.coded_rows is not None else ""
    size += f", rank {each.rank}" if each.rank is not None else ""
    parts = each.preparation_s
    return (
        f"{each.upload}{size}, {each.upload_bytes / 1e6:.3g} MB in all; {_seconds(parts['total'])} s before the first round"
        f" (encoding {_seconds(parts['encoding'])}, upload {_seconds(parts['upload'])}, server {_seconds(parts['server'])})"
    )


def _privacy(each: Forecast) -> str:
    bits = each.privacy.get("mi_dp_bits")
    meaning = str(each.privacy.get("mi_dp", ""))
    if bits is None or math.isinf(bits):
        return meaning
    epsilon = each.privacy["epsilon"]
    worst = "" if math.isinf(epsilon) else f"; worst-case epsilon {epsilon:.3g}"
    return f"MI-DP {bits:.3g} bits ({meaning}){worst}"


def _seconds(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
