"""The results of a run, as plain objects."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from codedfl.training.protocol._scheme import PreparedScheme, Scheme, State
from codedfl.training.run._learning_rate import LearningRate
from codedfl.training.run._ledger import Ledger
from codedfl.typing import FloatArray, ShortRepr

Status = Literal["running", "completed", "diverged", "interrupted"]


@dataclass(frozen=True)
class Evaluation:
    """One point of a learning curve: the model that the scheme would return at that time.

    Args:
        round: rounds completed.
        simulated_time_s: training time on the simulated clock, the paper's convention.
        everything_charged_s: the same plus encoding, coded upload and the server's preparation.
        loss: training loss ``f(W) / m``, by the loss that the scheme minimises.
        last_loss: that of the last iterate.
        score: test accuracy or R2.
        last_score: that of the last iterate.
        gap: ``(f(W) - f(W*)) / m``; NaN if the optimum is not known: data too wide for a Gram matrix, or a loss without a
            closed-form optimum.
        distance: ``||W - W*||_F / ||W*||_F``; NaN likewise.
        mean_arrivals: updates that arrived per round, on average so far.
        bytes_up: bytes received by the server so far, including the coded upload.
    """

    round: int
    simulated_time_s: float
    everything_charged_s: float
    loss: float
    last_loss: float
    score: float
    last_score: float
    gap: float
    distance: float
    mean_arrivals: float
    bytes_up: float


@dataclass(repr=False)
class RunProgress(ShortRepr):
    """Everything that changes during a run: the content of a checkpoint.

    Args:
        state: the state of the scheme.
        ledger: the charges so far.
        curve: the evaluations so far.
        wall_time_s: real time spent training, resumed runs included.
        status: ``running`` until the run has ended.
        message: what happened, if the run did not complete as planned.
        back_offs: how often the run diverged and continued with a smaller step size.
        devices: what each device remembers; empty if devices remember nothing.
        good_state: the state to return to if the run diverges.
        good_devices: what each device remembered then.
        back_off_message: what happened when it did, kept if the run is interrupted and resumed.
    """

    state: State
    ledger: Ledger
    curve: list[Evaluation] = field(default_factory=list)
    wall_time_s: float = 0.0
    status: Status = "running"
    message: str = ""
    back_offs: int = 0
    devices: tuple[Any, ...] = ()
    good_state: State | None = None
    good_devices: tuple[Any, ...] = ()
    back_off_message: str = ""


@dataclass(frozen=True)
class Trial:
    """One short run of a step-size search.

    Args:
        scale: the step size in units of ``1 / L``.
        score: accuracy or R2 on the validation data; minus infinity if the run diverged.
        loss: training loss of the last model, infinity if the run diverged.
    """

    scale: float
    score: float
    loss: float


@dataclass(frozen=True)
class StepSizeChoice:
    """The outcome of a step-size search.

    Args:
        scale: the best step size, in units of ``1 / L``.
        trials: every point of the grid, in grid order.
    """

    scale: float
    trials: tuple[Trial, ...]

    @property
    def at_edge(self) -> bool:
        """Whether the best is the smallest or largest of the grid, so that a wider grid might do better."""
        return self.scale in (min(t.scale for t in self.trials), max(t.scale for t in self.trials))


@dataclass(frozen=True)
class RunResult:
    """A finished run of one scheme.

    Args:
        prepared: the scheme, its setting and its coded data.
        learning_rate: the step sizes used.
        progress: state, charges and curve at the end.
        scale: the step size in units of ``1 / L``; None if the caller gave an absolute one, or if the scheme tunes itself.
        choice: the search that picked it from a grid; None if the caller gave it.
    """

    prepared: PreparedScheme
    learning_rate: LearningRate
    progress: RunProgress
    scale: float | None = None
    choice: StepSizeChoice | None = None

    def __repr__(self) -> str:
        if not self.curve:
            return f"RunResult({self.scheme.name!r}, {self.status}, no evaluation yet)"
        final = self.final
        times = f"{final.simulated_time_s:.4g} s, {final.everything_charged_s:.4g} s with everything charged"
        return f"RunResult({self.scheme.name!r}, {self.status}, score {final.score:.4f} after {final.round} rounds, {times})"

    @property
    def status(self) -> Status:
        """``completed``, ``diverged`` or ``interrupted``."""
        return self.progress.status

    @property
    def message(self) -> str:
        """What happened, if the run did not complete."""
        return self.progress.message

    @property
    def scheme(self) -> Scheme:
        """The scheme that ran."""
        return self.prepared.scheme

    @property
    def curve(self) -> list[Evaluation]:
        """The learning curve."""
        return self.progress.curve

    @property
    def final(self) -> Evaluation:
        """The last point of the curve."""
        return self.progress.curve[-1]

    @property
    def model(self) -> FloatArray:
        """The model that the scheme returns, (d, o)."""
        return self.scheme.final_model(self.progress.state)

    def time_to(self, score: float) -> float | None:
        """Return the simulated time of the first evaluation at or above ``score``; None if the run never reached it."""
        return next((point.simulated_time_s for point in self.curve if point.score >= score), None)
