"""``codedfl paper``: figures, quirks and verdicts of the reproduction."""

from __future__ import annotations

import json
import platform
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from codedfl.cli.options import DataDir, Json

if TYPE_CHECKING:
    from codedfl.paper import Figure, Quirk, Reproduction, Scope

CACHE = Path("runs") / "paper-cache"

STYLES = {"confirmed": "green", "partly": "yellow", "not confirmed": "red"}


def paper(
    names: Annotated[
        list[str], typer.Argument(help="Names of figures and tables; `list` shows them, `all` selects all.")
    ],
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Run a reduced version on the embedded digits, in minutes; it gives no verdicts."),
    ] = False,
    seeds: Annotated[int, typer.Option(help="Number of repetitions, with seeds 0, 1, ...")] = 3,
    quirk: Annotated[
        list[str] | None,
        typer.Option(help="Alternative reading of the paper; `list` shows them."),
    ] = None,
    data_dir: DataDir = None,
    cache: Annotated[
        Path, typer.Option(help="Folder that stores finished runs, so that later commands reuse them.")
    ] = CACHE,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results.", show_default="a new folder in runs/")
    ] = None,
    processes: Annotated[int, typer.Option(help="Number of parallel processes; 0 for one per core.")] = 0,
    json_: Json = False,
) -> None:
    """Reproduce figures and tables of the paper and judge its claims about them.

    Example: codedfl paper fig-tau --quick
    """
    from codedfl.cli.outputs import results_folder
    from codedfl.files import write_atomically
    from codedfl.paper import QUICK_ONLY, Cache, Executor, all_outcomes, outcomes_name, report, reproduce

    if names == ["list"]:
        _list(json_)
        return
    figures = _chosen(names)
    scope = _scope(quick, seeds, quirk or [])
    _check_processes(processes)
    folder = results_folder(out, "paper-quick" if quick else "paper")
    began = time.perf_counter()
    done = _with_progress(
        lambda progress: reproduce(figures, scope, Executor(Cache(cache), data_dir or "", processes or -1, progress)),
        quiet=json_,
    )
    for each in done:
        each.write(folder / each.figure.name)
    outcomes = all_outcomes(done, _about(scope, time.perf_counter() - began), quick=quick)
    write_atomically(folder / f"{outcomes_name(quick)}.json", outcomes)
    options = [" --quick"] * quick + [f" --seeds {seeds}"] * (seeds != 3) + [f" --quirk {name}" for name in quirk or []]
    write_atomically(folder / "report.md", report(done, "".join(options), quick=quick))
    if json_:
        print(outcomes, end="")
        return
    console = Console()
    console.print(claims_table(done, quick=quick))
    if quick:
        console.print(QUICK_ONLY.replace("`", ""), highlight=False)
    for each in done:
        picture = folder / each.figure.name / "figure.png"
        if picture.exists():
            console.print(Text(f"picture: {picture}"), soft_wrap=True)
    console.print(Text(f"results: {folder}"), soft_wrap=True)


def _list(json_: bool) -> None:
    from codedfl.paper import FIGURES, QUIRKS

    if json_:
        figures = [{"name": each.name, "place": each.place, "title": each.title} for each in FIGURES.values()]
        print(json.dumps({"figures": figures, "quirks": dict(QUIRKS)}))
        return
    console = Console()
    console.print(figures_table())
    console.print(quirks_table())


def _chosen(names: list[str]) -> list[Figure]:
    from codedfl._messages import did_you_mean
    from codedfl.errors import InputError
    from codedfl.paper import FIGURES

    if names == ["all"]:
        return list(FIGURES.values())
    for name in names:
        if name not in FIGURES:
            raise InputError(
                f"paper: there is no {name!r}, only {', '.join(FIGURES)}, and list or all alone."
                f"{did_you_mean(name, list(FIGURES))}"
            )
    return [FIGURES[name] for name in dict.fromkeys(names)]


def _scope(quick: bool, seeds: int, quirks: list[str]) -> Scope:
    from codedfl._messages import did_you_mean
    from codedfl.errors import InputError
    from codedfl.paper import QUIRKS, Scope

    for name in quirks:
        if name not in QUIRKS:
            raise InputError(
                f"--quirk: there is no {name!r}, only {', '.join(QUIRKS)}.{did_you_mean(name, list(QUIRKS))}"
            )
    if not 1 <= seeds <= 1000:
        raise InputError(f"--seeds = {seeds} must be between 1 and 1000.")
    return Scope(quick, tuple(range(seeds)), frozenset(cast("list[Quirk]", quirks)))


def _check_processes(processes: int) -> None:
    from codedfl.errors import InputError

    if processes < 0:
        raise InputError(f"--processes = {processes} must be 0 or more.")


def _with_progress(work: Any, *, quiet: bool) -> Any:
    """Run the work with a progress display; Ctrl-C and SIGTERM stop it, with all finished runs in the cache."""
    from codedfl._progress_display import ProgressDisplay

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    handlers = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with ProgressDisplay(Console(stderr=True), verbose=not quiet) as progress:
            return work(progress)
    except KeyboardInterrupt:
        print("codedfl: stopped; the same command continues from the finished runs.", file=sys.stderr)
        raise typer.Exit(130) from None
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _about(scope: Scope, wall_time_s: float) -> dict[str, Any]:
    from codedfl._version import __version__
    from codedfl.native import backend
    from codedfl.parallel import available_cores

    return {
        "codedfl": __version__,
        "quick": scope.quick,
        "seeds": list(scope.seeds),
        "quirks": sorted(scope.quirks),
        "backend": backend(),
        "python": platform.python_version(),
        "cores": available_cores(),
        "wall_time_of_this_sitting_s": round(wall_time_s, 1),
    }


def figures_table() -> Table:
    """Return a table of what can be reproduced."""
    from codedfl.cli.tables import new_table
    from codedfl.paper import FIGURES

    table = new_table("figures and tables")
    for name in ("name", "in the paper", "what it shows"):
        table.add_column(name)
    for figure in FIGURES.values():
        table.add_row(figure.name, figure.place, figure.title)
    return table


def quirks_table() -> Table:
    """Return a table of alternative readings of the paper."""
    from codedfl.cli.tables import new_table
    from codedfl.paper import QUIRKS

    table = new_table("quirks: alternative readings of the paper")
    for name in ("name", "what it does"):
        table.add_column(name)
    for name, text in QUIRKS.items():
        table.add_row(name, text)
    return table


def claims_table(done: Sequence[Reproduction], *, quick: bool = False) -> Table:
    """Return a table of the verdicts on all claims, by figure.

    Args:
        done: the reproduced figures.
        quick: whether runs were reduced; the table then counts comparisons and has no verdicts.
    """
    from codedfl.cli.tables import new_table

    table = new_table(
        "comparisons in the quick version" if quick else "claims of the paper",
        "h/f/o: comparisons that hold, fail or are open, by their 95% interval over seeds",
    )
    columns = ("verdict", "h/f/o", "panel")[1 if quick else 0 :]
    for column in columns:
        table.add_column(column, no_wrap=True)
    table.add_column("compared" if quick else "claim")
    for each in done:
        name, place = (Text(text, style="bold") for text in (each.figure.name, each.figure.place))
        table.add_row(name, *("" for _ in columns[1:]), place)
        for judgement in each.judgements:
            verdict = [] if quick else [Text(judgement.verdict, style=STYLES[judgement.verdict])]
            table.add_row(*verdict, judgement.findings, judgement.panel, Text(judgement.claim))
    return table
