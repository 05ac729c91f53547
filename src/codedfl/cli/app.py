"""The application: all commands. They import their dependencies when called, so that help appears at once."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console

from codedfl._version import __version__
from codedfl.cli.audit_command import audit
from codedfl.cli.federation_commands import federation
from codedfl.cli.incentive_commands import contract, stackelberg
from codedfl.cli.options import ConfigurableCommand, DataDir, Json, Settings, configurable
from codedfl.cli.paper_command import paper
from codedfl.cli.plan_command import plan
from codedfl.cli.privacy_command import privacy
from codedfl.cli.run_command import run
from codedfl.cli.theory_command import theory

app = typer.Typer(
    name="codedfl",
    help="Coded federated learning: train on time despite stragglers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command(cls=ConfigurableCommand)(run)
app.command(cls=ConfigurableCommand)(plan)
app.command()(privacy)
app.command(cls=ConfigurableCommand)(audit)
app.add_typer(contract, name="contract")
app.command()(stackelberg)
app.command(cls=ConfigurableCommand)(theory)
app.command()(paper)
app.add_typer(federation, name="federation")


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


@app.command(cls=ConfigurableCommand)
@configurable("dataset")
def config(settings: Settings) -> None:
    """Print a full configuration as TOML, with a comment for every field: the defaults, or those of a dataset or a file."""
    from codedfl.config import to_toml

    print(to_toml(settings.load()), end="")


@app.command()
def datasets(data_dir: DataDir = None, json_: Json = False) -> None:
    """List the named datasets, whether they are available, and where codedfl looks for them."""
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
