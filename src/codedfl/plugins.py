"""Plug-ins: schemes, datasets and fleets that other packages offer by entry points."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

from codedfl._messages import listing, shown
from codedfl.errors import InputError

Kind = Literal["scheme", "dataset", "fleet"]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
"""What a plug-in may be called: names become names of files."""


@dataclass(frozen=True)
class Plugin:
    """Something that an installed package offers.

    Args:
        kind: ``scheme``, ``dataset`` or ``fleet``.
        name: its name in a configuration.
        package: the package and its version; empty if it is not known.
        target: the module and function that its entry point names.
        problem: why it is not used, in words; empty if it is.
    """

    kind: Kind
    name: str
    package: str
    target: str
    problem: str = ""

    def load(self) -> Callable[..., Any]:
        """Import the function.

        Raises:
            InputError: it cannot be imported, or is no function; the message names the package.
        """
        try:
            function = EntryPoint(self.name, self.target, f"codedfl.{self.kind}s").load()
        except Exception as error:
            raise self.refusal("cannot be loaded", error) from error
        if not callable(function) or isinstance(function, type):
            raise self.refusal(f"is {shown(function)} instead of a function")
        loaded: Callable[..., Any] = function
        return loaded

    def call(self, function: Callable[..., Any], expected: type | tuple[type, ...], *arguments: Any) -> Any:
        """Call what was loaded, and check what it returns.

        Raises:
            InputError: it failed, or returned something else than expected; an `InputError` of its own passes.
        """
        try:
            result = function(*arguments)
        except InputError:
            raise
        except Exception as error:
            raise self.refusal("failed", error) from error
        return self.require(result, expected)

    def require(self, result: Any, expected: type | tuple[type, ...]) -> Any:
        """Return what the function returned, or refuse it if it is of another type."""
        if not isinstance(result, expected):
            wanted = " or ".join(each.__name__ for each in (expected if isinstance(expected, tuple) else (expected,)))
            raise self.refusal(f"returned a {type(result).__name__} instead of a {wanted}")
        return result

    def sources(self) -> dict[str, Path]:
        """Return the Python files of the package that the entry point names, by their paths in it, without importing any."""
        module = self.target.partition(":")[0].strip()
        try:
            spec = find_spec(module.partition(".")[0])
        except (ImportError, ValueError):
            return {}
        if spec is None:
            return {}
        if spec.submodule_search_locations is None:
            return {Path(spec.origin).name: Path(spec.origin)} if spec.origin else {}
        folders = [Path(folder) for folder in spec.submodule_search_locations]
        return {file.relative_to(folder).as_posix(): file for folder in folders for file in folder.rglob("*.py")}

    def fingerprint(self) -> str:
        """Return package, version and a hash of all its Python files, in words: what a run has to be continued with."""
        digest = sha256()
        for name, file in sorted(self.sources().items()):
            content = file.read_bytes()
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
        return f"{self.package or self.target}, source {digest.hexdigest()[:16]}"

    def refusal(self, what: str, error: Exception | None = None) -> InputError:
        """Return the error for a plug-in that does not do what it should."""
        because = f" ({type(error).__name__}: {_first_line(error)})" if error is not None else ""
        return InputError(
            f"the {self.kind} {shown(self.name)} of the package {self.package or self.target} {what}{because}: update or "
            "uninstall that package."
        )


def plugins(kind: Kind, built_in: Collection[str] = ()) -> tuple[Plugin, ...]:
    """Return what installed packages offer, by name, without importing any of it.

    Built-in names cannot be taken over, nor can two packages share one: such plug-ins are listed with a ``problem``.

    Args:
        kind: ``scheme``, ``dataset`` or ``fleet``.
        built_in: the names that codedfl has itself.
    """
    found = _offered(kind, tuple(sys.path))
    packages = {
        name: [other.package for other in found if other.name == name] for name in {each.name for each in found}
    }
    return tuple(
        Plugin(kind, each.name, each.package, each.target, _problem(each, packages[each.name], built_in))
        for each in found
    )


def plugin_names(kind: Kind, built_in: Collection[str] = ()) -> tuple[str, ...]:
    """Return the names of all plug-ins of a kind that can be used."""
    return tuple(each.name for each in plugins(kind, built_in) if not each.problem)


def find_plugin(kind: Kind, name: str) -> Plugin | None:
    """Return the plug-in of a name that is not built in; None if no package offers it.

    Raises:
        InputError: a package offers it, but it cannot be used.

    Example:
        >>> find_plugin("scheme", "not-installed") is None
        True
    """
    found = [each for each in plugins(kind) if each.name == name]
    if found and found[0].problem:
        raise InputError(f"the {kind} {shown(name)} {found[0].problem}.")
    return found[0] if found else None


@contextmanager
def blaming_plugins() -> Iterator[None]:
    """Turn an error that arises in the code of a plug-in into one sentence with its package, function and line.

    Raises:
        InputError: from the original error, which has the traceback.
    """
    try:
        yield
    except Exception as error:
        refusal = blamed(error)
        if refusal is None:
            raise
        raise refusal from error


def blamed(error: Exception) -> InputError | None:
    """Return the refusal of the plug-in in whose code an error arose; None if it is a refusal itself, or of another origin.

    The innermost line that belongs to a plug-in counts: what it calls may fail in numpy, or in codedfl.
    """
    if isinstance(error, InputError | MemoryError):
        return None
    owners = {
        str(file.resolve()): plugin
        for kind in get_args(Kind)
        for plugin in plugins(kind)
        for file in plugin.sources().values()
    }
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        plugin = owners.get(str(Path(frame.filename).resolve()))
        if plugin is not None:
            return InputError(
                f"the package {plugin.package or plugin.target} failed in `{frame.name}` at line {frame.lineno} of"
                f" {Path(frame.filename).name} ({type(error).__name__}: {_first_line(error)}): update or uninstall that package."
            )
    return None


@lru_cache(maxsize=8)
def _offered(kind: Kind, path: tuple[str, ...]) -> tuple[Plugin, ...]:  # noqa: ARG001 (other folders, other packages)
    points = entry_points(group=f"codedfl.{kind}s")
    offered = [
        Plugin(kind, point.name, f"{point.dist.name} {point.dist.version}" if point.dist else "", point.value)
        for point in points
    ]
    return tuple(sorted(offered, key=lambda each: (each.name, each.package)))


def _problem(plugin: Plugin, packages: list[str], built_in: Collection[str]) -> str:
    if plugin.name in built_in:
        return f"of {plugin.package or plugin.target} is left out, as codedfl has a {plugin.kind} of that name"
    if len(packages) > 1:
        return f"is offered by several packages ({listing(packages)}): uninstall all but one"
    if not NAME.fullmatch(plugin.name):
        return f"of {plugin.package or plugin.target} is left out, as its name has other characters than letters, digits, - and _"
    return ""


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0].rstrip(".") if lines else "no message"
