"""Schemes that solve for their model once, from what was uploaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from codedfl.training._aggregation import Round
from codedfl.training._devices import DevicePlan
from codedfl.training._scheme import PreparedScheme, Scheme
from codedfl.training._setting import Setting
from codedfl.training._uploads import UploadCost, Uploaded
from codedfl.typing import FloatArray


@dataclass(frozen=True)
class OneShot(Scheme):
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

    def solve(self, prepared: PreparedScheme) -> FloatArray:
        """Return the model, (d, o)."""
        raise NotImplementedError

    def solving_macs(self, setting: Setting, plan: DevicePlan) -> float:
        """Return the server's arithmetic to solve for the model."""
        raise NotImplementedError

    def init(self, prepared: PreparedScheme, model: FloatArray) -> Any:
        """Return the state with the solution as its model."""
        return super().init(prepared, self.solve(prepared).astype(model.dtype))

    def apply(self, state: Any, round: Round) -> tuple[Any, Mapping[str, float]]:  # noqa: ARG002 (nothing happens)
        """Return the state with its round counted."""
        return replace(state, round=state.round + 1), {}

    def prepared(
        self, setting: Setting, plan: DevicePlan, uploaded: Uploaded, cost: UploadCost | None
    ) -> PreparedScheme:
        """Return the scheme with the solution charged to the server, besides the upload."""
        charged = cost and self._with_solution(setting, plan, cost)
        return super().prepared(setting, plan, uploaded, charged)

    def upload_cost(self, setting: Setting, plan: DevicePlan) -> UploadCost | None:
        """Return the cost of the upload and of the solution."""
        cost = super().upload_cost(setting, plan)
        return cost and self._with_solution(setting, plan, cost)

    def _with_solution(self, setting: Setting, plan: DevicePlan, cost: UploadCost) -> UploadCost:
        return cost.with_server_macs(setting, self.solving_macs(setting, plan))
