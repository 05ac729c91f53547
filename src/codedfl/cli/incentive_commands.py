"""``codedfl contract`` and ``codedfl stackelberg``: what devices are paid for which noise, as tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from codedfl.cli.options import Json, refusing_overflow

if TYPE_CHECKING:
    from codedfl.incentive import Contract, DeviceTraits, StackelbergOutcome

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

MOST_LISTED = 60
"""Maximum number of devices listed."""


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


def contract_json(contract: Contract, names: tuple[str, ...]) -> dict[str, Any]:
    """Return a contract as plain numbers, items in the caller's order."""
    check = contract.verify()
    return {
        "lambda": contract.reward_weight,
        **_totals(contract),
        "items": _items(contract, names),
        "verified": {
            "individually_rational": check.individually_rational,
            "incentive_compatible": check.incentive_compatible,
            "monotone": check.monotone,
            "optimality_residual": check.optimality_residual,
        },
    }


def stackelberg_json(outcome: StackelbergOutcome, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the outcome of a game as plain numbers; the noise of a device that stays out is None."""
    from codedfl.files import plain

    check = outcome.verify()
    values: dict[str, Any] = plain(
        {
            "lambda": outcome.reward_weight,
            **_totals(outcome),
            "participants": [name for name, joins in zip(names, outcome.participants, strict=True) if joins],
            "items": _items(outcome, names),
            "verified": {
                "individually_rational": check.least_utility >= -1e-9 * outcome.total_reward,
                "best_response_residual": check.best_response_residual,
                "equilibrium": check.holds,
            },
        }
    )
    return values


def _totals(result: Contract | StackelbergOutcome) -> dict[str, Any]:
    return {
        "total_reward": result.total_reward,
        "total_noise_variance": result.total_noise_variance,
        "server_utility": result.server_utility,
    }


def _items(result: Contract | StackelbergOutcome, names: tuple[str, ...]) -> list[dict[str, Any]]:
    columns = ("sensitivity", "mi_dp_bits", "noise_variance", "reward", "utility")
    return [
        {"name": name, **{column: float(getattr(result, column)[i]) for column in columns}}
        for i, name in enumerate(names)
    ]


def items_table(values: dict[str, Any], title: str) -> Table:
    """Return a table of the items of a contract or a game, one row per device."""
    from codedfl.cli.tables import new_table

    table = new_table(title)
    table.add_column("device")
    for name in ("sensitivity", "MI-DP, bits", "noise variance", "reward", "utility"):
        table.add_column(name, justify="right", no_wrap=True)
    for item in values["items"][:MOST_LISTED]:
        noise = item["noise_variance"]
        table.add_row(
            Text(item["name"]),
            f"{item['sensitivity']:.4g}",
            f"{item['mi_dp_bits']:.4f}",
            "stays out" if noise is None else f"{noise:.4g}",
            f"{item['reward']:.4f}",
            f"{item['utility']:.4f}",
        )
    if len(values["items"]) > MOST_LISTED:
        table.add_row(f"and {len(values['items']) - MOST_LISTED} more")
    return table


def lambda_table() -> tuple[Table, list[Mapping[str, Any]]]:
    """Compute Table lambda of the paper for both mechanisms, next to the printed values."""
    from codedfl.cli.tables import new_table
    from codedfl.paper import lambda_rows

    rows: list[Mapping[str, Any]] = [*lambda_rows()]
    table = new_table(
        "Table lambda of the paper, computed and printed",
        "20 devices, c = 10,000, sensitivities 1 + 0.02 (i - 1); the game with the paper's leader",
    )
    table.add_column("mechanism")
    for name in ("lambda", "reward", "printed", "noise variance", "printed", ""):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            str(row["mechanism"]),
            f"{row['lambda']:g}",
            f"{row['total_reward']:.2f}",
            str(row["printed_total_reward"]),
            str(row["noise_variance"]),
            str(row["printed_noise_variance"]),
            "same" if row["agrees"] else "differs",
        )
    return table, rows
