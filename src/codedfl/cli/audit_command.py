"""``codedfl audit``: what the uploads of a configuration reveal, and whether its schemes keep what they claim."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from codedfl._messages import number, shown_key
from codedfl.cli.options import Json, Out, Settings, configurable

if TYPE_CHECKING:
    from codedfl.audits import Audit, EmpiricalAudit, SchemeAudit
    from codedfl.privacy import DeviceAudit

OF_SCHEMES = {"schemes": "--scheme", "privacy.epsilon": "--epsilon"}
"""Fields that the audit of uploads has no use for, and their options."""

MOST_DEVICES = 40
"""Maximum number of devices listed."""

NOT_COVERED = (
    "not covered by any of these numbers: the updates that devices send during training; `codedfl run --epsilon` covers a whole"
    " run, with private schemes."
)


@configurable(
    *("scheme", "dataset", "target", "device_column", "drop", "task", "devices"),
    *("coded_samples", "noise_variance", "label_noise_variance"),
    *("clip_norm", "epsilon", "delta", "threat_model", "label_bound", "label_center", "seed", "data_dir"),
)
def audit(
    settings: Settings,
    *,
    empirical: Annotated[
        bool, typer.Option("--empirical", help="Train with canaries, and measure a lower bound on epsilon instead.")
    ] = False,
    canaries: Annotated[int, typer.Option(help="Number of canaries of --empirical.")] = 1000,
    confidence: Annotated[
        float, typer.Option(help="Probability with which --empirical does not refute a scheme that keeps its claim.")
    ] = 0.95,
    known_ratio: Annotated[
        float, typer.Option(help="Share of a device's samples that the attacker knows; 0 skips the attack.")
    ] = 0.9,
    max_epsilon: Annotated[
        float | None,
        typer.Option(
            help="Fail with exit code 1 if a device's epsilon, features and labels, is larger.", show_default="no limit"
        ),
    ] = None,
    out: Out = None,
    json_: Json = False,
) -> None:
    """Audit every device's coded upload, or with --empirical what schemes claim: exit code 1 if a claim is refuted.

    Example: codedfl audit --clip-norm 1 --label-noise-variance 0.1 --max-epsilon 8
    """
    from codedfl._validation import require_fraction, require_positive
    from codedfl.errors import InputError

    if not 0 <= known_ratio < 1:
        raise InputError(f"--known-ratio = {known_ratio} must be zero or more and less than 1.")
    if max_epsilon is not None:
        require_positive("--max-epsilon", max_epsilon)
    if empirical:
        require_fraction("--confidence", confidence)
        if max_epsilon is not None:
            raise InputError(
                "--max-epsilon limits what uploads may claim and --empirical tests claims: give one of them."
            )
        _audit_schemes(settings, canaries, confidence, out, json_=json_)
        return
    for key, option in OF_SCHEMES.items():
        if key in dict(settings.overrides):
            raise InputError(
                f"{option} says what --empirical trains, and uploads are audited without it: add --empirical."
            )
    _audit_uploads(settings, known_ratio, max_epsilon, out, json_=json_)


def _audit_uploads(
    settings: Settings, known_ratio: float, max_epsilon: float | None, out: Path | None, *, json_: bool
) -> None:
    from codedfl._progress_display import ProgressDisplay
    from codedfl.audits import run_audit, write_audit
    from codedfl.cli.outputs import results_folder

    config = settings.load()
    folder = results_folder(out, config.data.dataset, "audit")
    with ProgressDisplay(Console(stderr=True), verbose=not json_) as display:
        settings.tell_preset(display)
        result = run_audit(
            config,
            known_ratio=known_ratio or None,
            max_epsilon=max_epsilon,
            threat_model=config.privacy.threat_model,
            progress=display,
        )
    write_audit(result, folder)
    if json_:
        print(json.dumps(result.as_dict()))
    else:
        print_audit(result, folder, Console())
    if result.exceeded:
        _fail(limit_sentence(result))


def _audit_schemes(settings: Settings, canaries: int, confidence: float, out: Path | None, *, json_: bool) -> None:
    from codedfl._progress_display import ProgressDisplay
    from codedfl.audits import run_empirical_audit, write_empirical_audit
    from codedfl.cli.outputs import results_folder

    config = settings.load()
    folder = results_folder(out, config.data.dataset, "audit")
    with ProgressDisplay(Console(stderr=True), verbose=not json_) as display:
        settings.tell_preset(display)
        result = run_empirical_audit(config, canaries=canaries, confidence=confidence, progress=display)
    write_empirical_audit(result, folder)
    if json_:
        print(json.dumps(result.as_dict()))
    else:
        print_empirical_audit(result, folder, Console())
    if result.refuted:
        _fail(refuted_sentence(result))


def _fail(sentence: str) -> None:
    """End with exit code 1 and a sentence, after everything that was printed."""
    sys.stdout.flush()
    print(f"codedfl: {sentence}", file=sys.stderr)
    raise typer.Exit(1)


def audit_table(audit: Audit) -> Table:
    """Return a table with one row per device; it fits a terminal of 80 columns."""
    from codedfl.cli.tables import new_table

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
    from codedfl.cli.tables import new_table

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
