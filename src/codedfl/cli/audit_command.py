"""``codedfl audit``: what the uploads of a configuration reveal, and whether its schemes keep what they claim."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from codedfl.cli.options import Json, Out, Settings, configurable

OF_SCHEMES = {"schemes": "--scheme", "privacy.epsilon": "--epsilon"}
"""Fields that the audit of uploads has no use for, and their options."""


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
    from codedfl.cli.audit_tables import limit_sentence, print_audit
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
    from codedfl.cli.audit_tables import print_empirical_audit, refuted_sentence
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
