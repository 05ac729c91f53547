from __future__ import annotations

import pytest

from codedfl.experiment import notes_on, run
from tests.support import small_config


@pytest.mark.parametrize(
    ("total_time_s", "rounds"),
    [(50, "only 1 round fits"), (100, "only 3 rounds fit"), (299, "only 9 rounds fit"), (300, "")],
)
def test_few_rounds_are_pointed_out(total_time_s: float, rounds: str) -> None:
    changes = {"training__rounds": 0, "training__total_time_s": total_time_s, "training__deadline_s": 30}
    notes = notes_on(run(small_config(schemes=["fedavg"], **changes)))
    found = [note for note in notes if note.startswith("only ")]
    assert [note.partition(" in ")[0] for note in found] == ([rounds] if rounds else [])
    assert not rounds or f"training.total_time_s = {total_time_s} with rounds of 30 s (FedAvg)" in found[0]


@pytest.mark.slow
def test_schemes_with_rounds_of_their_own_share_a_note() -> None:
    found = run(small_config(schemes=["dp-gd", "ihm"], privacy__epsilon=2.0))
    (note,) = (note for note in notes_on(found) if "does not apply" in note)
    assert "IHM (3 rounds, " in note
    assert note.endswith(
        "which set their own rounds and the noise for them: options.dp-gd.rounds and options.ihm.rounds change that."
    )


@pytest.mark.parametrize(
    ("changes", "asked"),
    [
        ({"training__rounds": 7}, "training.rounds = 7"),
        ({"training__rounds": 0, "training__total_time_s": 50}, "training.total_time_s = 50"),
        ({"training__rounds": 0}, ""),
        ({"training__rounds": 7, "options__dp-gd__rounds": 9}, ""),
    ],
)
def test_rounds_that_a_private_scheme_does_not_follow_are_named(changes: dict[str, float], asked: str) -> None:
    found = run(small_config(schemes=["dp-gd"], privacy__epsilon=2.0, **changes))
    notes = [note for note in notes_on(found) if "does not apply" in note]
    own, duration_s = found["dp-gd"].final.round, found["dp-gd"].prepared.device.arrivals.duration_s
    expected = (
        f"{asked} does not apply to DP-GD ({own} rounds, {own * duration_s:.4g} s), which sets its own rounds and the noise"
        " for them: options.dp-gd.rounds changes that."
    )
    assert notes == ([expected] if asked else [])
