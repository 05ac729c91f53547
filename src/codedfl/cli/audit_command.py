"""``codedfl audit``: what the uploads of a configuration reveal."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console

from codedfl.cli.options import Json, Out, Settings, configurable


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
    out: Out = None,
    json_: Json = False,
) -> None:
    """Audit every device's coded upload: budgets, labels, a reconstruction attack, and warnings."""
    from codedfl.cli.audit_tables import print_audit
    from codedfl.cli.outputs import results_folder
    from codedfl.cli.progress import ProgressDisplay
    from codedfl.errors import InputError
    from codedfl.experiment import run_audit, write_audit

    if not 0 <= known_ratio < 1:
        raise InputError(f"--known-ratio = {known_ratio} must be zero or more and less than 1.")
    config = settings.load()
    folder = results_folder(out, config.data.dataset, "audit")
    with ProgressDisplay(Console(stderr=True), verbose=not json_) as display:
        settings.tell_preset(display)
        result = run_audit(
            config,
            known_ratio=known_ratio or None,
            progress=display,
        )
    write_audit(result, folder)
    if json_:
        print(json.dumps(result.as_dict()))
    else:
        print_audit(result, folder, Console())
