from __future__ import annotations

from codedfl.experiment import Experiment, Observer, run
from codedfl.training import Callback, Evaluator, Progress, RunResult, Scheme, StepSizeChoice
from tests.support import small_config


class Diary(Observer, Callback):
    """Writes down what happens, rounds included."""

    def __init__(self) -> None:
        self.entries: list[str] = []

    def on_stage(self, text: str) -> None:
        self.entries.append(text)

    def on_ready(self, experiment: Experiment, evaluator: Evaluator) -> None:
        assert evaluator.setting is experiment.setting
        self.entries.append("ready")

    def on_tuning(self, scheme: Scheme, trials: int) -> None:
        self.entries.append(f"tuning {scheme.name} with {trials}")

    def on_trial(self) -> None:
        self.entries.append("trial")

    def on_choice(self, scheme: Scheme, choice: StepSizeChoice) -> None:
        self.entries.append(f"{scheme.name} takes {choice.scale}")

    def callbacks(self, scheme: Scheme) -> tuple[Callback, ...]:  # noqa: ARG002
        return (self,)

    def on_start(self, progress: Progress, rounds: int) -> None:
        self.entries.append(f"from round {progress.state.round} to {rounds}")

    def on_outcome(self, result: RunResult) -> None:
        self.entries.append(f"{result.scheme.name} {result.status}")


def test_an_observer_hears_of_everything_in_order() -> None:
    diary = Diary()
    run(small_config(learning_rate__scale="grid", learning_rate__grid=[0.2, 0.4, 1e7]), observer=diary)
    tuning = [entry for entry in diary.entries if "tuning" in entry or entry == "trial" or "takes" in entry]
    assert diary.entries[:3] == ["loading digits", "solving for the centralised optimum", "ready"]
    assert [entry.split(" takes")[0] for entry in tuning] == [
        *("tuning fedavg with 3", "trial", "trial", "trial", "fedavg"),
        *("tuning scfl with 3", "trial", "trial", "trial", "scfl"),
    ]
    assert diary.entries[3 + len(tuning) :] == [
        *("preparing FedAvg", "from round 0 to 12", "fedavg completed"),
        *("preparing SCFL", "from round 0 to 12", "scfl completed"),
    ]


def test_the_base_class_watches_in_silence() -> None:
    assert not run(small_config(schemes=["dp-cfl"]), observer=Observer()).interrupted
