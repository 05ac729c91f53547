"""``codedfl plugins``: schemes, datasets and fleets of other packages."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict
from typing import get_args

from rich.console import Console
from rich.table import Table
from rich.text import Text

from codedfl.cli.options import Json
from codedfl.errors import InputError
from codedfl.plugins import Kind, Plugin
from codedfl.plugins import plugins as plugins_of


def plugins(json_: Json = False) -> None:
    """List the schemes, datasets and fleets that installed packages add, and what is wrong with them.

    Example: codedfl plugins
    """
    checked = [(plugin, problem_of(plugin)) for kind in get_args(Kind) for plugin in plugins_of(kind, built_in(kind))]
    if json_:
        print(json.dumps([{**asdict(plugin), "problem": problem} for plugin, problem in checked]))
        return
    if not checked:
        print("no installed package adds a scheme, a dataset or a fleet")
        return
    table = Table()
    for name in ("kind", "name", "package", "state"):
        table.add_column(name, overflow="fold")
    for plugin, problem in checked:
        state = Text(problem, style="red") if problem else Text("ready", style="green")
        table.add_row(plugin.kind, Text(plugin.name), Text(plugin.package), state)
    Console().print(table)


def built_in(kind: Kind) -> Collection[str]:
    """Return the names of a kind that codedfl has itself; fleets have none."""
    if kind == "scheme":
        from codedfl.schemes import SCHEMES

        return tuple(SCHEMES)
    from codedfl.data import dataset_names
    from codedfl.plugins import plugin_names

    return set(dataset_names()) - set(plugin_names("dataset")) if kind == "dataset" else ()


def problem_of(plugin: Plugin) -> str:
    """Return why a plug-in cannot be used, in a sentence; empty if it can."""
    if plugin.problem:
        return f"the {plugin.kind} {plugin.problem}"
    try:
        if plugin.kind == "scheme":
            from codedfl.schemes import make_scheme

            make_scheme(plugin.name)
        else:
            plugin.load()
    except InputError as error:
        return str(error)
    return ""


def usable_schemes() -> dict[str, str]:
    """Return the package of every scheme that a plug-in offers, by the name of the scheme."""
    return {
        plugin.name: plugin.package for plugin in plugins_of("scheme", built_in("scheme")) if not problem_of(plugin)
    }


def broken_schemes() -> list[str]:
    """Return what is wrong with schemes that plug-ins offer, a sentence each without its full stop."""
    checked = ((plugin, problem_of(plugin)) for plugin in plugins_of("scheme", built_in("scheme")))
    return [f"{plugin.name}: {problem.removesuffix('.')}" for plugin, problem in checked if problem]
