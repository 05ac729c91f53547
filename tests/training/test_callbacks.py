from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest

from codedfl.schemes import fedavg
from codedfl.training import (
    Callback,
    Evaluation,
    LearningRate,
    RunProgress,
    RunResult,
    StopOnInterrupt,
    StopTraining,
    train,
)
from tests.problems import make_setting


class Recorder(Callback):
    def __init__(self) -> None:
        self.events: list[Any] = []

    def on_start(self, progress: RunProgress, rounds: int) -> None:
        self.events.append(("start", progress.state.round, rounds))

    def on_round(self, progress: RunProgress) -> None:
        self.events.append(("round", progress.state.round))

    def on_evaluation(self, evaluation: Evaluation) -> None:
        self.events.append(("evaluation", evaluation.round))

    def on_end(self, result: RunResult) -> None:
        self.events.append(("end", result.status))


class InterruptAt(Callback):
    def __init__(self, round: int, number: signal.Signals) -> None:
        self.round, self.number = round, number

    def on_round(self, progress: RunProgress) -> None:
        if progress.state.round == self.round:
            os.kill(os.getpid(), self.number)


def test_callbacks_see_the_run_in_order() -> None:
    recorder = Recorder()
    train(fedavg().prepare(make_setting()), LearningRate(0.01), 3, evaluate_every=2, callbacks=[recorder])
    assert recorder.events == [
        ("start", 0, 3),
        ("round", 1),
        ("evaluation", 2),
        ("round", 2),
        ("evaluation", 3),
        ("round", 3),
        ("end", "completed"),
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_run_after_the_round_and_keeps_the_results(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    stop = StopOnInterrupt()
    with stop.listening():
        result = train(
            fedavg().prepare(make_setting()), LearningRate(0.01), 50, callbacks=[InterruptAt(4, number), stop]
        )
    assert result.status == "interrupted"
    assert "stopped by the user after round 4 of 50" in result.message
    assert [point.round for point in result.curve] == [0, 1, 2, 3, 4]
    assert signal.getsignal(number) == before


def test_a_second_interrupt_does_not_wait() -> None:
    stop = StopOnInterrupt()
    with pytest.raises(KeyboardInterrupt), stop.listening():  # noqa: PT012 (both signals belong to it)
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)


def test_listening_outside_the_main_thread_does_nothing() -> None:
    entered: list[bool] = []

    def work() -> None:
        with StopOnInterrupt().listening():
            entered.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert entered == [True]


def test_a_request_to_stop_says_interrupted_unless_told() -> None:
    assert StopTraining("why").status == "interrupted"
    assert StopTraining("why", "diverged").status == "diverged"
