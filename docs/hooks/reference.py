"""The pages in ``reference/``: the command line from its help, and the API from docstrings."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

SOURCE = Path(__file__).parents[2] / "src" / "codedfl"

WITHOUT_A_PAGE = ("cli", "native")
"""Packages that are used through the command line, or by others of this project alone."""

MODULES = ("codedfl", "codedfl.errors", "codedfl.progress", "codedfl.streams")
"""Public modules that are no package, after the package of everything."""

PACKAGES = (
    *MODULES[:1],
    *(
        f"codedfl.{init.parent.name}"
        for init in sorted(SOURCE.glob("*/__init__.py"))
        if init.parent.name not in WITHOUT_A_PAGE
    ),
    *MODULES[1:],
)
"""What has a page, in the order of the navigation."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put one page per package in place of the entry ``reference/`` of the navigation."""
    assert config.nav is not None
    config.nav = _with_pages(config.nav)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    files.append(File.generated(config, "reference/command-line.md", content=command_line()))
    for package in PACKAGES:
        files.append(File.generated(config, _place(package), content=f"# {package}\n\n::: {package}\n"))
    return files


def command_line() -> str:
    """Return the page of the command line: what ``--help`` says about every command, in Markdown."""
    import typer.main
    from typer.cli import get_docs_for_click

    from codedfl.cli.app import app

    command = typer.main.get_command(app)
    context = typer.Context(command, info_name="codedfl")
    _complete_help(command, context)
    return get_docs_for_click(obj=command, ctx=context, name="codedfl", title="The command line")


def _complete_help(command: Any, context: Any) -> None:
    """Let every command write its help once, since some options take theirs from the schema only then, and do not cut any."""
    with contextlib.redirect_stdout(io.StringIO()):
        command.get_help(context)
    command.short_help = (command.help or "").split("\n\n")[0]
    for name, inner in getattr(command, "commands", {}).items():
        _complete_help(inner, type(context)(inner, info_name=name, parent=context))


def _place(package: str) -> str:
    return f"reference/{package}.md"


def _with_pages(nav: Any) -> Any:
    if isinstance(nav, list):
        return [_with_pages(item) for item in nav]
    if isinstance(nav, dict):
        return {title: _with_pages(item) for title, item in nav.items()}
    return [{package: _place(package)} for package in PACKAGES] if nav == "reference/" else nav
