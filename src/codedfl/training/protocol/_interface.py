"""Whether a scheme returns what the loop and the checkpoint need: asked in every round, so that a mistake ends in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

import numpy as np

from codedfl.errors import InputError
from codedfl.plugins import find_plugin
from codedfl.training.protocol._aggregation import Round
from codedfl.training.protocol._scheme import PreparedScheme, Scheme, State
from codedfl.training.run._records import record_arrays
from codedfl.typing import FloatArray


def initial_state(prepared: PreparedScheme, model: FloatArray) -> State:
    """Return the state before the first round.

    Raises:
        InputError: the scheme returned something else, naming the method and what is wrong.
    """
    state: State = prepared.scheme.init(prepared, model)
    _require_state(prepared.scheme, "init", state, model.shape)
    _require_storable(prepared.scheme, "init", state)
    return state


def next_state(scheme: Scheme, state: State, round: Round) -> tuple[State, Mapping[str, float]]:
    """Return the state after a round, and the scheme's diagnostics.

    Raises:
        InputError: the scheme returned something else, naming the method and what is wrong.
    """
    returned: Any = scheme.step(state, round)
    match returned:
        case (following, Mapping() as diagnostics):
            _require_state(scheme, "step", following, state.model.shape)
            if following.round != state.round + 1:
                raise refusal(
                    scheme, f"returned a state of round {following.round} from `step` instead of {state.round + 1}"
                )
            if state.round == 0:
                _require_storable(scheme, "step", following)
            return following, diagnostics
    raise refusal(
        scheme, f"returned a {type(returned).__name__} from `step` instead of a state and a dictionary of diagnostics"
    )


def returned_model(scheme: Scheme, state: State) -> FloatArray:
    """Return the model that the scheme would return now.

    Raises:
        InputError: it is none.
    """
    model = scheme.final_model(state)
    _require_model(scheme, "final_model", model, state.model.shape)
    return model


def refusal(scheme: Scheme, what: str, error: Exception | None = None) -> InputError:
    """Return the error for a scheme that does not do what it should, with its package if it is a plug-in."""
    plugin = find_plugin("scheme", scheme.name)
    if plugin is not None:
        return plugin.refusal(what, error)
    because = f" ({type(error).__name__}: {error})" if error is not None else ""
    return InputError(f"the scheme {scheme.name!r} {what}{because}.")


def _require_state(scheme: Scheme, method: str, state: Any, shape: tuple[int, ...]) -> None:
    try:
        number, model = state.round, state.model
    except Exception as error:
        raise refusal(scheme, f"returned a state from `{method}` without a round or a model", error) from error
    if not isinstance(number, int | np.integer):
        raise refusal(scheme, f"returned a state from `{method}` whose round is a {type(number).__name__}")
    _require_model(scheme, method, model, shape)


def _require_model(scheme: Scheme, method: str, model: Any, shape: tuple[int, ...]) -> None:
    if not isinstance(model, np.ndarray) or model.dtype.kind != "f":
        kind = f"array of {model.dtype}" if isinstance(model, np.ndarray) else type(model).__name__
        raise refusal(scheme, f"returned a model from `{method}` that is a {kind} instead of an array of floats")
    if model.shape != shape:
        raise refusal(scheme, f"returned a model of shape {model.shape} from `{method}` instead of {shape}")


def _require_storable(scheme: Scheme, method: str, state: Any) -> None:
    """Refuse a state that no checkpoint could hold."""
    if not is_dataclass(state):
        raise refusal(
            scheme, f"returned a state from `{method}` that is a {type(state).__name__} instead of a dataclass"
        )
    try:
        record_arrays("state", state)
    except TypeError as error:
        raise refusal(scheme, f"returned a state from `{method}` that no checkpoint can hold", error) from error
