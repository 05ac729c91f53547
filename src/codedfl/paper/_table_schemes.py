"""Table I: properties of the schemes, derived from their definitions in the code."""

from __future__ import annotations

import pandas as pd

from codedfl.paper._claims import Claim, Evidence, exactly
from codedfl.paper._executor import Outcomes
from codedfl.paper._figure import Figure
from codedfl.paper._setups import Scope
from codedfl.paper._tables import Row, Tables, where
from codedfl.schemes import COLUMNS, PAPER_SCHEMES, describe, make_scheme
from codedfl.training import Scheme

PRINTED = {
    "cfl-fb": {"noise": False, "mini_batch": False, "periodical": False},
    "codedfedl": {"noise": False, "mini_batch": True, "periodical": False},
    "dp-cfl": {"noise": True},
    "scfl": {"noise": True, "mini_batch": True, "periodical": True},
}
"""The entries of Table I that the code can confirm. DP-CFL does no federated training, so its entries on that ("N/A", and no
mini-batches) describe how its authors train at the server."""


def properties(scheme: Scheme) -> dict[str, bool]:
    """Return the properties of a scheme that Table I lists."""
    found = {"noise": scheme.upload is not None and scheme.upload.noise}
    if scheme.device.idle:
        return found
    return found | {"mini_batch": not scheme.device.full_batch, "periodical": scheme.describe_steps() == "tau"}


def tables(scope: Scope, outcomes: Outcomes) -> Tables:  # noqa: ARG001
    """Return the composition of the schemes of the paper, and the entries of Table I next to those of the code."""
    schemes = {name: make_scheme(name) for name in PAPER_SCHEMES}
    composition: list[Row] = [dict(zip(COLUMNS, describe(scheme), strict=True)) for scheme in schemes.values()]
    compared: list[Row] = [
        {
            "panel": "schemes",
            "scheme": name,
            "property": what,
            "printed": value,
            "code": properties(schemes[name])[what],
        }
        for name, printed in PRINTED.items()
        for what, value in printed.items()
    ]
    return {"schemes": pd.DataFrame(composition), "points": pd.DataFrame(compared)}


def _agrees(tables: Tables, panel: str) -> list[Evidence]:
    return [
        exactly(f"{row['scheme']}: {row['property']} is {row['printed']}", row["printed"] == row["code"])
        for row in where(tables["points"], panel=panel).to_dict("records")
    ]


TABLE_SCHEMES = Figure(
    name="table-schemes",
    title="Comparison of coded federated learning frameworks",
    place="Table I",
    tables=tables,
    claims=(Claim("noise on coded data, mini-batches and periodical aggregation are as the table has them", _agrees),),
)
