"""How the line of a scheme is drawn, the same in every picture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from codedfl.errors import InputError
from codedfl.plotting._canvas import DARK
from codedfl.schemes import scheme_builder
from codedfl.training import Scheme


@dataclass(frozen=True)
class Line:
    """The look of a line.

    Args:
        colour: ``#rrggbb``.
        prominent: whether it is thicker than the others, and above them.
    """

    colour: str = DARK
    prominent: bool = False


def lines_of(schemes: Iterable[Scheme]) -> Mapping[str, Line]:
    """Return the look of each scheme's line, by name; no two have the same colour, unless it is dark.

    A scheme that was built from the parts of another has that one's colour: it is dark beside it.
    """
    lines: dict[str, Line] = {}
    for scheme in schemes:
        taken = {line.colour for name, line in lines.items() if name != scheme.name}
        own = scheme.colour is not None and scheme.colour not in taken
        lines[scheme.name] = Line(scheme.colour or DARK, scheme.prominent) if own else Line()
    return lines


def lines_named(names: Iterable[str]) -> Mapping[str, Line]:
    """Return the same for names, some of which may belong to packages that are not installed any more."""
    names = list(names)
    return {name: Line() for name in names} | dict(lines_of(_installed(names)))


def _installed(names: Iterable[str]) -> Iterator[Scheme]:
    for name in names:
        try:
            yield scheme_builder(name)()
        except InputError:
            continue
