from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from codedfl.experiment import Comparison, run, summarise
from codedfl.files import plain
from tests.support import StopAfter, small_config


def by_scheme(comparison: Comparison) -> dict[str, dict[str, Any]]:
    return {scheme["scheme"]: scheme for scheme in summarise(comparison)["schemes"]}


def test_a_summary_is_strict_json(comparison: Comparison) -> None:
    summary = summarise(comparison)
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert (summary["dataset"], summary["metric"], summary["seed"]) == ("digits", "accuracy", 0)
    assert sum(device["samples"] for device in summary["devices"]) == summary["samples"] == 1258
    assert summary["straggler_ratio"] == pytest.approx(0.3)


def test_every_second_is_in_a_column(comparison: Comparison) -> None:
    for name, scheme in by_scheme(comparison).items():
        parts = scheme["charged_s"]
        assert scheme["everything_charged_s"] == pytest.approx(sum(parts.values()), rel=1e-12)
        assert parts["training"] == scheme["simulated_time_s"] == scheme["rounds"] * scheme["round_duration_s"]
        assert (parts["coded_upload"] > 0) is (name != "fedavg")
        assert (parts["encoding"] > 0) is (name != "fedavg")
        assert (parts["server_preparation"] > 0) is (name != "fedavg")


def test_every_byte_is_in_a_column(comparison: Comparison) -> None:
    for name, scheme in by_scheme(comparison).items():
        assert scheme["bytes_up"] == scheme["bytes_up_training"] + scheme["bytes_up_coded"]
        for column in ("bytes_up_training", "bytes_up_coded", "bytes_up_late", "bytes_down"):
            assert sum(scheme["per_device"][column]) == pytest.approx(scheme[column])
        assert (scheme["bytes_up_coded"] == 0) is (name == "fedavg")
        assert (scheme["bytes_up_training"] == 0) is (name == "dp-cfl")
    coded = by_scheme(comparison)["scfl"]["bytes_up_coded"]
    assert coded == 6 * 60 * (30 + 10) * 4  # devices, coded samples, columns, bytes a number


def test_the_privacy_budget_is_that_of_theorem_2(comparison: Comparison) -> None:
    schemes = by_scheme(comparison)
    for name in ("scfl", "scfl-fixed", "dp-cfl"):
        assert schemes[name]["mi_dp_bits"] == pytest.approx(0.5 * math.log2(1 + 60 / 0.1), rel=1e-12)
    for name in ("cfl-fb", "codedfedl"):
        assert schemes[name]["mi_dp_bits"] is None
        assert "no bound" in schemes[name]["mi_dp"]
    assert schemes["fedavg"]["mi_dp_bits"] is None
    assert schemes["fedavg"]["mi_dp"] == "no coded upload"


def test_the_least_noisy_device_decides_the_privacy_budget() -> None:
    uneven = by_scheme(run(small_config(coding__noise_variance=[4.0, 4.0, 0.5, 4.0, 4.0, 4.0])))
    assert uneven["scfl"]["mi_dp_bits"] == pytest.approx(0.5 * math.log2(1 + 60 / 0.5))
    silent = by_scheme(run(small_config(coding__noise_variance=[4.0, 0.0, 4.0, 4.0, 4.0, 4.0])))
    assert silent["scfl"]["mi_dp_bits"] is None
    assert "no bound" in silent["scfl"]["mi_dp"]


def test_noise_makes_the_budget_of_codedfedl_finite() -> None:
    options = {"noise": True, "mini_batches": 6}
    scheme = by_scheme(run(small_config(schemes=["codedfedl"], options__codedfedl=options)))["codedfedl"]
    assert scheme["mi_dp_bits"] == pytest.approx(0.5 * math.log2(1 + 10 / 0.1))  # each sample is in ten coded rows


def test_times_to_a_share_are_those_of_the_curve(comparison: Comparison) -> None:
    summary = summarise(comparison)
    for scheme in summary["schemes"]:
        curve = comparison[scheme["scheme"]].curve
        for share in (90, 95):
            wanted = share / 100 * summary["centralised"]["accuracy"]
            reached = [point.simulated_time_s for point in curve if point.score >= wanted]
            assert scheme[f"time_to_{share}_s"] == (reached[0] if reached else None)


def test_the_last_iterate_is_kept_too(comparison: Comparison) -> None:
    schemes = by_scheme(comparison)
    assert schemes["scfl"]["last_accuracy"] != schemes["scfl"]["accuracy"]
    assert schemes["fedavg"]["last_accuracy"] == schemes["fedavg"]["accuracy"]


def test_a_diverged_scheme_has_no_accuracy() -> None:
    summary = summarise(run(small_config(learning_rate__scale=1e30)))
    json.dumps(summary, allow_nan=False)
    for scheme in summary["schemes"]:
        assert scheme["status"] == "diverged"
        assert scheme["accuracy"] is None
        assert "lower the learning rate" in scheme["message"]


def test_an_interrupted_comparison_is_summarised_as_far_as_it_came() -> None:
    summary = summarise(run(small_config(training__evaluations=12), callbacks=(StopAfter(4),)))
    (scheme,) = summary["schemes"]
    assert (scheme["status"], scheme["rounds"], scheme["simulated_time_s"]) == ("interrupted", 4, 4.0)


def test_the_choice_of_a_step_size_can_be_checked() -> None:
    tuned = by_scheme(run(small_config(learning_rate__scale="grid", learning_rate__grid=[0.1, 0.4, 1e9])))["scfl"]
    assert [trial["scale"] for trial in tuned["step_size_trials"]] == [0.1, 0.4, 1e9]
    assert tuned["step_size_trials"][2]["score"] is None
    assert tuned["step_size_scale"] in (0.1, 0.4)
    given = by_scheme(run(small_config()))["scfl"]
    assert (given["step_size_trials"], given["step_size_scale"]) == (None, 0.5)


def test_a_regression_is_measured_by_r2(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(90, 3)), columns=["a", "b", "c"]).assign(y=lambda data: data.a - data.b)
    frame.to_csv(tmp_path / "own.csv", index=False)
    summary = summarise(run(small_config(data__dataset="own.csv", data__target=["y"])))
    assert (summary["task"], summary["metric"]) == ("regression", "r2")
    assert summary["centralised"]["r2"] > 0.99
    assert all("r2" in scheme and "accuracy" not in scheme for scheme in summary["schemes"])


def test_a_single_test_row_has_no_r2_but_does_no_harm(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(12, 2)), columns=["a", "y"])
    frame.to_csv(tmp_path / "own.csv", index=False)
    config = small_config(data__dataset="own.csv", data__target=["y"], data__devices=2, training__evaluation_samples=1)
    summary = summarise(run(config))
    json.dumps(summary, allow_nan=False)
    assert summary["schemes"][0]["r2"] is None


def test_plain_leaves_nothing_that_json_does_not_have() -> None:
    value = {
        1: np.float32(0.5),
        "a": (np.array([1.0, math.nan]), math.inf),
        "b": np.bool_(True),
        "c": [np.int64(3), None],
    }
    assert plain(value) == {"1": 0.5, "a": [[1.0, None], None], "b": True, "c": [3, None]}
