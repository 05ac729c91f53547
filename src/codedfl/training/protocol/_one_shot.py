"""Schemes that solve for their model once, from what was uploaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from codedfl.coding import CodedData
from codedfl.setting import Setting
from codedfl.training.protocol._aggregation import Round
from codedfl.training.protocol._devices import DevicePlan
from codedfl.training.protocol._scheme import PreparedScheme, Scheme
from codedfl.typing import FloatArray
from codedfl.uploads import HeldT


@dataclass(frozen=True)
class OneShot(Scheme[HeldT]):
    """A scheme without rounds: `init` returns the solution, whatever ``W_0``, and there is no step size.

    A subclass says how to solve, and what that costs the server.
    """

    @property
    def tunes_itself(self) -> bool:
        """True: there are no steps."""
        return True

    @property
    def one_shot(self) -> bool:
        """True: the model is complete after the upload."""
        return True

    def solve(self, held: HeldT) -> FloatArray:
        """Return the model, (d, o), from what the server holds."""
        raise NotImplementedError

    def predicted(self, values: FloatArray, optimum: FloatArray, coded: Callable[[], CodedData]) -> FloatArray:
        """Return the model that `solve` is expected to find, if ``forecast`` is ``solution``, (d, o).

        Args:
            values: eigenvalues of ``X^T X``, (d,).
            optimum: the least-squares model in the basis of its eigenvectors, (d, o).
            coded: draws the scheme's coded data in that basis.
        """
        raise NotImplementedError

    def solving_macs(self, setting: Setting, plan: DevicePlan) -> float:
        """Return the server's arithmetic to solve for the model."""
        raise NotImplementedError

    def preparing_macs(self, setting: Setting, plan: DevicePlan) -> float:
        """Return `solving_macs`: the model is complete before the first round."""
        return self.solving_macs(setting, plan)

    def init(self, prepared: PreparedScheme[HeldT], model: FloatArray) -> Any:
        """Return the state with the solution as its model."""
        return super().init(prepared, self.solve(prepared.held).astype(model.dtype))

    def step(self, state: Any, round: Round) -> tuple[Any, Mapping[str, float]]:  # noqa: ARG002 (nothing happens)
        """Return the state with its round counted."""
        return replace(state, round=state.round + 1), {}

    def describe_server(self) -> str:
        """Return when the server solves."""
        return "nothing (solves once before)"

    def describe_steps(self) -> str:
        """Return that there are none."""
        return "none"

    def describe_combination(self) -> str:
        """Return that nothing is combined."""
        return "-"

    def describe_result(self) -> str:
        """Return that it is the solution."""
        return "solution"
