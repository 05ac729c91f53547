from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from codedfl._progress_display import ProgressDisplay, showing
from tests.support import Diary


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that is set by hand."""
    now = [0.0]
    monkeypatch.setattr("codedfl._progress_display.time.monotonic", lambda: now[0])
    return now


def console(*, terminal: bool, width: int = 120) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=width)


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def two_tasks(display: ProgressDisplay) -> None:
    with display:
        display.update("loading digits")
        display.say("1258 samples on 6 devices")
        display.update("step size of SCFL", 0, 2)
        display.update("step size of SCFL", 2, 2)
        display.close("step size of SCFL", "0.5 / L")
        display.update("preparing SCFL")
        for k in range(13):
            display.update("SCFL", k, 12, "0.91")
        display.close("SCFL", "completed, 0.9100 after 12 rounds")


def test_without_a_terminal_there_is_a_line_for_each_result() -> None:
    log = console(terminal=False)
    two_tasks(ProgressDisplay(log))
    assert written(log).splitlines() == [
        "1258 samples on 6 devices",
        "step size of SCFL: 0.5 / L",
        "SCFL: completed, 0.9100 after 12 rounds",
    ]


def test_a_long_task_writes_a_line_once_a_minute(clock: list[float]) -> None:
    log = console(terminal=False)
    with ProgressDisplay(log) as display:
        for k in range(0, 401):
            clock[0] = 0.5 * k
            display.update("SCFL", k, 400, "0.91")
    assert written(log).splitlines() == [
        "SCFL: 120/400, 0.91, 0:02:20 left",
        "SCFL: 240/400, 0.91, 0:01:20 left",
        "SCFL: 360/400, 0.91, 0:00:20 left",
    ]


def test_without_a_terminal_and_not_verbose_there_is_silence() -> None:
    log = console(terminal=False)
    two_tasks(ProgressDisplay(log, verbose=False))
    assert written(log) == ""


def test_on_a_terminal_there_are_bars() -> None:
    log = console(terminal=True)
    two_tasks(ProgressDisplay(log))
    last = written(log).rpartition("1258 samples")[2]
    for words in ("2/2", "0.5 / L", "12/12", "completed, 0.9100 after 12 rounds"):
        assert words in last


def test_the_time_left_rests_on_all_of_the_time_so_far_and_on_new_work_alone(clock: list[float]) -> None:
    log = console(terminal=True)
    with ProgressDisplay(log) as display:
        display.update("resumed", 100, 400)
        clock[0] = 100.0
        display.update("resumed", 150, 400)
        clock[0] = 101.0
        display.update("resumed", 200, 400)
        display._display.refresh()
    assert "200/400" in written(log)
    assert "0:03:22 left" in written(log), "100 rounds in 101 s, 200 to go"


def test_a_task_that_is_not_counted_in_whole_units_is_shown_in_percent() -> None:
    log = console(terminal=True)
    with ProgressDisplay(log) as display:
        display.update("training", 1.3, 5.2)
        display._display.refresh()
    assert "25%" in written(log)


def test_the_next_task_replaces_one_of_unknown_length() -> None:
    display = ProgressDisplay(console(terminal=True))
    with display:
        for name in ("loading", "solving", "solving"):
            display.update(name)
        assert [task.description for task in display._display.tasks] == ["solving"]
        display.update("SCFL", 0, 5)
        assert [task.description for task in display._display.tasks] == ["SCFL"]
        display.update("last")
        display.close("last")
        display.close("never heard of")
        assert [task.description for task in display._display.tasks] == ["SCFL"]


@pytest.mark.parametrize("text", ["loading [/a] [b].csv", "loading {0} %s", "x" * 500])
@pytest.mark.parametrize("terminal", [True, False])
def test_names_of_files_are_taken_literally(text: str, terminal: bool) -> None:
    log = console(terminal=terminal, width=700)
    with ProgressDisplay(log) as display:
        display.update(text)
        display.update(text, 1, 2, text)
        display.close(text, text)
        display.say(text)
    assert text in written(log)


def test_a_notebook_shows_bars_in_place_of_those_before(
    clock: list[float], monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    import IPython.display

    pictures: list[str] = []

    class Handle:
        def update(self, bars: Any) -> None:
            pictures.append(bars._repr_mimebundle_([], [])["text/html"])

    def display(bars: Any, **options: object) -> Handle | None:
        html = bars._repr_mimebundle_([], [])["text/html"]
        if "display_id" not in options:  # a line of its own, next to the bars
            said.append(html)
            return None
        pictures.append(html)
        return Handle()

    said: list[str] = []
    monkeypatch.setattr(IPython.display, "display", display)
    with ProgressDisplay(Console(file=io.StringIO(), force_jupyter=True, width=100)) as bars:
        bars.update("loading digits")
        bars.say("1258 samples")
        for k in range(5):
            clock[0] += 0.1
            bars.update("SCFL", k, 4, "0.91")
        bars.close("SCFL")
    assert "loading digits" in pictures[0]
    assert "4/4" in pictures[-1]
    assert "0.91" in pictures[-1]
    assert len(pictures) == 4, "the first, every 0.2 seconds, and the last"
    assert ["1258 samples" in line for line in said] == [True]
    assert not recwarn.list


def test_progress_is_reported_to_what_was_given_to_a_display_or_to_nowhere(
    capsys: pytest.CaptureFixture[str],
) -> None:
    diary = Diary()
    with showing(diary) as given:
        assert given is diary
    for nothing in (False, None):
        with showing(nothing) as silent:
            silent.say("not heard")
    assert capsys.readouterr().err == ""
    with showing(True) as display:
        display.say("heard")
    assert capsys.readouterr().err == "heard\n"
