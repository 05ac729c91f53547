from __future__ import annotations

import csv
from pathlib import Path

from codedfl.schemes import fedavg
from codedfl.training import Callback, Evaluation, LearningRate, Recorder, train
from tests.problems import make_setting


class LineCounter(Callback):
    """Reads the file as someone who watches it would."""

    def __init__(self, path: Path) -> None:
        self.path, self.counts = path, [0]

    def on_evaluation(self, evaluation: Evaluation) -> None:  # noqa: ARG002
        self.counts.append(len(self.path.read_text().splitlines()))


def test_the_curve_grows_on_disk_while_the_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "curve.csv"
    watcher = LineCounter(path)
    result = train(
        fedavg().prepare(make_setting()),
        LearningRate(0.01),
        6,
        evaluate_every=2,
        callbacks=[Recorder(path, "fedavg"), watcher],
    )
    assert watcher.counts == [0, 3, 4, 5]  # a header, the start, and one more each time
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [float(row["score"]) for row in rows] == [point.score for point in result.curve]
    assert {row["scheme"] for row in rows} == {"fedavg"}
