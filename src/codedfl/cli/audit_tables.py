"""Terminal tables of audits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from codedfl._messages import number, shown_key
from codedfl.audits import Audit, EmpiricalAudit, SchemeAudit
from codedfl.cli.tables import new_table
from codedfl.privacy import DeviceAudit

MOST_DEVICES = 40
"""Maximum number of devices listed."""

NOT_COVERED = (
    "not covered by any of these numbers: the updates that devices send during training; `codedfl run --epsilon` covers a whole"
    " run, with private schemes."
)


def audit_table(audit: Audit) -> Table:
    """Return a table with one row per device; it fits a terminal of 80 columns."""
    delta = audit.experiment.config.privacy.delta
    table = new_table(
        f"{audit.experiment.config.data.dataset}: what coded uploads reveal",
        "MI-DP: bits per entry, Theorem 2 as printed and corrected for this data; epsilon: worst case at delta ="
        f" {delta:g} for features and labels together, and in sum: if the server sees only the sum of uploads; no bound: no"
        " guarantee at all; labels: whether the upload shows all classes; attack: relative error of reconstruction (of guessing"
        " the mean)",
    )
    table.add_column("device")
    for name in ("printed", "corrected", "epsilon", "in sum"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("labels", no_wrap=True)
    table.add_column("attack", justify="right", no_wrap=True)
    for device in audit.devices[:MOST_DEVICES]:
        table.add_row(Text(device.name), *_cells(device))
    if len(audit.devices) > MOST_DEVICES:
        table.add_row(f"and {len(audit.devices) - MOST_DEVICES} more")
    return table


def _cells(device: DeviceAudit) -> Iterator[str]:
    yield number(device.mi_dp.printed)
    yield number(device.mi_dp.corrected)
    yield from (number(value) for value in (device.epsilon, device.epsilon_in_sum))
    yield "-" if device.labels is None else "all shown" if device.labels.correct else "not all"
    attack = device.attack
    yield "-" if attack is None else f"{attack.feasible_error:.2f} ({attack.baseline_error:.2f})"


def audit_warnings(audit: Audit) -> Iterator[str]:
    """Yield every warning once, with the devices concerned."""
    about = Counter(warning for device in audit.devices for warning in device.warnings)
    for warning, count in about.items():
        if count == len(audit.devices):
            yield f"all devices: {warning}."
        else:
            names = [device.name for device in audit.devices if warning in device.warnings]
            shown = ", ".join(names[:3]) + (f" and {count - 3} more" if count > 3 else "")
            yield f"{shown}: {warning}."


def limit_sentence(audit: Audit) -> str:
    """Return the sentence that names the device furthest above ``max_epsilon``, its epsilon, and the fix."""
    worst = max(audit.exceeded, key=audit.epsilon_of)
    seen = "each upload" if audit.threat_model == "each-message" else "only the sum of uploads"
    epsilon = audit.epsilon_of(worst)
    how_much = "no bound on epsilon" if math.isinf(epsilon) else f"epsilon = {number(epsilon)}"
    return (
        f"{len(audit.exceeded)} of {len(audit.devices)} device(s) exceed --max-epsilon = {audit.max_epsilon:g} if the server sees"
        f" {seen}, {shown_key(worst.name)} most, with {how_much}: {_fix(audit, worst)}."
    )


def _fix(audit: Audit, device: DeviceAudit) -> str:
    """Return what lowers the epsilon of a device."""
    if device.missing and math.isinf(audit.epsilon_of(device)):
        return f"set {' and '.join(device.missing)}"
    fix = "raise coding.noise_variance and coding.label_noise_variance, or lower coding.coded_samples"
    if audit.max_epsilon is not None and device.epsilon_in_sum <= audit.max_epsilon:
        fix += ", or aggregate securely and give --threat-model sums-only"
    return fix


def print_audit(audit: Audit, folder: Path, console: Console) -> None:
    """Print the table, the warnings, and the paths of the results."""
    console.print(audit_table(audit))
    for warning in audit_warnings(audit):
        console.print(Text("unsafe: ", style="yellow").append(warning, style="default"))
    console.print(Text(NOT_COVERED))
    console.print(Text(f"picture: {folder / 'audit.png'}"), soft_wrap=True)
    console.print(Text(f"results: {folder}"), soft_wrap=True)


def empirical_table(audit: EmpiricalAudit) -> Table:
    """Return a table with one row per scheme; it fits a terminal of 80 columns."""
    first = audit.schemes[0]
    table = new_table(
        f"{audit.config.data.dataset}: what {first.bound.canaries} canaries show",
        f"epsilon at delta = {first.bound.delta:g}, if the server sees {_seen(first)}; claimed: for what is covered; measured:"
        f" at least this much, with {100 * first.bound.confidence:g}% confidence, of what is covered, and of everything that the"
        " server sees; guesses: right ones of those that gave the bound; a claim that is not refuted is not proven by that",
    )
    table.add_column("scheme")
    table.add_column("claimed", justify="right", no_wrap=True)
    table.add_column("covers", no_wrap=True)
    for name in ("measured", "everything", "guesses"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for each in audit.schemes:
        claims = math.isfinite(each.claimed_epsilon)
        table.add_row(
            Text(each.title),
            number(each.claimed_epsilon) if claims else "-",
            each.covers,
            f"{each.bound.epsilon:.3g}",
            f"{each.everything.epsilon:.3g}",
            f"{each.bound.correct}/{each.bound.guesses}",
            "refuted" if each.refuted else "not refuted" if claims else "no claim",
        )
    return table


def refuted_sentence(audit: EmpiricalAudit) -> str:
    """Return the sentence that names the scheme furthest above its claim."""
    worst = max(audit.refuted, key=lambda each: each.bound.epsilon - each.claimed_epsilon)
    bound = worst.bound
    return (
        f"{len(audit.refuted)} of {len(audit.schemes)} scheme(s) reveal more than they claim, {worst.scheme} most: it claims"
        f" epsilon = {number(worst.claimed_epsilon)} for {_covered(worst)}, but {bound.correct} right guesses of"
        f" {bound.guesses} show at least {bound.epsilon:.3g} with {100 * bound.confidence:g}% confidence: do not rely on it."
    )


def print_empirical_audit(audit: EmpiricalAudit, folder: Path, console: Console) -> None:
    """Print the table and the path of the results."""
    console.print(empirical_table(audit))
    console.print(Text(f"results: {folder}"), soft_wrap=True)


def _seen(audit: SchemeAudit) -> str:
    return "only sums over devices" if audit.threat_model == "sums only" else "every message of a device"


def _covered(audit: SchemeAudit) -> str:
    return "its upload" if audit.covers == "upload" else "everything that devices send"
