"""Table lambda (appendix): total reward and noise by lambda for both mechanisms, next to the printed values."""

from __future__ import annotations

import math

import pandas as pd

from codedfl.incentive import DeviceTraits, design_contract, stackelberg_for_weight, table_sensitivities
from codedfl.paper._claims import Claim, Evidence, exactly
from codedfl.paper._executor import Outcomes
from codedfl.paper._figure import Figure
from codedfl.paper._setups import Scope
from codedfl.paper._tables import Row, Tables, where

DEVICES, CODED_SAMPLES = 20, 10_000

PRINTED = (
    (70, 1.8e5, 5878, 2e-4, 12324),
    (80, 8e4, 3937, 1e-5, 10488),
    (90, 5e4, 3119, 1e-7, 8364),
    (100, 9e3, 1329, 1e-9, 6808),
    (110, 3.9e3, 876, 1.1e-11, 5652),
    (120, 1e3, 444, 1e-12, 5146),
)
"""Total reward; lambda and noise variance of the contract; lambda and noise variance of the Stackelberg game."""


def lambda_rows() -> list[Row]:
    """Compute the table with the sensitivities and the leader behind the printed numbers."""
    traits = DeviceTraits(table_sensitivities(DEVICES))
    rows: list[Row] = []
    for reward, weight, noise, game_weight, game_noise in PRINTED:
        contract = design_contract(traits, weight, CODED_SAMPLES)
        game = stackelberg_for_weight(traits, game_weight, CODED_SAMPLES, leader="paper")
        for mechanism, lam, printed, result in (
            ("contract", weight, noise, contract),
            ("stackelberg", game_weight, game_noise, game),
        ):
            found = math.floor(result.total_noise_variance)
            rows.append(
                {
                    "mechanism": mechanism,
                    "lambda": lam,
                    "total_reward": result.total_reward,
                    "printed_total_reward": reward,
                    "noise_variance": found,
                    "printed_noise_variance": printed,
                    "agrees": found == printed,
                }
            )
    return sorted(rows, key=lambda row: str(row["mechanism"]))


def tables(scope: Scope, outcomes: Outcomes) -> Tables:  # noqa: ARG001
    """Return the table."""
    return {"points": pd.DataFrame([{"panel": row["mechanism"], **row} for row in lambda_rows()])}


def _noise_agrees(tables: Tables, panel: str) -> list[Evidence]:
    return [
        exactly(f"lambda = {row['lambda']:g}: sigma^2 = {row['noise_variance']}", bool(row["agrees"]))
        for row in where(tables["points"], panel=panel).to_dict("records")
    ]


def _reward_agrees(tables: Tables, panel: str) -> list[Evidence]:
    return [
        exactly(
            f"lambda = {row['lambda']:g}: total reward {row['total_reward']:.2f}, printed {row['printed_total_reward']}",
            abs(float(row["total_reward"]) - float(row["printed_total_reward"])) < 0.5,
        )
        for row in where(tables["points"], panel=panel).to_dict("records")
    ]


def _smaller_pays_more(tables: Tables, panel: str) -> list[Evidence]:
    rewards = where(tables["points"], panel=panel).sort_values("lambda")["total_reward"]
    return [exactly("total reward falls as lambda grows", rewards.is_monotonic_decreasing)]


TABLE_LAMBDA = Figure(
    name="table-lambda",
    title="Total reward, lambda and noise",
    place="Table III (appendix)",
    tables=tables,
    claims=(
        Claim("these values of lambda lead to these noise variances", _noise_agrees),
        Claim("these values of lambda lead to these total rewards", _reward_agrees),
        Claim("a smaller lambda pays more", _smaller_pays_more),
    ),
)
