"""The application: all commands. They import their dependencies when called, so that help appears at once."""

from __future__ import annotations

from typing import Annotated

import typer

from codedfl._version import __version__
from codedfl.cli.audit_command import audit
from codedfl.cli.federation_commands import federation
from codedfl.cli.incentive_commands import contract, stackelberg
from codedfl.cli.lookup_commands import config, datasets, schemes
from codedfl.cli.options import ConfigurableCommand
from codedfl.cli.paper_command import paper
from codedfl.cli.plan_command import plan
from codedfl.cli.plugin_command import plugins
from codedfl.cli.privacy_command import privacy
from codedfl.cli.results_commands import evaluate, export, predict, report, watch
from codedfl.cli.run_command import run
from codedfl.cli.sweep_command import sweep
from codedfl.cli.theory_command import theory

TRAIN, DECIDE, RESULTS = "Train", "Decide before training", "Results"
PRIVACY, REPRODUCE, LOOK_UP = "Privacy and incentives", "Reproduce the paper", "Look up"

app = typer.Typer(
    name="codedfl",
    help="Coded federated learning: train on time despite stragglers.\n\nExample: codedfl run",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
# In the order in which help lists them.
app.command(cls=ConfigurableCommand, rich_help_panel=TRAIN)(run)
app.command(cls=ConfigurableCommand, rich_help_panel=TRAIN)(sweep)
app.add_typer(federation, name="federation", rich_help_panel=TRAIN)
app.command(cls=ConfigurableCommand, rich_help_panel=DECIDE)(plan)
app.command(cls=ConfigurableCommand, rich_help_panel=DECIDE)(theory)
app.command(rich_help_panel=RESULTS)(report)
app.command(rich_help_panel=RESULTS)(watch)
app.command(rich_help_panel=RESULTS)(predict)
app.command(rich_help_panel=RESULTS)(evaluate)
app.command(rich_help_panel=RESULTS)(export)
app.command(rich_help_panel=PRIVACY)(privacy)
app.command(cls=ConfigurableCommand, rich_help_panel=PRIVACY)(audit)
app.add_typer(contract, name="contract", rich_help_panel=PRIVACY)
app.command(rich_help_panel=PRIVACY)(stackelberg)
app.command(rich_help_panel=REPRODUCE)(paper)
app.command(cls=ConfigurableCommand, rich_help_panel=LOOK_UP)(config)
app.command(rich_help_panel=LOOK_UP)(datasets)
app.command(rich_help_panel=LOOK_UP)(schemes)
app.command(rich_help_panel=LOOK_UP)(plugins)


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
