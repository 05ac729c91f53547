from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl.experiment import Comparison, RunFolder, _run_details, _run_folder, run
from codedfl.experiment._run_details import run_details
from codedfl.training import Callback, RunProgress
from codedfl.typing import FloatArray
from tests.support import small_config


@pytest.fixture(scope="module")
def told() -> Comparison:
    """A comparison of which every detail has something to tell."""
    schemes = ["fedavg", "dp-cfl", "scfl", "scfl-fixed", "ccfl", "fed3r"]
    return run(small_config(schemes=schemes, incentive__mechanism="contract"))


@pytest.fixture(scope="module")
def details(told: Comparison) -> dict[str, Any]:
    return run_details(told)


def test_it_can_be_written_as_json(details: dict[str, Any]) -> None:
    assert json.loads(json.dumps(details, allow_nan=False)) == details


def test_arrivals_are_those_of_the_rounds(told: Comparison, details: dict[str, Any]) -> None:
    groups = {name: group for group in details["arrivals"] for name in group["schemes"]}
    assert set(groups) == {"fedavg", "scfl", "scfl-fixed", "ccfl"}, "the others ask devices for nothing"
    for name, group in groups.items():
        arrivals = told[name].prepared.device.arrivals
        seen = np.array([list(row) for row in group["attendance"]]).T == "1"
        assert group["rounds"] == told[name].progress.ledger.rounds
        assert seen.tolist() == [arrivals.attend(round).arrived.tolist() for round in range(group["rounds"])]


def test_schemes_with_the_same_arrivals_share_them(details: dict[str, Any]) -> None:
    rows = [tuple(group["attendance"]) for group in details["arrivals"]]
    assert len(rows) == len(set(rows))
    assert any({"fedavg", "scfl"} <= set(group["schemes"]) for group in details["arrivals"])


def test_devices_that_were_not_asked_are_told_from_those_that_did_not_arrive() -> None:
    comparison = run(small_config(schemes=["fedavg"], training__cohort=2))
    (group,) = run_details(comparison)["arrivals"]
    for round, column in enumerate(zip(*group["attendance"], strict=True)):
        attendance = comparison["fedavg"].prepared.device.arrivals.attend(round)
        assert attendance.devices is not None
        assert [i for i, cell in enumerate(column) if cell != "-"] == attendance.devices.tolist()


def test_long_runs_and_large_fleets_are_thinned(told: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run_details(told)["arrivals"][0]
    monkeypatch.setattr(_run_details, "MOST_ROUNDS", 5)
    monkeypatch.setattr(_run_details, "MOST_DEVICES", 4)
    thin = run_details(told)["arrivals"][0]
    assert (thin["rounds"], thin["every_round"], thin["every_device"]) == (12, 3, 2)
    assert thin["attendance"] == [row[::3] for row in whole["attendance"][::2]]


def test_seconds_add_up_to_the_charged_clock(told: Comparison, details: dict[str, Any]) -> None:
    for result in told.results:
        own, upload = details["seconds"][result.scheme.name], result.prepared.upload_cost
        before = (
            0.0 if upload is None else max(np.add(own["per_device"]["encoding"], own["per_device"]["coded_upload"]))
        )
        server = 0.0 if upload is None else upload.server_s
        total = before + server + result.final.simulated_time_s + own["server_between_rounds"]
        assert total == pytest.approx(result.final.everything_charged_s, rel=1e-12)
        arrived = own["per_device"]["updates_arrived"]
        assert sum(arrived) == pytest.approx(result.progress.ledger.arrivals, rel=1e-12)
        assert max(own["per_device"]["computing"]) <= result.final.simulated_time_s


def rounding(rows: FloatArray) -> float:
    """Return by how much rounding may move an eigenvalue of ``X^T X``: that of the sums over rows, and of the solver."""
    return sum(rows.shape) * float(np.finfo(np.float64).eps) * float(np.sum(rows**2))


def test_spectra_are_those_of_the_data_and_of_the_upload(told: Comparison, details: dict[str, Any]) -> None:
    exact, features = details["spectrum"]["exact"], told.setting.federation.features.astype(np.float64)
    singular = np.linalg.svd(features, compute_uv=False)
    assert exact["value"] == pytest.approx((singular**2).tolist(), rel=0, abs=rounding(features))
    assert exact["rank"] == list(range(1, 31))
    found = {tuple(coded["schemes"]): coded for coded in details["spectrum"]["coded"]}
    assert set(found) == {("dp-cfl", "scfl", "scfl-fixed"), ("ccfl",)}
    coded = found["dp-cfl", "scfl", "scfl-fixed"]
    (data,) = told["scfl"].prepared.held
    rows = data.features.astype(np.float64) / np.sqrt(data.coded_samples)
    expected = np.linalg.svd(rows, compute_uv=False) ** 2
    assert coded["value"] == pytest.approx(expected.tolist(), rel=0, abs=rounding(rows))
    assert coded["noise_variance"] == pytest.approx(told.setting.code.noise_variance.sum())
    sketch = found["ccfl",]
    assert (sketch["kind"], len(sketch["rank"])) == ("sketch", len(sketch["value"]))
    assert sketch["value"] == sorted(sketch["value"], reverse=True)


def test_many_eigenvalues_are_thinned_and_too_many_left_out(told: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_run_details, "MOST_RANKS", 10)
    ranks = run_details(told)["spectrum"]["exact"]["rank"]
    assert (ranks[0], ranks[-1]) == (1, 30)
    assert len(ranks) <= 10
    monkeypatch.setattr(_run_details, "LARGEST_SPECTRUM", 29)
    assert run_details(told)["spectrum"] is None


def test_contract_items(told: Comparison, details: dict[str, Any]) -> None:
    items = details["incentive"]
    assert items["noise_variance"] == told.setting.code.noise_variance.tolist()
    assert sum(items["reward"]) == pytest.approx(told.config.incentive.total_reward, rel=1e-6)
    utility = np.subtract(items["reward"], np.multiply(items["sensitivity"], items["mi_dp_bits"]))
    assert items["utility"] == pytest.approx(utility.tolist())


@pytest.mark.parametrize(("mechanism", "expected"), [("none", None), ("stackelberg", "stackelberg")])
def test_other_mechanisms(mechanism: str, expected: str | None) -> None:
    items = run_details(run(small_config(schemes=["dp-cfl"], incentive__mechanism=mechanism)))["incentive"]
    assert (items and items["mechanism"]) == expected


def test_those_who_follow_a_run_know_its_setting_before_the_first_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_run_folder, "curves_png", lambda *_: b"")  # pictures take longer than all the rest

    class Look(Callback):
        def __init__(self) -> None:
            self.seen: list[dict[str, Any]] = []

        def on_start(self, progress: RunProgress, rounds: int) -> None:  # noqa: ARG002
            self.seen.append(json.loads((tmp_path / "run/details.json").read_text()))

    config, look = small_config(), Look()
    comparison = run(config, folder=RunFolder.create(tmp_path / "run", config), callbacks=(look,))
    last = json.loads((tmp_path / "run/details.json").read_text())
    assert last == run_details(comparison)
    for seen in look.seen:
        assert seen == {key: value for key, value in last.items() if key not in ("seconds", "spectrum")}
