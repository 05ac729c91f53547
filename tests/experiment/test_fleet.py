"""Fleets that a configuration reads: by radio, by chance, by seconds, by a recording."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl.errors import InputError
from codedfl.experiment import Comparison, build_experiment, notes_on, run, summarise
from codedfl.fleet import AdaptiveBatchArrivals, FixedBatchArrivals, MeasuredFleet, MeasuredTiming
from codedfl.schemes import make_scheme
from codedfl.training import validation_setting
from tests.support import small_config

NAMES = [f"device-{i:02}" for i in range(1, 7)]
MEANS = [10.0, 20.0, 30.0, 15.0, 25.0, 12.0]
RECORDED_ROUNDS = 5

RECORDING = np.random.default_rng(3).lognormal(np.log(15.0), 0.5, (RECORDED_ROUNDS, 6)).round(2)
RECORDING[2, 1] = RECORDING[4, 1] = RECORDING[0, 5] = np.nan

FILES = {
    "chances": "name,arrival_probability\n" + "".join(f"{name},{0.4 + 0.1 * i}\n" for i, name in enumerate(NAMES)),
    "times": "name,mean_s,p95_s\n" + "".join(f"{n},{s},{2 * s}\n" for n, s in zip(NAMES, MEANS, strict=True)),
    "recording": "round,device,seconds\n"
    + "".join(
        f"{k + 1},{NAMES[i]},{RECORDING[k, i]}\n"
        for k in range(RECORDED_ROUNDS)
        for i in range(6)
        if not np.isnan(RECORDING[k, i])
    ),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("fleets")
    for name, text in FILES.items():
        (folder / f"{name}.csv").write_text(text)
    return {name: str(folder / f"{name}.csv") for name in FILES}


@pytest.fixture(scope="module")
def runs(files: dict[str, str]) -> dict[str, Comparison]:
    schemes = ["fedavg", "codedfedl", "scfl", "scfl-fixed", "ccfl"]
    return {
        name: run(small_config(schemes=schemes, fleet__file=file, training__deadline_s=20.0))
        for name, file in files.items()
    }


@pytest.mark.parametrize("kind", FILES)
def test_all_schemes_meet_the_devices_with_the_probability_that_tables_show(
    runs: dict[str, Comparison], kind: str
) -> None:
    comparison = runs[kind]
    timing = comparison.setting.timing()
    assert isinstance(timing, MeasuredTiming)
    p = timing.arrival_probability(1)
    for name in ("fedavg", "codedfedl", "scfl", "scfl-fixed"):
        arrivals = comparison[name].prepared.device.arrivals
        assert arrivals.probability == pytest.approx(p)
        assert arrivals.duration_s == 20.0
    ledger = comparison["fedavg"].progress.ledger
    assert ledger.bits_late.sum() > 0
    assert all(result.status == "completed" for result in comparison.results)
    summary = summarise(comparison)
    assert summary["bandwidth_hz"] is None
    assert [device["arrival_probability"] for device in summary["devices"]] == pytest.approx(p)
    assert not any("transmit_power_dbm" in device or "mac_rate" in device for device in summary["devices"])


def test_who_answered_in_time_is_as_recorded(runs: dict[str, Comparison]) -> None:
    plan = runs["recording"]["fedavg"].prepared.device
    samples = runs["recording"].setting.federation.samples
    for k in range(12):
        seconds = RECORDING[k % RECORDED_ROUNDS]
        seen = plan.arrivals.attend(k)
        assert seen.arrived.tolist() == (seconds <= 20.0).tolist()
        assert seen.batch_sizes.tolist() == np.where(np.isnan(seconds), 0, samples).tolist()
    assert plan.arrivals.probability == pytest.approx(np.mean(RECORDING <= 20.0, axis=0))


def test_another_deadline_is_another_choice_from_the_same_recording(files: dict[str, str]) -> None:
    for deadline in (10.0, 40.0):
        setting = build_experiment(small_config(fleet__trace=files["recording"], training__deadline_s=deadline)).setting
        assert setting.timing().arrival_probability(1) == pytest.approx(np.mean(deadline >= RECORDING, axis=0))


def test_a_recording_may_be_given_as_a_trace(files: dict[str, str]) -> None:
    given = {"training__deadline_s": 20.0, "schemes": ["fedavg"]}
    as_file = run(small_config(fleet__file=files["recording"], **given))
    as_trace = run(small_config(fleet__trace=files["recording"], **given))
    assert not as_trace.experiment.traces
    assert np.array_equal(as_file["fedavg"].model, as_trace["fedavg"].model)


def test_a_recording_that_is_shorter_than_the_run_is_said_to_be_replayed(runs: dict[str, Comparison]) -> None:
    sentence = "the recording of answers has 5 round(s) and the run"
    assert [note for note in notes_on(runs["recording"]) if note.startswith(sentence)]
    assert not [note for note in notes_on(runs["times"]) if "recording" in note]


def test_the_usual_batch_is_all_rows_and_batches_of_one_size_stay_what_they_are(runs: dict[str, Comparison]) -> None:
    setting = runs["times"].setting
    plans = {name: runs["times"][name].prepared.device.arrivals for name in ("fedavg", "scfl-fixed")}
    assert not isinstance(plans["fedavg"], AdaptiveBatchArrivals)
    assert plans["fedavg"].attend(0).batch_sizes.tolist() == setting.federation.samples.tolist()
    assert plans["scfl-fixed"].attend(0).batch_sizes.tolist() == [32] * 6
    held_out = validation_setting(setting, 0.2)
    on_less = make_scheme("fedavg").device.plan(held_out).arrivals
    assert isinstance(on_less, FixedBatchArrivals)
    assert on_less.batch_sizes.tolist() == held_out.federation.samples.tolist()


def test_a_scheme_that_chooses_its_deadline_does_so_only_where_seconds_are_known(runs: dict[str, Comparison]) -> None:
    assert runs["chances"]["ccfl"].prepared.device.arrivals.duration_s == 20.0
    assert runs["times"]["ccfl"].prepared.device.arrivals.duration_s != 20.0


def test_what_comes_before_training_is_charged_in_multiples_of_a_round(runs: dict[str, Comparison]) -> None:
    cost = runs["times"]["scfl"].prepared.upload_cost
    assert cost is not None
    setting = runs["times"].setting
    rounds = cost.bits / setting.workload().payload_bits
    assert (cost.encoding_s + cost.upload_s >= rounds * np.array(MEANS) * (1 - 1e-12)).all()
    assert runs["times"]["scfl"].final.everything_charged_s > runs["times"]["scfl"].final.simulated_time_s


@pytest.mark.parametrize("kind", FILES)
def test_private_schemes_run_on_a_measured_fleet(files: dict[str, str], kind: str) -> None:
    given: dict[str, Any] = {"privacy__epsilon": 5.0, "schemes": ["dp-gd"], "fleet__file": files[kind]}
    comparison = run(small_config(**given, training__deadline_s=20.0))
    duration = comparison["dp-gd"].prepared.device.arrivals.duration_s
    if kind == "chances":
        assert duration == 20.0
    elif kind == "times":
        assert np.mean(1 - comparison["dp-gd"].prepared.device.arrivals.probability) <= 0.02
    else:  # not all of them ever answer
        assert duration == pytest.approx(np.nanmax(RECORDING))


def test_devices_are_found_by_the_column_that_names_them_in_the_data(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [f"{rng.normal()},{rng.normal()},{'ab'[i % 2]}" for i in range(40)]
    (tmp_path / "data.csv").write_text("x,y,ward\n" + "\n".join(rows) + "\n")
    (tmp_path / "fleet.csv").write_text("ward,mean_s,p95_s\nb,20,30\na,10,15\n")
    config = small_config(
        data__dataset=str(tmp_path / "data.csv"),
        data__target=["y"],
        data__device_column="ward",
        fleet__file=str(tmp_path / "fleet.csv"),
        training__deadline_s=15.0,
    )
    fleet = build_experiment(config).setting.fleet
    assert isinstance(fleet, MeasuredFleet)
    assert fleet.columns()["mean_s"].tolist() == [10.0, 20.0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"fleet__file": "times"},
            "training.deadline_s = 1 is too short for this fleet, whose devices take 10 to 30 s",
        ),
        (
            {"fleet__file": "times", "training__deadline_s": 20.0, "fleet__straggler_ratio": 0.5},
            "fleet.straggler_ratio = 0.5 sets the bandwidth of a radio channel",
        ),
        (
            {"fleet__file": "times", "fleet__trace": "recording", "training__deadline_s": 20.0},
            "both say when devices answer: leave one out",
        ),
        (
            {
                "fleet__file": "chances",
                "schemes": ["codedfedl"],
                "options.codedfedl.deadline": "free",
                "training__deadline_s": 20.0,
            },
            "deadline = 'free' is not possible with 'arrival_probability'",
        ),
        ({"fleet__file": "no-such-fleet"}, "fleet.file = 'no-such-fleet' is not a file, nor a fleet of an installed"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(
    files: dict[str, str], changes: dict[str, Any], words: str
) -> None:
    given = {key: files.get(value, value) if isinstance(value, str) else value for key, value in changes.items()}
    with pytest.raises(InputError) as error:
        run(small_config(**given))
    assert words in str(error.value)
    assert "\n" not in str(error.value)
