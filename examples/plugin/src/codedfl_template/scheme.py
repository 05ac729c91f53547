"""A scheme: FedAvg that halves its step size every so many rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from codedfl.schemes import fedavg
from codedfl.training import Round, Scheme

Every = Annotated[int, Field(ge=1, description="rounds after which the step size is halved")]


@dataclass(frozen=True)
class StepDecay(Scheme):
    """A scheme whose server takes smaller and smaller steps."""

    every: int = 50

    def step(self, state: Any, round: Round) -> tuple[Any, Mapping[str, float]]:
        """Return the state after a step, halved once for every ``every`` rounds that have passed."""
        update = self.aggregation.combine(round, state.model)
        return self.moved(state, update, round.step_size * 0.5 ** (state.round // self.every)), {}


def step_decay(every: Every = 50) -> Scheme:
    """FedAvg with steps that are halved every so many rounds."""
    parts = {**vars(fedavg()), "name": "step-decay", "title": "Step decay", "colour": "#A6761D"}
    return StepDecay(**parts, every=every)
