"""Running an audit from the command line."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from codedfl.cli.privacy_tables import audit_table, audit_warnings
from codedfl.experiment import Config
from codedfl.experiment._audit import Audit, run_audit
from codedfl.progress import Progress as CoreProgress


def audit_with_progress(config: Config, known_ratio: float | None) -> Audit:
    """Run with a live display on standard error."""
    console = Console(stderr=True)
    columns = (TextColumn("auditing"), BarColumn(bar_width=28), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("auditing", total=None)

        class Told(CoreProgress):
            def update(self, name: str, done: float = 0, total: float | None = None, note: str = "") -> None:
                progress.update(task, completed=done, total=total)

        return run_audit(config, known_ratio=known_ratio, progress=Told())


def print_audit(audit: Audit, folder: Path, console: Console) -> None:
    """Print the table, what is unsafe, and where the results are."""
    console.print(audit_table(audit))
    for warning in audit_warnings(audit):
        console.print(Text("unsafe: ", style="yellow").append(warning, style="default"))
    console.print(Text("not covered by any of these numbers: the updates that devices send during training."))
    console.print(Text(f"picture: {folder / 'audit.png'}"), soft_wrap=True)
    console.print(Text(f"results: {folder}"), soft_wrap=True)
