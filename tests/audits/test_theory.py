from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from codedfl.audits import TheoryReport, run_theory, write_theory
from codedfl.audits._theory import round_of
from codedfl.errors import InputError
from codedfl.schemes import fedavg, scfl
from codedfl.theory import gap_bound, limit_error, measure_constants
from tests.problems import make_setting
from tests.support import small_config


@pytest.fixture(scope="module")
def report() -> TheoryReport:
    return run_theory(small_config())


@pytest.mark.slow
def test_the_measured_gap_of_a_run_on_digits_stays_below_the_corrected_bound() -> None:
    """The default configuration, with a step size that Theorem 1 covers and a fifth of its rounds."""
    from codedfl.config import load_config

    report = run_theory(load_config(overrides=[("training.rounds", 80), ("learning_rate.scale", 0.5)]))
    total = report.bounds["corrected"].total / report.samples
    assert len(report.measured) >= 80
    assert all(gap < total[rounds - 1] for rounds, gap in report.measured)
    assert report.holds
    assert report.result.final.gap < report.gap_at_start, "the run must have learnt something"


def test_holds_is_not_always_true(report: TheoryReport) -> None:
    for bound in report.bounds["corrected"].terms.values():
        bound *= 1e-12
    vars(report.bounds["corrected"]).pop("total", None)
    try:
        assert not report.holds
    finally:
        for bound in report.bounds["corrected"].terms.values():
            bound *= 1e12
        vars(report.bounds["corrected"]).pop("total", None)


def test_the_report_says_what_the_library_says(report: TheoryReport) -> None:
    result, round = report.result, report.round
    gram = report.comparison.setting.gram
    constants = measure_constants(round.parts, report.constants.radius)
    np.testing.assert_allclose(constants.residual, report.constants.residual)
    steps = np.full(12, result.learning_rate.initial)
    expected = gap_bound(round, constants, steps, float(np.linalg.norm(gram.optimum)), "printed")
    np.testing.assert_allclose(report.bounds["printed"].total, expected.total)
    assert report.limit is not None
    assert report.limit.total() == pytest.approx(limit_error(round, steps[0]).total())
    assert report.constants.radius >= 2 * np.linalg.norm(gram.optimum)
    assert report.at_start.total() > 0


def test_every_sweep_passes_through_the_configured_value(report: TheoryReport) -> None:
    rounds = report.result.final.round
    expected = sum(report.bounds["corrected"].after(rounds).values()) / report.samples
    configured = {
        "noise_variance": float(np.mean(report.round.noise_variance)),
        "coded_samples": 60.0,
        "local_steps": 5.0,
        "stragglers": float(np.mean(1 - report.round.arrival_probability)),
    }
    for knob, points in report.sensitivity.items():
        (here,) = [point for point in points if point.value == pytest.approx(configured[knob])]
        assert sum(here.corrected.values()) == pytest.approx(expected), knob


def test_more_noise_fewer_coded_samples_and_more_stragglers_cost_more(report: TheoryReport) -> None:
    totals = {
        knob: [(sum(point.corrected.values()), point.variance, point.floor) for point in points]
        for knob, points in report.sensitivity.items()
    }
    for knob, sign in (("noise_variance", 1), ("coded_samples", -1), ("local_steps", 1), ("stragglers", 1)):
        bounds, variances, floors = (np.array(values) for values in zip(*totals[knob], strict=True))  # type: ignore[index]
        assert (sign * np.diff(bounds) > 0).all(), knob
        if knob != "local_steps":  # the exact variance is that of one step
            assert (sign * np.diff(variances) > 0).all(), knob
        if knob in ("noise_variance", "coded_samples"):
            assert (sign * np.diff(floors) > 0).all(), knob
    floors = np.array([point.floor for point in report.tradeoff])
    assert (np.diff(floors) < 0).all(), "a larger budget means less noise and a lower floor"


def test_partial_uploads_fixed_batches_and_label_noise_are_covered() -> None:
    given = {
        "incentive__mechanism": "stackelberg",
        "incentive__total_reward": 20.0,
        "coding__label_noise_variance": 0.1,
        "options": {"scfl": {"batch": 4, "device_weight": 0.3}},
        "data__devices": 20,
    }
    report = run_theory(small_config(**given))
    assert not report.round.covered.all()
    assert report.round.device_weight == 0.3
    np.testing.assert_allclose(report.round.inverse_batch, 1 / 4)
    assert report.at_start.terms()["label_noise"] > 0
    assert report.holds


def read(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


@pytest.mark.slow
def test_files(report: TheoryReport, tmp_path: Path) -> None:
    write_theory(report, tmp_path)
    assert (tmp_path / "theory.png").read_bytes().startswith(b"\x89PNG")
    rows = read(tmp_path / "bound.csv")
    assert len(rows) == 2 * len(report.measured)
    for row in rows:
        terms = [
            float(value) for name, value in row.items() if name not in ("rounds", "reading", "measured_gap", "bound")
        ]
        assert sum(terms) == pytest.approx(float(row["bound"]))
    assert {row["parameter"] for row in read(tmp_path / "sensitivity.csv")} == set(report.sensitivity)
    assert len(read(tmp_path / "tradeoff.csv")) == len(report.tradeoff)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"learning_rate__scale": 1.5}, "learning_rate.scale = 1.5"),
        ({"learning_rate__scale": "grid", "learning_rate__grid": [1.0, 2.0]}, "learning_rate.grid"),
        ({"coding__clip_norm": 1.0}, "coding.clip_norm = 1"),
    ],
)
def test_what_the_theory_does_not_cover_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        run_theory(small_config(**changes))


def test_other_schemes_are_refused() -> None:
    setting = make_setting()
    assert round_of(scfl(), setting, scfl().device.plan(setting).arrivals).devices == setting.federation.devices
    with pytest.raises(InputError, match="FedAvg"):
        round_of(fedavg(), setting, fedavg().device.plan(setting).arrivals)


def test_weights_have_no_cap_as_in_the_paper() -> None:
    given = {"schemes": ["scfl"], "training__rounds": 5}
    capped, plain = (run_theory(small_config(**given, **more)) for more in ({"options__scfl__weight_cap": 1.0}, {}))
    assert capped.result.curve == plain.result.curve
