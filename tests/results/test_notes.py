from __future__ import annotations

import re

import pytest

from codedfl.experiment import Comparison, notes_on, run, summarise
from tests.support import small_config


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return run(small_config())


def test_notes_reach_the_summary() -> None:
    diverged = run(small_config(schemes=["fedavg"], learning_rate__scale=50))
    assert summarise(diverged)["notes"] == notes_on(diverged) != []


def test_what_deserves_attention_is_said(comparison: Comparison) -> None:
    assert notes_on(comparison) == []
    tuned = run(small_config(schemes=["dp-cfl"], learning_rate__scale="grid", learning_rate__grid=[0.01, 0.02]))
    chosen, edge = notes_on(tuned)
    assert chosen == "step sizes, in units of 1 / L, chosen on held-out training data: DP-CFL 0.02."
    assert "DP-CFL did best with the step size 0.02 / L at the edge of learning_rate.grid" in edge
    diverged = notes_on(run(small_config(schemes=["fedavg"], learning_rate__scale=50)))
    assert diverged[0].startswith("FedAvg diverged")
    assert diverged[0].endswith("lower the learning rate.")


def test_devices_that_never_arrive_are_named() -> None:
    schemes = ["fedavg", "scfl", "dp-cfl"]
    deaf = run(small_config(fleet__transmit_power_dbm=[-60, -50], fleet__straggler_ratio=0, schemes=schemes))
    (note,) = notes_on(deaf)
    assert note.startswith("in FedAvg, SCFL, device-")  # DP-CFL expects nobody
    assert "and 1 more hardly ever make the deadline" in note


def test_a_damping_that_had_to_be_raised_is_reported() -> None:
    def notes(factor: float, rank: int, rows: int) -> list[str]:
        options = {"damping_factor": factor, "rank": rank, "sketch_rows": rows}
        found = run(small_config(schemes=["ccfl"], options__ccfl=options, training__rounds=60))
        assert bool(notes_on(found)) == (getattr(found["ccfl"].progress.state, "dampings", 0) > 0)
        return notes_on(found)

    assert notes(1.0, 60, 100) == []
    (once,), (often,) = notes(5e-2, 2, 1), notes(1e-4, 2, 1)
    assert "CCFL did not settle with the damping that its sketch suggested, and raised it once: " in once
    assert re.search(r"raised it [2-9] times: sketching more rows \(options\.ccfl\.sketch_rows\)", often)
