"""HTML that escapes by default: what is not known to be markup is text."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


class Html(str):
    """Text that is markup already, and goes into a page as it is."""

    __slots__ = ()


def text(value: object) -> Html:
    """Return a value as markup: escaped, unless it is markup.

    Example:
        >>> text("<b>"), text(Html("<b>"))
        ('&lt;b&gt;', '<b>')
    """
    return value if isinstance(value, Html) else Html(html.escape(str(value), quote=True))


def markup(template: str, *values: object, **named: object) -> Html:
    """Fill a template of markup; values are escaped unless they are markup.

    Example:
        >>> markup("<td>{}</td>", "</script>")
        '<td>&lt;/script&gt;</td>'
    """
    return Html(template.format(*map(text, values), **{name: text(value) for name, value in named.items()}))


def joined(parts: Iterable[object], between: str = "") -> Html:
    """Return several pieces one after the other, each escaped unless it is markup."""
    return Html(text(between).join(text(part) for part in parts))


def listed(sentences: Iterable[object], kind: str = "") -> Html:
    """Return a list with one item per sentence; nothing without any."""
    items = joined(markup("<li>{}</li>", sentence) for sentence in sentences)
    return markup('<ul class="{}">{}</ul>', kind, items) if items else Html()


@dataclass(frozen=True)
class Heading:
    """The heading of a column.

    Args:
        name: its words.
        number: whether its cells are numbers, which line up on the right.
        hint: what it means, in words.
    """

    name: str
    number: bool = True
    hint: str = ""


MOST_ROOMY = 10
"""Columns of a table up to which there is room for wide margins."""


def table(columns: Sequence[Heading], rows: Iterable[Sequence[object]], caption: str, kind: str = "") -> Html:
    """Return a table whose rows become cards on a narrow screen; the first cell of a row is its heading.

    Args:
        columns: the columns.
        rows: the cells of each row, text or markup.
        caption: what the table shows.
        kind: further classes.
    """
    head = joined(
        markup('<th scope="col" class="{}" title="{}">{}</th>', "number" if c.number else "", c.hint, breakable(c.name))
        for c in columns
    )
    kind += " dense" * (len(columns) > MOST_ROOMY)
    body = joined(markup("<tr>{}</tr>", _cells(columns, row)) for row in rows)
    return markup(
        '<div class="scrolls" tabindex="0" role="region" aria-label="{caption}"><table class="{kind}">'
        "<caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>\n",
        caption=caption,
        kind=kind,
        head=head,
        body=body,
    )


def breakable(name: str) -> Html:
    """Return a heading that may be broken after dots and underscores, such as those of a key."""
    return Html(re.sub(r"([._])(?=[^\W\d_])", r"\1<wbr>", text(name)))


def _cells(columns: Sequence[Heading], row: Sequence[object]) -> Html:
    first, *rest = row
    cells = [markup('<th scope="row">{}</th>', first)]
    for column, cell in zip(columns[1:], rest, strict=True):
        kind = "number" if column.number else ""
        cells.append(markup('<td class="{}" data-label="{}">{}</td>', kind, column.name, cell))
    return joined(cells)


def section(name: str, title: str, *content: Html) -> Html:
    """Return a section of the page with a heading; nothing without content."""
    body = joined(content)
    if not body:
        return Html()
    return markup(
        '<section id="{0}" aria-labelledby="{0}-title"><h2 id="{0}-title">{1}</h2>{2}</section>\n', name, title, body
    )


def folded(name: str, title: object, content: Html, *, opened: bool = False) -> Html:
    """Return content that can be folded away; it stays as the reader left it when a page that is followed changes."""
    state = Html(" open") if opened else ""
    return markup('<details id="{}"{}><summary>{}</summary>{}</details>\n', name, state, title, content)
