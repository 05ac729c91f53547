"""Contracts and games as JSON objects and as tables for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from codedfl.cli.tables import new_table
from codedfl.files import plain
from codedfl.incentive import Contract, StackelbergOutcome

MOST_DEVICES = 60
"""Maximum number of devices listed."""


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
    table = new_table(title)
    table.add_column("device")
    for name in ("sensitivity", "MI-DP, bits", "noise variance", "reward", "utility"):
        table.add_column(name, justify="right", no_wrap=True)
    for item in values["items"][:MOST_DEVICES]:
        noise = item["noise_variance"]
        table.add_row(
            Text(item["name"]),
            f"{item['sensitivity']:.4g}",
            f"{item['mi_dp_bits']:.4f}",
            "stays out" if noise is None else f"{noise:.4g}",
            f"{item['reward']:.4f}",
            f"{item['utility']:.4f}",
        )
    if len(values["items"]) > MOST_DEVICES:
        table.add_row(f"and {len(values['items']) - MOST_DEVICES} more")
    return table


def lambda_table() -> tuple[Table, list[Mapping[str, Any]]]:
    """Compute Table lambda of the paper for both mechanisms, next to the printed values."""
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
