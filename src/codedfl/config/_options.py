"""The options of single schemes, which are the arguments of their builders."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from typing import Any, get_type_hints

from codedfl._messages import no_such_key
from codedfl.errors import InputError
from codedfl.schemes import make_scheme, scheme_builder

MAX_COUNT = 10**9
"""The largest count: larger ones are typing errors, or overflow."""


def option_defaults(scheme: str) -> dict[str, Any]:
    """Return the options of a scheme with their defaults.

    Example:
        >>> option_defaults("scfl")
        {'batch': 'adaptive', 'device_weight': 0.5, 'weight_cap': 100.0, 'upload': 'rows'}
    """
    return dict(_defaults(scheme))


@cache
def _defaults(scheme: str) -> Mapping[str, Any]:
    """Read the defaults from the signature, which takes a while."""
    return {name: item.default for name, item in inspect.signature(scheme_builder(scheme)).parameters.items()}


def option_descriptions(scheme: str) -> dict[str, str]:
    """Return the descriptions of a scheme's options, from the ``Field`` in the annotation of each.

    Example:
        >>> option_descriptions("scfl")["device_weight"]
        'share of the devices in the update; the paper has 1/2'
    """
    hints = get_type_hints(scheme_builder(scheme), include_extras=True)
    return {name: _description(hints.get(name)) for name in option_defaults(scheme)}


def _description(hint: Any) -> str:
    """Return the description in an annotation; plug-ins may lack one."""
    described = (getattr(item, "description", None) for item in getattr(hint, "__metadata__", ()))
    return next((text for text in described if text), "no description")


def check_options(scheme: str, options: Mapping[str, Any]) -> None:
    """Refuse options that a scheme does not have, and invalid values."""
    known = option_defaults(scheme)
    for name, value in options.items():
        if name not in known:
            raise InputError(no_such_key(f"options.{scheme}.", name, known))
        if not isinstance(value, bool | int | float | str) or (
            isinstance(value, int | float) and abs(value) > MAX_COUNT
        ):
            raise InputError(
                f"options.{scheme}.{name} is not possible: it must be a string, true or false, or a number (at most {MAX_COUNT})."
            )
        if isinstance(value, bool) and not isinstance(known[name], bool):
            raise InputError(
                f"options.{scheme}.{name} = {str(value).lower()} is not possible: it must be a number or a word, such as"
                f" {known[name]}."
            )
    try:
        make_scheme(scheme, options)
    except InputError as error:
        text = str(error)
        raise InputError(text if text.startswith("options.") else f"options.{scheme}.{text}") from error
