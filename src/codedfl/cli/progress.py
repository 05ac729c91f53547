"""Live progress on a terminal; one line a scheme where there is none."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from codedfl.cli.bars import Bars
from codedfl.experiment import Experiment, Observer
from codedfl.training import Callback, Evaluation, Evaluator, RunResult, Scheme, StepSizeChoice
from codedfl.training import Progress as TrainingProgress


class ProgressDisplay(Bars, Observer):
    """Shows what is going on: the stage, then a bar for each scheme with its score so far.

    Args:
        console: where to write.
        verbose: whether to write lines where there is no terminal to draw bars on.
    """

    def __init__(self, console: Console, verbose: bool = True) -> None:
        super().__init__(
            console,
            verbose,
            TextColumn("{task.description:<34}", markup=False),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
        )

    def _show(self, text: str, total: int | None) -> TaskID:
        """Replace the line of the current stage."""
        if self.stage is not None:
            self.progress.remove_task(self.stage)
        self.stage = self.progress.add_task(text, total=total, note="")
        return self.stage

    def on_stage(self, text: str) -> None:
        """Show what is being prepared."""
        self._show(text, None)

    def on_ready(self, experiment: Experiment, evaluator: Evaluator) -> None:
        """Show the size of the problem and the centralised score."""
        federation, reference = experiment.setting.federation, evaluator.reference
        text = f"{federation.total_samples} samples on {federation.devices} devices, {federation.dimension} features"
        if reference:
            text += f"; centralised {evaluator.metric} {reference.score:.4f}"
        if self.lines or self.console.is_terminal:
            self.console.print(text, highlight=False)

    def on_tuning(self, scheme: Scheme, trials: int) -> None:
        """Show a bar of the candidates."""
        self._show(f"step size of {scheme.title}", trials)

    def on_trial(self) -> None:
        """Advance that bar."""
        if self.stage is not None:
            self.progress.advance(self.stage)

    def on_choice(self, scheme: Scheme, choice: StepSizeChoice) -> None:
        """Say what was chosen, where there is no table to come that does."""
        if self.lines:
            self.console.print(f"{scheme.title}: step size {choice.scale:g} / L", highlight=False)

    def callbacks(self, scheme: Scheme) -> Sequence[Callback]:
        """Return the callback that draws the scheme's bar."""
        if self.stage is not None:
            self.progress.remove_task(self.stage)
            self.stage = None
        return (_Bar(self.progress, scheme.title),)

    def on_outcome(self, result: RunResult) -> None:
        """Say how a scheme ended."""
        if self.lines:
            self.console.print(
                f"{result.scheme.title}: {result.status}, {result.final.score:.4f} after {result.progress.ledger.rounds} rounds",
                highlight=False,
            )


class _Bar(Callback):
    def __init__(self, progress: Progress, title: str) -> None:
        self.progress, self.title = progress, title
        self.task: TaskID | None = None

    def on_start(self, progress: TrainingProgress, rounds: int) -> None:
        self.task = self.progress.add_task(self.title, total=rounds, completed=progress.state.round, note="")

    def on_round(self, progress: TrainingProgress) -> None:
        if self.task is not None:
            self.progress.update(self.task, completed=progress.state.round)

    def on_evaluation(self, evaluation: Evaluation) -> None:
        if self.task is not None:
            self.progress.update(self.task, note=f"{evaluation.score:.4f}")

    def on_end(self, result: RunResult) -> None:
        if self.task is not None and result.status != "completed":
            self.progress.update(self.task, note=result.status)
            self.progress.stop_task(self.task)
