"""Whether both halves of a scheme return what loop, network and checkpoint need, so that a mistake ends in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

import numpy as np

from codedfl.errors import InputError
from codedfl.plugins import find_plugin
from codedfl.training.protocol._aggregation import Payload, Round
from codedfl.training.protocol._local import Local
from codedfl.training.protocol._scheme import PreparedScheme, Scheme, Shape, State
from codedfl.training.run._records import record_arrays
from codedfl.typing import FloatArray


def initial_state(prepared: PreparedScheme, model: FloatArray) -> State:
    """Return the state before the first round.

    Raises:
        InputError: the scheme returned something else, naming the method and what is wrong.
    """
    scheme = prepared.scheme
    state: State = scheme.init(prepared, model)
    _require_state(scheme, "init", state, model.shape)
    _require_storable(scheme, "init", state)
    sent_to_devices(scheme, state)
    if not scheme.has_own_update and scheme.travels_up(model.shape) != {"update": model.shape}:
        declared = sorted(scheme.travels_up(model.shape))
        raise refusal(
            scheme, f"declares {declared} in `travels_up`, where devices without an `update` of its own send ['update']"
        )
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


def initial_memory(scheme: Scheme, shape: Shape, dtype: np.dtype[Any]) -> Any:
    """Return what a device remembers before its first round; None if devices remember nothing.

    Raises:
        InputError: no checkpoint could hold it.
    """
    memory = scheme.first_memory(shape, dtype)
    _require_arrays(scheme, "a memory", "first_memory", memory)
    return memory


def sent_to_devices(scheme: Scheme, state: State) -> Payload:
    """Return what every device receives in a round.

    Raises:
        InputError: it is not what `Scheme.travels_down` declares.
    """
    sent = scheme.broadcast(state)
    _require_declared(scheme, "broadcast", sent, "travels_down", scheme.travels_down(state.model.shape))
    return sent


def device_update(scheme: Scheme, memory: Any, sent: Payload, local: Local, shape: Shape) -> tuple[Any, Payload]:
    """Return what a device remembers after a round, and what it sends.

    Args:
        scheme: whose half of the device it is.
        memory: what the device remembers.
        sent: what it received.
        local: steps on its own rows.
        shape: that of the model.

    Raises:
        InputError: the scheme returned something else, or not what `Scheme.travels_up` declares.
    """
    returned: Any = scheme.update(memory, sent, local)
    match returned:
        case (after, payload):
            _require_declared(scheme, "update", payload, "travels_up", scheme.travels_up(shape))
            _require_arrays(scheme, "a memory", "update", after)
            return after, payload
    raise refusal(scheme, f"returned a {type(returned).__name__} from `update` instead of a memory and a payload")


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
    _require_arrays(scheme, "a state", method, state)


def _require_arrays(scheme: Scheme, what: str, method: str, record: Any) -> None:
    try:
        record_arrays(what.partition(" ")[2], record)
    except TypeError as error:
        raise refusal(scheme, f"returned {what} from `{method}` that no checkpoint can hold", error) from error


def _require_declared(scheme: Scheme, method: str, payload: Any, declares: str, shapes: Mapping[str, Shape]) -> None:
    """Refuse a payload that has not the names and shapes that the scheme declares: bytes and seconds follow from those."""
    if not isinstance(payload, Mapping):
        raise refusal(scheme, f"returned a {type(payload).__name__} from `{method}` instead of arrays by name")
    if payload.keys() != shapes.keys():
        names = sorted(map(str, payload))
        raise refusal(scheme, f"returned {names} from `{method}`, where `{declares}` declares {sorted(shapes)}")
    for name, shape in shapes.items():
        array = payload[name]
        if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
            raise refusal(scheme, f"returned {name!r} from `{method}` that is no array of floats")
        if array.shape != shape:
            raise refusal(
                scheme, f"returned {name!r} of shape {array.shape} from `{method}`, where `{declares}` declares {shape}"
            )
