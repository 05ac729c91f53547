"""``codedfl contract`` and ``codedfl stackelberg``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer
from rich.console import Console

from codedfl.cli.options import Json, refusing_overflow

if TYPE_CHECKING:
    from codedfl.incentive import DeviceTraits

MOST_DEVICES = 100_000

contract = typer.Typer()

DeviceCount = Annotated[int, typer.Option(help="Number of devices, with the sensitivities of the paper's table.")]
DevicesFile = Annotated[
    Path | None,
    typer.Option(
        help="CSV with sensitivity (and optionally name, h2, min_noise_variance) of each device.", show_default=False
    ),
]
CodedRows = Annotated[int, typer.Option(help="Coded samples c per device.")]


@contract.callback(invoke_without_command=True)
@refusing_overflow
def design(
    context: typer.Context,
    budget: Annotated[float | None, typer.Option(help="Total reward to pay.", show_default=False)] = None,
    lambda_: Annotated[
        float | None, typer.Option("--lambda", help="What a unit of reward costs the server.", show_default=False)
    ] = None,
    devices: DeviceCount = 20,
    devices_file: DevicesFile = None,
    coded_samples: CodedRows = 10_000,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw device utility against contract item to this PNG file.", show_default=False),
    ] = None,
    json_: Json = False,
) -> None:
    """Design the contract that buys noise reduction, each device's privacy budget and reward: give --budget or --lambda.

    Example: codedfl contract --budget 100 --devices 20 --plot items.png
    """
    if context.invoked_subcommand is not None:
        return
    from codedfl.cli.incentive_tables import contract_json, items_table
    from codedfl.cli.outputs import require_writable
    from codedfl.errors import InputError
    from codedfl.files import write_atomically
    from codedfl.incentive import contract_for_reward, design_contract

    if (budget is None) == (lambda_ is None):
        raise InputError("give either --budget, the total reward, or --lambda.")
    if plot is not None:
        require_writable("--plot", plot)
    names, traits = _devices(devices, devices_file)
    if budget is not None:
        result = contract_for_reward(traits, budget, coded_samples)
    else:
        result = design_contract(traits, cast(float, lambda_), coded_samples)
    if plot is not None:
        from codedfl.plotting import draw_contract

        write_atomically(plot, draw_contract(result, names))
    values = contract_json(result, names)
    if json_:
        print(json.dumps(values))
        return
    console = Console()
    console.print(items_table(values, f"a contract with lambda = {result.reward_weight:.6g}"))
    check = values["verified"]
    console.print(
        f"total reward {result.total_reward:.4f}, total noise variance {result.total_noise_variance:.4g}, "
        f"server's utility {result.server_utility:.4g}"
    )
    console.print(
        f"nobody gains by leaving: {check['individually_rational']}; by another's item: {check['incentive_compatible']}; "
        f"budgets fall with sensitivity: {check['monotone']}; optimality residual {check['optimality_residual']:.1e}"
    )
    if plot is not None:
        console.print(f"picture: {plot}", soft_wrap=True, highlight=False)


@contract.command()
def table(json_: Json = False) -> None:
    """Print Table lambda of the paper for both mechanisms, next to the printed values.

    Example: codedfl contract table
    """
    from codedfl.cli.incentive_tables import lambda_table

    shown, rows = lambda_table()
    if json_:
        print(json.dumps(rows))
    else:
        Console().print(shown)


@refusing_overflow
def stackelberg(
    reward: Annotated[
        float | None, typer.Option(help="Total reward that the server announces.", show_default=False)
    ] = None,
    lambda_: Annotated[
        float | None, typer.Option("--lambda", help="What a unit of reward costs the server.", show_default=False)
    ] = None,
    leader: Annotated[
        Literal["correct", "paper"],
        typer.Option(help="With --lambda: the leader; paper is the one behind the paper's table."),
    ] = "correct",
    devices: DeviceCount = 20,
    devices_file: DevicesFile = None,
    coded_samples: CodedRows = 10_000,
    json_: Json = False,
) -> None:
    """Solve the Stackelberg game that the contract is compared with: give --reward or --lambda.

    Example: codedfl stackelberg --reward 100
    """
    from codedfl.cli.incentive_tables import items_table, stackelberg_json
    from codedfl.errors import InputError
    from codedfl.incentive import stackelberg_for_reward, stackelberg_for_weight

    if (reward is None) == (lambda_ is None):
        raise InputError("give either --reward or --lambda.")
    names, traits = _devices(devices, devices_file)
    if reward is not None:
        outcome = stackelberg_for_reward(traits, reward, coded_samples)
    else:
        outcome = stackelberg_for_weight(traits, cast(float, lambda_), coded_samples, leader=leader)
    values = stackelberg_json(outcome, names)
    if json_:
        print(json.dumps(values))
        return
    console = Console()
    console.print(items_table(values, f"a game with total reward {outcome.total_reward:.6g}"))
    console.print(
        f"{int(outcome.participants.sum())} of {len(names)} devices take part; total noise variance "
        f"{outcome.total_noise_variance:.4g}; nobody gains by deviating: {values['verified']['equilibrium']}"
    )


def _devices(count: int, file: Path | None) -> tuple[tuple[str, ...], DeviceTraits]:
    from codedfl.errors import InputError
    from codedfl.incentive import DeviceTraits, read_devices, table_sensitivities

    if file is not None:
        return read_devices(file)
    if not 1 <= count <= MOST_DEVICES:
        raise InputError(f"--devices = {count} must be between 1 and {MOST_DEVICES}.")
    return tuple(f"device-{i + 1}" for i in range(count)), DeviceTraits(table_sensitivities(count))
