"""FedProx (Li et al., MLSys 2020): a scheme with a device's half of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from codedfl.schemes import fedavg
from codedfl.training import Local, Payload, Scheme


@dataclass(frozen=True)
class FedProx(Scheme):
    """Every local step is on ``f_i(W) + pull / 2 ||W - W_k||^2``."""

    pull: float = 0.0

    def update(self, memory: Any, sent: Payload, local: Local) -> tuple[Any, Payload]:
        """Return the accumulated gradient of steps that are pulled back to the model that they started from."""
        return memory, {"update": local.descend(sent["model"], pull=self.pull)}


def fedprox(pull: Annotated[float, Field(ge=0, description="strength of the pull; 0 is FedAvg")] = 0.1) -> Scheme:
    """FedAvg whose local models stay close to the global one."""
    return FedProx(**{**vars(fedavg()), "name": "fedprox", "title": "FedProx", "colour": "#E7298A"}, pull=pull)
