"""What all tables look like."""

from __future__ import annotations

from rich import box
from rich.table import Table
from rich.text import Text


def new_table(title: str | None = None, caption: str | None = None, *, header: bool = True) -> Table:
    """Return an empty table; brackets in its title are brackets."""
    return Table(
        title=None if title is None else Text(title, style="table.title"),
        title_justify="left",
        caption=caption,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        show_header=header,
        pad_edge=False,
        collapse_padding=True,
    )
