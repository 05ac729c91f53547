"""``codedfl paper``."""

from __future__ import annotations

import json
import platform
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Console
from rich.text import Text

from codedfl.cli.options import DataDir, Json

if TYPE_CHECKING:
    from codedfl.paper import Item, Quirk, Scope

CACHE = Path("runs") / "paper-cache"


def paper(
    names: Annotated[
        list[str], typer.Argument(help="Figures and tables by name; `list` shows them, `all` takes all of them.")
    ],
    quick: Annotated[
        bool, typer.Option("--quick", help="A reduced version on the embedded digits, in minutes.")
    ] = False,
    seeds: Annotated[int, typer.Option(help="Repetitions, with seeds 0, 1, ...")] = 3,
    quirk: Annotated[
        list[str] | None, typer.Option(help="A version of the paper that contradicts another; `list` shows them.")
    ] = None,
    data_dir: DataDir = None,
    cache: Annotated[Path, typer.Option(help="Folder in which finished runs are kept, to go on from.")] = CACHE,
    out: Annotated[Path | None, typer.Option(help="Folder for the results.", show_default="a new one in runs/")] = None,
    processes: Annotated[int, typer.Option(help="Runs at a time; 0 for one a core.")] = 0,
    json_: Json = False,
) -> None:
    """Reproduce figures and tables of the paper, and judge what it claims about them."""
    from codedfl.cli.outputs import results_folder
    from codedfl.cli.paper_tables import verdicts_table
    from codedfl.files import write_atomically
    from codedfl.paper import Cache, Means, reproduce
    from codedfl.paper._report import report
    from codedfl.paper._reproduce import all_verdicts

    if names == ["list"]:
        _list(json_)
        return
    items = _chosen(names)
    scope = _scope(quick, seeds, quirk or [])
    _check_processes(processes)
    folder = results_folder(out, "paper-quick" if quick else "paper")
    began = time.perf_counter()
    done = _with_progress(
        lambda watcher: reproduce(items, scope, Means(Cache(cache), str(data_dir or ""), processes or -1, watcher)),
        quiet=json_,
    )
    for each in done:
        each.write(folder / each.item.name)
    verdicts = all_verdicts(done, _about(scope, time.perf_counter() - began))
    write_atomically(folder / "verdicts.json", verdicts)
    options = f"{' --quick' if quick else ''}{f' --seeds {seeds}' if seeds != 3 else ''}"
    write_atomically(
        folder / "report.md", report(done, "".join([options, *(f" --quirk {name}" for name in quirk or [])]))
    )
    if json_:
        print(verdicts, end="")
        return
    console = Console()
    console.print(verdicts_table(done))
    for each in done:
        picture = folder / each.item.name / "figure.png"
        if picture.exists():
            console.print(Text(f"picture: {picture}"), soft_wrap=True)
    console.print(Text(f"results: {folder}"), soft_wrap=True)


def _list(json_: bool) -> None:
    from codedfl.cli.paper_tables import items_table, quirks_table
    from codedfl.paper import ITEMS, QUIRKS

    if json_:
        items = [{"name": item.name, "place": item.place, "title": item.title} for item in ITEMS.values()]
        print(json.dumps({"items": items, "quirks": dict(QUIRKS)}))
        return
    console = Console()
    console.print(items_table())
    console.print(quirks_table())


def _chosen(names: list[str]) -> list[Item]:
    from codedfl._messages import did_you_mean
    from codedfl.errors import InputError
    from codedfl.paper import ITEMS

    if names == ["all"]:
        return list(ITEMS.values())
    for name in names:
        if name not in ITEMS:
            raise InputError(
                f"paper: there is no {name!r}, only {', '.join(ITEMS)}, and list or all alone.{did_you_mean(name, list(ITEMS))}"
            )
    return [ITEMS[name] for name in dict.fromkeys(names)]


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
    """Do the work with a display; Ctrl-C ends it, with everything that is finished kept."""
    from codedfl.cli.paper_progress import PaperProgress

    try:
        with PaperProgress(Console(stderr=True), verbose=not quiet) as watcher:
            return work(watcher)
    except KeyboardInterrupt:
        print("codedfl: stopped; the same command goes on from what is finished.", file=sys.stderr)
        raise typer.Exit(130) from None


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
