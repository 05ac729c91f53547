"""A run can record who arrived, and another can replay it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from codedfl.errors import InputError
from codedfl.experiment import build_experiment, curves_csv, record_trace, run
from codedfl.fleet import TraceArrivals
from codedfl.identity import identity
from tests.support import Cli, small_config


def test_replaying_a_recorded_trace_gives_the_same_curves() -> None:
    original = run(small_config())
    record_trace(original, "trace.csv")
    again = run(small_config(fleet__trace="trace.csv"))
    assert isinstance(again["scfl"].prepared.device.arrivals, TraceArrivals)
    assert curves_csv(again) == curves_csv(original)
    for ours, theirs in zip(again.results, original.results, strict=True):
        assert np.array_equal(ours.model, theirs.model)
        assert ours.progress.ledger.bytes_up == theirs.progress.ledger.bytes_up


def test_a_trace_decides_who_arrives_whatever_the_channel() -> None:
    record_trace(run(small_config(schemes=["fedavg"])), "trace.csv")
    lines = Path("trace.csv").read_text().splitlines()
    lines[1:] = [",".join([*cells[:3], "0", *cells[4:]]) for cells in (line.split(",") for line in lines[1:])]
    Path("trace.csv").write_text("\n".join(lines) + "\n")
    nobody = run(small_config(schemes=["fedavg"], fleet__trace="trace.csv"))
    assert nobody["fedavg"].final.mean_arrivals == 0
    assert not nobody["fedavg"].model.any()


def test_schemes_with_other_batches_have_a_trace_each() -> None:
    schemes = ["fedavg", "scfl-fixed", "codedfedl", "dp-cfl"]
    original = run(small_config(schemes=schemes))
    record_trace(original, "traces")
    assert sorted(path.name for path in Path("traces").iterdir()) == ["codedfedl.csv", "fedavg.csv", "scfl-fixed.csv"]
    again = run(small_config(schemes=schemes, fleet__trace="traces"))
    assert curves_csv(again) == curves_csv(original)


def test_cohorts_are_replayed() -> None:
    original = run(small_config(schemes=["scfl"], training__cohort=3))
    record_trace(original, "trace.csv")
    assert curves_csv(run(small_config(schemes=["scfl"], fleet__trace="trace.csv"))) == curves_csv(original)


def test_a_trace_is_part_of_the_identity_of_a_plan() -> None:
    record_trace(run(small_config(schemes=["scfl"])), "trace.csv")
    plain, traced = (
        build_experiment(small_config(schemes=["scfl"], fleet__trace=trace)) for trace in ("", "trace.csv")
    )
    assert plain.traces == {}
    assert identity(traced.traces["scfl"]) == identity(build_experiment(traced.config).traces["scfl"])


def test_bad_traces_are_refused_before_training() -> None:
    record_trace(run(small_config(schemes=["scfl"])), "trace.csv")
    with pytest.raises(InputError, match=r"fleet.trace has 12 round\(s\) but SCFL is to train for 13"):
        run(small_config(schemes=["scfl"], training__rounds=13, fleet__trace="trace.csv"))
    with pytest.raises(InputError, match="device"):
        run(small_config(schemes=["scfl"], data__devices=5, fleet__trace="trace.csv"))
    Path("empty").mkdir()
    with pytest.raises(InputError, match="folder without a trace of any of the schemes"):
        run(small_config(fleet__trace="empty"))
    with pytest.raises(InputError, match=r"nowhere\.csv"):
        run(small_config(fleet__trace="nowhere.csv"))
    with pytest.raises(InputError, match="no scheme of this comparison asks devices"):
        record_trace(run(small_config(schemes=["dp-cfl"])), "trace.csv")


@pytest.mark.slow
def test_the_command_line_records_and_replays(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cli = Cli(monkeypatch, capsys)
    small = ("--scheme", "scfl", "--devices", "6", "--coded-samples", "60", "--rounds", "12", "--json")
    more = ("--set", "features.dimension=30", "--set", "learning_rate.scale=0.5")
    assert cli("run", *small, *more, "--out", "first", "--record-trace", "trace.csv").code == 0
    assert cli("run", *small, *more, "--out", "second", "--trace", "trace.csv").code == 0
    assert Path("first/curves.csv").read_text() == Path("second/curves.csv").read_text()
