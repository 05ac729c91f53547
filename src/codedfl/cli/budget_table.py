"""Terminal tables of privacy budgets."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from codedfl._messages import number
from codedfl.cli.tables import new_table
from codedfl.cli.updates_budget import UpdatesBudget
from codedfl.privacy import PrivacyAccountant


def budget_table(accountant: PrivacyAccountant) -> Table:
    """Return a table of a privacy budget and its meaning."""
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
    return _table(rows)


def updates_table(budget: UpdatesBudget) -> Table:
    """Return a table of the budget of private updates and its meaning."""
    rows = {
        "updates": str(budget.updates),
        "sampling rate": f"{budget.sampling_rate:g}",
        "epsilon": number(budget.epsilon),
        "delta": f"{budget.delta:.4g}",
        "noise multiplier": f"{budget.noise_multiplier:.6g} (noise over clip norm, per update)",
    }
    if budget.noise_multiplier_per_device is not None:
        rows["of each device"] = f"{budget.noise_multiplier_per_device:.6g} (share of {budget.devices_in_sum} devices)"
    if budget.upload is not None:
        rows["coded samples"] = str(budget.upload.coded_samples)
        rows["noise variance"] = f"{budget.upload.noise_variance:.6g}"
        rows["upload alone"] = f"epsilon {number(budget.upload.epsilon)}"
    return _table({**rows, "threat model": budget.threat_model, "covers": budget.covers})


def _table(rows: dict[str, str]) -> Table:
    table = new_table(header=False)
    for name, value in rows.items():
        table.add_row(name, Text(value))
    return table
