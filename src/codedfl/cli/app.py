"""The commands. What they need is imported inside them, so that help appears at once."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from codedfl._version import __version__

app = typer.Typer(
    name="codedfl",
    help="Coded federated learning: train on time although devices straggle.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"codedfl {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...


@app.command()
def run(
    config: Annotated[
        Path | None, typer.Argument(help="A TOML file; without one, the embedded default.", show_default=False)
    ] = None,
    scheme: Annotated[
        list[str] | None, typer.Option(help="Scheme to train; repeat for several.", show_default="all")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Named dataset, or a .npz, .csv or .parquet file.", show_default="digits")
    ] = None,
    target: Annotated[list[str] | None, typer.Option(help="Target column of an own file; repeat for several.")] = None,
    devices: Annotated[int | None, typer.Option(help="Number of devices.", show_default="20")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of every scheme (instead of a total time).")] = None,
    total_time: Annotated[
        float | None, typer.Option(help="Simulated training time in seconds.", show_default="400")
    ] = None,
    tau: Annotated[int | None, typer.Option(help="Local steps in a round.", show_default="5")] = None,
    coded_samples: Annotated[
        int | None, typer.Option(help="Coded samples c of each device.", show_default="1000")
    ] = None,
    noise_variance: Annotated[
        float | None, typer.Option(help="Noise variance of each device.", show_default="0.1")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all randomness.", show_default="0")] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with the named datasets.", show_default="$CODEDFL_DATA or ./data")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder.", show_default="a new one in runs/")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in --out, or with the latest in runs/.")
    ] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Any other field of the configuration."),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the summary as one JSON object.")] = False,
) -> None:
    """Train schemes side by side in one setting; print a table and write a run folder with a picture."""
    from codedfl.cli.runs import latest_run, new_run_path, print_comparison, run_with_progress
    from codedfl.errors import InputError
    from codedfl.experiment import RunFolder, load_config, parse_override, summarise

    shortcuts: dict[str, Any] = {
        "schemes": scheme,
        "data.dataset": dataset,
        "data.target": target,
        "data.devices": devices,
        "training.rounds": rounds,
        "training.total_time_s": total_time,
        "training.local_steps": tau,
        "coding.coded_samples": coded_samples,
        "coding.noise_variance": noise_variance,
        "seed": seed,
        "data.data_dir": str(data_dir) if data_dir else None,
    }
    overrides = [(key, value) for key, value in shortcuts.items() if value is not None]
    overrides += [parse_override(text) for text in set_ or ()]
    if rounds is not None and total_time is not None:
        raise InputError("--rounds and --total-time exclude each other: give one of them.")
    if resume:
        if config or overrides:
            raise InputError(
                "--resume takes the configuration from the run folder: give no other option than --out and --json."
            )
        folder = RunFolder.reopen(out or latest_run())
    else:
        settled = load_config(config, overrides)
        folder = RunFolder.create(out or new_run_path(settled.data.dataset), settled)
    try:
        comparison = run_with_progress(folder, quiet=json_)
    except (InputError, MemoryError):
        if not resume:
            folder.discard_unused()
        raise
    if json_:
        print(json.dumps(summarise(comparison)))
    else:
        print_comparison(comparison, folder, Console())
    if comparison.interrupted:
        sys.exit(130)


@app.command()
def config() -> None:
    """Print the full default configuration as TOML, with a comment for every field."""
    from codedfl.experiment import Config, to_toml

    print(to_toml(Config()), end="")


@app.command()
def datasets(
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with the named datasets.", show_default="$CODEDFL_DATA or ./data")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the named datasets, which of them are available, and where they are looked for."""
    from dataclasses import asdict

    from codedfl.cli.tables import datasets_table
    from codedfl.data import list_datasets

    found = list_datasets(data_dir)
    if json_:
        print(json.dumps([asdict(status) for status in found]))
    else:
        Console().print(datasets_table(found))


@app.command()
def schemes() -> None:
    """List the schemes: what each uploads, computes and returns."""
    from codedfl.cli.tables import schemes_table

    Console().print(schemes_table())
