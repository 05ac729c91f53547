"""Terminal table of a privacy budget."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from codedfl._messages import number
from codedfl.cli.tables import new_table
from codedfl.privacy import PrivacyAccountant


def budget_table(accountant: PrivacyAccountant) -> Table:
    """Return a table of a privacy budget and its meaning."""
    table = new_table(header=False)
    rows = {
        "coded samples": str(accountant.coded_samples),
        "noise variance": f"{accountant.noise_variance:.6g}",
        "epsilon": number(accountant.epsilon),
        "delta": f"{accountant.delta:.4g}",
        "norm bound": f"{accountant.norm_bound:g}",
        "MI-DP, all data": f"{number(accountant.mi_dp_bits)} bits for one entry of the features",
        "threat model": accountant.threat_model,
        "covers": accountant.covers,
    }
    for name, value in rows.items():
        table.add_row(name, Text(value))
    return table
