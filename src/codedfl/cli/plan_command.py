"""``codedfl plan``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from codedfl.cli.options import Json, Settings, configurable


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
    from codedfl.cli.plan_tables import print_plan
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
