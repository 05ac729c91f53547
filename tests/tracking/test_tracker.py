from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from codedfl.errors import InputError
from codedfl.experiment import run, sweep
from codedfl.tracking import Tracker, tracker_from
from codedfl.training import Callback, RunProgress, Status
from tests.support import StopAfter, small_config


@dataclass
class Record:
    """What a writer was told."""

    title: str
    params: Mapping[str, str]
    points: list[tuple[int, Mapping[str, float]]] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)
    status: Status | None = None
    broken_after: int = 10**9

    def log_metrics(self, metrics: Mapping[str, float], round: int) -> None:
        if len(self.points) >= self.broken_after:
            raise OSError("the disk is full")
        self.points.append((round, metrics))

    def log_tags(self, tags: Mapping[str, str]) -> None:
        self.tags.update(tags)

    def close(self, status: Status) -> None:
        assert self.status is None
        self.status = status


class Diary(Tracker):
    def __init__(self, broken_after: int = 10**9) -> None:
        super().__init__()
        self.records: list[Record] = []
        self.broken_after = broken_after

    def start(self, title: str, params: Mapping[str, str]) -> Record:
        self.records.append(Record(title, params, broken_after=self.broken_after))
        return self.records[-1]


def test_every_evaluation_of_every_scheme_is_recorded_with_its_configuration() -> None:
    diary = Diary()
    comparison = run(small_config(features__gamma=0.5), callbacks=(diary,))
    assert [record.title for record in diary.records] == ["FedAvg", "SCFL"]
    for record, result in zip(diary.records, comparison.results, strict=True):
        assert [number for number, _ in record.points] == [point.round for point in result.curve]
        assert [metrics["score"] for _, metrics in record.points] == [point.score for point in result.curve]
        wanted = {"score", "loss", "simulated_time_s", "everything_charged_s", "bytes_up", "mean_arrivals"}
        assert wanted <= set(record.points[-1][1])
        assert (record.params["training.rounds"], record.params["data.dataset"]) == ("12", "digits")
        assert (record.params["features.gamma"], record.params["data.drop"]) == ("0.5", "[]")
        assert record.params["scheme"] == result.scheme.name
        assert all(isinstance(value, str) for value in record.params.values())
        assert record.status == record.tags["status"] == "completed"
        assert "public" in record.tags["privacy.outside"]
    fedavg, scfl = diary.records
    assert (fedavg.tags["privacy.epsilon"], fedavg.tags["privacy.covers"]) == ("no bound", "nothing")
    assert scfl.params["options.scfl.batch"] == "adaptive"
    assert not any(name.startswith("options.scfl") for name in fedavg.params)


def test_short_runs_that_choose_a_step_size_are_left_out() -> None:
    diary = Diary()
    run(small_config(schemes=["fedavg"], learning_rate__scale="grid"), callbacks=(diary,))
    assert [record.title for record in diary.records] == ["FedAvg"]
    assert [number for number, _ in diary.records[0].points][-1] == 12


def test_runs_in_lock_step_are_kept_apart() -> None:
    diary = Diary()
    configs = [small_config(coding__noise_variance=variance) for variance in (0.1, 10.0)]
    quiet, noisy = sweep(configs, callbacks=(diary,))
    assert [record.title for record in diary.records] == ["FedAvg", "SCFL", "SCFL"]
    for record, result in zip(diary.records[1:], (quiet["scfl"], noisy["scfl"]), strict=True):
        assert [metrics["loss"] for _, metrics in record.points] == [point.loss for point in result.curve]


def test_a_run_that_diverges_is_recorded_to_its_end_without_numbers_that_are_none() -> None:
    diary = Diary()
    config = small_config(schemes=["fedavg"], learning_rate__scale=1e20, training__evaluations=12)
    comparison = run(config, callbacks=(diary,))
    assert diary.records[0].status == comparison["fedavg"].status == "diverged"
    assert diary.records[0].points[-1][0] == comparison["fedavg"].final.round
    assert "loss" not in diary.records[0].points[-1][1]


def test_an_interrupted_run_says_so() -> None:
    diary = Diary()
    run(small_config(), callbacks=(diary, StopAfter(5)))
    assert [record.status for record in diary.records] == ["interrupted"]


def test_a_record_is_closed_if_training_fails() -> None:
    class Broken(Callback):
        def on_round(self, progress: RunProgress) -> None:  # noqa: ARG002
            raise RuntimeError("a defect")

    with pytest.raises(RuntimeError, match="a defect"), Diary() as diary:
        run(small_config(), callbacks=(diary, Broken()))
    assert [record.status for record in diary.records] == ["interrupted"]


def test_training_goes_on_if_a_record_cannot_be_written() -> None:
    diary = Diary(broken_after=3)
    with pytest.warns(UserWarning, match=r"Diary stops recording .* \(the disk is full\); training goes on"):
        comparison = run(small_config(), callbacks=(diary,))
    assert [result.status for result in comparison.results] == ["completed", "completed"]
    assert [len(record.points) for record in diary.records] == [3, 3]


@pytest.mark.parametrize("text", ["", "mlflow", "mlflow:", "tensorboard:", "wandb:x", "mlruns"])
def test_other_trackers_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="give mlflow:URI or tensorboard:FOLDER"):
        tracker_from(text)
