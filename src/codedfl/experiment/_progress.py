"""Someone who watches a comparison; the command line's progress display is one."""

from __future__ import annotations

from collections.abc import Sequence

from codedfl.experiment._build import Experiment
from codedfl.training import Callback, Evaluator, RunResult, Scheme, StepSizeChoice


class Observer:
    """Sees nothing; subclasses override what they need."""

    def on_stage(self, text: str) -> None:
        """Run before each piece of preparation."""

    def on_ready(self, experiment: Experiment, evaluator: Evaluator) -> None:
        """Run when data, fleet and reference are there, before any training."""

    def on_tuning(self, scheme: Scheme, trials: int) -> None:
        """Run before the step size of a scheme is chosen from ``trials`` candidates."""

    def on_trial(self) -> None:
        """Run after each tuning run."""

    def on_choice(self, scheme: Scheme, choice: StepSizeChoice) -> None:
        """Run when the step size is chosen."""

    def callbacks(self, scheme: Scheme) -> Sequence[Callback]:  # noqa: ARG002
        """Return callbacks for the run of a scheme."""
        return ()

    def on_outcome(self, result: RunResult) -> None:
        """Run after each scheme."""
