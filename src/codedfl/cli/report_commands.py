"""``codedfl report`` and ``codedfl watch``: results as a page, once or kept current."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from codedfl.cli.options import Json


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Folder of a run, a sweep or a federation; several are compared.", metavar="RUN...", show_default=False
        ),
    ],
    *,
    out: Annotated[
        Path | None, typer.Option(help="The page.", metavar="FILE", show_default="report.html in the first folder")
    ] = None,
    json_: Json = False,
) -> None:
    """Write one HTML page of a run, or of several side by side; it needs no network and nothing but itself.

    Example: codedfl report runs/first runs/second --out comparison.html
    """
    from codedfl.cli.outputs import require_writable
    from codedfl.report import read_runs, write_report

    if out is not None:
        require_writable("--out", out)
    records = read_runs(runs)
    path = write_report(runs, out)
    if json_:
        found = [{"run": record.name, "folder": str(record.path), "state": record.state} for record in records]
        print(json.dumps({"page": str(path), "bytes": path.stat().st_size, "runs": found}))
    else:
        Console().print(f"page: {path}", soft_wrap=True, markup=False, highlight=False)


def watch(
    run: Annotated[
        Path,
        typer.Argument(help="Folder of a run, a sweep or a federation.", metavar="RUN", show_default=False),
    ],
    *,
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 for any that is free.", min=0, max=65535)] = 0,
    json_: Json = False,
) -> None:
    """Serve the page of a run on this machine, and keep it current while the run goes on; Ctrl-C ends it.

    Example: codedfl watch runs/first
    """
    from codedfl.report import Watch

    served = Watch(run, port)
    if json_:
        print(json.dumps({"url": served.url, "folder": str(run)}), flush=True)
    else:
        Console().print(f"{served.url}  (Ctrl-C ends it)", soft_wrap=True, markup=False, highlight=False)
    try:
        served.serve()
    except KeyboardInterrupt:
        return
