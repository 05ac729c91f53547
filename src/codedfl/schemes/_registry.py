"""All schemes by name. A new scheme needs a new file and one line here, or a plug-in."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from functools import cache, wraps

from pydantic import ValidationError, validate_call

from codedfl._messages import did_you_mean
from codedfl.errors import InputError
from codedfl.plugins import Plugin, find_plugin, plugin_names
from codedfl.schemes._ccfl import ccfl
from codedfl.schemes._cfl_fb import cfl_fb
from codedfl.schemes._codedfedl import codedfedl
from codedfl.schemes._dp_cfl import dp_cfl
from codedfl.schemes._dp_gd import dp_gd
from codedfl.schemes._fed3r import fed3r
from codedfl.schemes._fedavg import fedavg
from codedfl.schemes._ihm import ihm
from codedfl.schemes._momentum import momentum
from codedfl.schemes._one_shot import one_shot
from codedfl.schemes._scfl import scfl, scfl_fixed
from codedfl.schemes._scfl_private import scfl_private
from codedfl.schemes._ssp import ssp
from codedfl.training import Scheme

SCHEMES: Mapping[str, Callable[..., Scheme]] = {
    "fedavg": fedavg,
    "cfl-fb": cfl_fb,
    "codedfedl": codedfedl,
    "dp-cfl": dp_cfl,
    "scfl-fixed": scfl_fixed,
    "scfl": scfl,
    "ccfl": ccfl,
    "momentum": momentum,
    "fed3r": fed3r,
    "one-shot": one_shot,
    "dp-gd": dp_gd,
    "ihm": ihm,
    "ssp": ssp,
    "scfl-private": scfl_private,
}

PAPER_SCHEMES = ("fedavg", "cfl-fb", "codedfedl", "dp-cfl", "scfl-fixed", "scfl")
"""The schemes that the paper compares."""

DEFAULT_SCHEMES = ("fedavg", "codedfedl", "dp-cfl", "scfl", "momentum", "fed3r", "ccfl")
"""The schemes that a comparison runs by default: one of each kind that runs with any code."""


PRIVATE_SCHEMES = ("dp-gd", "ihm", "ssp", "scfl-private", "one-shot", "dp-cfl")
"""The schemes that a comparison runs by default if it is to keep an epsilon."""

COLOUR = re.compile(r"#[0-9a-fA-F]{6}")

FULLY_PRIVATE = ("dp-gd", "ssp", "one-shot")
"""Schemes that such a comparison should not be without, as epsilon covers everything; the most accurate first."""

YARDSTICK = "fedavg"
"""The scheme that everybody knows, which a verdict holds the others against."""


def scheme_names() -> tuple[str, ...]:
    """Return the names of all schemes: those of `SCHEMES`, and those of plug-ins."""
    return (*SCHEMES, *plugin_names("scheme", SCHEMES))


def scheme_builder(name: str) -> Callable[..., Scheme]:
    """Return the function that builds a scheme, whose arguments are its options.

    Args:
        name: a key of `SCHEMES`, or the name of a plug-in.

    Raises:
        InputError: if there is no such scheme, or its plug-in is broken.
    """
    if name in SCHEMES:
        return SCHEMES[name]
    plugin = find_plugin("scheme", name)
    if plugin is None:
        known = scheme_names()
        raise InputError(f"schemes: there is no {name!r}, only {', '.join(known)}.{did_you_mean(name, known)}")
    return _plugin_builder(plugin)


@cache
def _plugin_builder(plugin: Plugin) -> Callable[..., Scheme]:
    """Load a plug-in, whose function then checks its options and what it returns."""
    builder = plugin.load()
    try:
        parameters = inspect.signature(builder).parameters.values()
        checked = _validated(builder)
    except Exception as error:
        raise plugin.refusal("cannot be used", error) from error
    if without := [item.name for item in parameters if item.default is item.empty]:
        raise plugin.refusal(f"has arguments without a default ({', '.join(without)})")

    @wraps(builder)
    def build(**options: object) -> Scheme:
        try:
            scheme: Scheme = plugin.require(checked(**options), Scheme)
        except (InputError, ValidationError):
            raise
        except Exception as error:
            raise plugin.refusal("failed", error) from error
        if scheme.name != plugin.name:
            raise plugin.refusal(f"returned a scheme of another name, {scheme.name!r}")
        if scheme.colour is not None and not COLOUR.fullmatch(str(scheme.colour)):
            raise plugin.refusal(f"returned a scheme whose colour is {scheme.colour!r} instead of #rrggbb")
        return scheme

    return build


def make_scheme(name: str, options: Mapping[str, object] | None = None) -> Scheme:
    """Build a scheme by name.

    Args:
        name: a key of `SCHEMES`, or the name of a plug-in.
        options: the arguments of its builder that differ from their defaults.

    Raises:
        InputError: if the scheme, an option or a value does not exist.

    Example:
        >>> make_scheme("scfl", {"batch": 16}).title
        'SCFL (b=16)'
        >>> make_scheme("sclf")
        Traceback (most recent call last):
        codedfl.errors.InputError: schemes: there is no 'sclf', only fedavg, cfl-fb, codedfedl, dp-cfl, scfl-fixed, scfl, \
ccfl, momentum, fed3r, one-shot, dp-gd, ihm, ssp, scfl-private. Did you mean 'scfl'?
    """
    builder = scheme_builder(name)
    try:
        return (_validated(builder) if name in SCHEMES else builder)(**(options or {}))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"][:1])
        problem = "there is no such option" if first["type"] == "unexpected_keyword_argument" else first["msg"].lower()
        raise InputError(
            f"options.{name}.{field} = {first['input']!r}: {problem}; `codedfl config` lists the options of each scheme."
        ) from error


@cache
def _validated(builder: Callable[..., Scheme]) -> Callable[..., Scheme]:
    """Make a builder check its arguments; doing that anew for every call takes milliseconds."""
    return validate_call(builder)
