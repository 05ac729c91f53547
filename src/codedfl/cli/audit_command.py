"""``codedfl audit``: what the uploads of a configuration reveal."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Literal

import typer
from rich.console import Console

from codedfl.cli.options import Json, Out, Settings, configurable

ThreatModel = Literal["each-message", "sums-only"]  # as in codedfl.experiment, which is slow to import


@configurable(
    *("dataset", "target", "devices", "coded_samples", "noise_variance", "label_noise_variance"),
    *("clip_norm", "seed", "data_dir"),
)
def audit(
    settings: Settings,
    *,
    known_ratio: Annotated[
        float, typer.Option(help="Share of a device's samples that the attacker knows; 0 skips the attack.")
    ] = 0.9,
    max_epsilon: Annotated[
        float | None,
        typer.Option(
            help="Fail with exit code 1 if a device's epsilon, features and labels, is larger.", show_default="no limit"
        ),
    ] = None,
    threat_model: Annotated[
        ThreatModel,
        typer.Option(help="Whose epsilon --max-epsilon limits: the server sees each upload, or only their sum."),
    ] = "each-message",
    out: Out = None,
    json_: Json = False,
) -> None:
    """Audit every device's coded upload: budgets, labels, a reconstruction attack, and warnings."""
    from codedfl._validation import require_positive
    from codedfl.cli.audit_tables import limit_sentence, print_audit
    from codedfl.cli.outputs import results_folder
    from codedfl.cli.progress import ProgressDisplay
    from codedfl.errors import InputError
    from codedfl.experiment import run_audit, write_audit

    if not 0 <= known_ratio < 1:
        raise InputError(f"--known-ratio = {known_ratio} must be zero or more and less than 1.")
    if max_epsilon is not None:
        require_positive("--max-epsilon", max_epsilon)
    config = settings.load()
    folder = results_folder(out, config.data.dataset, "audit")
    with ProgressDisplay(Console(stderr=True), verbose=not json_) as display:
        settings.tell_preset(display)
        result = run_audit(
            config,
            known_ratio=known_ratio or None,
            max_epsilon=max_epsilon,
            threat_model=threat_model,
            progress=display,
        )
    write_audit(result, folder)
    if json_:
        print(json.dumps(result.as_dict()))
    else:
        print_audit(result, folder, Console())
    if result.exceeded:
        sys.stdout.flush()
        print(f"codedfl: {limit_sentence(result)}", file=sys.stderr)
        raise typer.Exit(1)
