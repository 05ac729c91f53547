from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import codedfl.audits._empirical as empirical
import codedfl.uploads._mean
import codedfl.uploads._rows
import codedfl.uploads._statistics
from codedfl.audits import SchemeAudit, run_empirical_audit, write_empirical_audit
from codedfl.audits._canaries import OVERSIZE, MembershipStatistics, plant_canaries
from codedfl.coding import encode_all
from codedfl.errors import InputError
from codedfl.experiment import (
    build_experiment,
    load_config,
)
from codedfl.privacy import EmpiricalBound, audit_scores, gaussian_mu
from codedfl.training import PrivatePlan, PrivateSum, Steps
from codedfl.uploads import CodedFactor
from codedfl.uploads._upload import noise_of_sum
from tests.problems import make_federation, make_setting
from tests.support import Diary, mostly_slow, small_config

EACH, SUMS = "each-message", "sums-only"
FOUR_ROUNDS = {"dp-gd": {"rounds": 4}}


def audit_of(
    scheme: str, threat_model: str = EACH, canaries: int = 300, epsilon: float = 1.0, **changes: Any
) -> SchemeAudit:
    config = small_config(
        **{
            "schemes": [scheme],
            "privacy__epsilon": epsilon,
            "privacy__threat_model": threat_model,
            "coding__coded_samples": 200,
            "options": FOUR_ROUNDS,
            **changes,
        }
    )
    return run_empirical_audit(config, canaries=canaries).schemes[0]


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[PrivateSum], PrivateSum]], None]:
    """Return a function that makes devices release something else than they should."""
    right = PrivateSum.release

    def plant(change: Callable[[PrivateSum], PrivateSum]) -> None:
        monkeypatch.setattr(PrivateSum, "release", lambda self, *rest: right(change(self), *rest))

    return plant


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[PrivatePlan, Steps], Steps]], None]:
    """Return a function that makes devices take other steps than they should."""
    right = PrivatePlan.steps

    def plant(change: Callable[[PrivatePlan, Steps], Steps]) -> None:
        monkeypatch.setattr(PrivatePlan, "steps", lambda self, *rest: change(self, right(self, *rest)))

    return plant


# Claims that are true.


@pytest.mark.parametrize("threat_model", [EACH, SUMS])
@pytest.mark.parametrize(
    "scheme", mostly_slow(["dp-gd", "ssp", "ihm", "scfl-private", "one-shot", "dp-cfl"], "dp-gd", "ssp")
)
def test_a_true_claim_is_not_refuted(scheme: str, threat_model: str) -> None:
    audit = audit_of(scheme, threat_model)
    assert audit.covers == "everything"
    assert 0.9 < audit.claimed_epsilon <= 1.0
    assert not audit.refuted
    assert audit.bound.epsilon < audit.claimed_epsilon


@pytest.mark.slow
@pytest.mark.parametrize("threat_model", [EACH, SUMS])
@pytest.mark.parametrize("scheme", ["dp-gd", "ssp", "ihm", "one-shot"])
def test_true_claims_are_refuted_as_rarely_as_stated(scheme: str, threat_model: str) -> None:
    refuted = sum(audit_of(scheme, threat_model, seed=seed).refuted for seed in range(30))
    # At 95% confidence: the mean of 30 * 5%, and 3 standard deviations.
    assert refuted <= 30 * 0.05 + 3 * math.sqrt(30 * 0.05 * 0.95)


@pytest.mark.parametrize("loss", ["square", "softmax"])
@pytest.mark.parametrize("threat_model", [EACH, SUMS])
def test_scores_use_the_budget_and_no_more(loss: str, threat_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scores of canaries that are present and absent are apart by what the claim allows, in standard deviations."""
    seen = []

    def watch(scores: Any, included: Any, *rest: Any, **options: Any) -> EmpiricalBound:
        seen.append((scores, included))
        return audit_scores(scores, included, *rest, **options)

    monkeypatch.setattr(empirical, "audit_scores", watch)
    options = {"dp-gd": {"rounds": 4, "loss": loss}}
    audit_of("dp-gd", threat_model, canaries=500, epsilon=4.0, features__dimension=60, options=options)
    scores, included = seen[0]
    within = math.sqrt((scores[included].var() + scores[~included].var()) / 2)
    apart = float(scores[included].mean() - scores[~included].mean()) / within
    mu, error = gaussian_mu(4.0, 1e-5), math.sqrt(4 / 500)
    assert 0.6 * mu < apart < mu + 3 * error


# Planted mistakes.


@pytest.mark.parametrize("threat_model", [EACH, SUMS])
def test_forgotten_noise_is_found(threat_model: str, release: Any) -> None:
    release(lambda private: replace(private, standard_deviation=0.0))
    audit = audit_of("dp-gd", threat_model)
    assert audit.claimed_epsilon <= 1.0
    assert audit.refuted
    assert audit.bound.correct == audit.bound.guesses


@pytest.mark.parametrize("threat_model", [EACH, SUMS])
def test_forgotten_clipping_is_found(threat_model: str, release: Any) -> None:
    release(lambda private: replace(private, norms=0 * private.norms))
    assert audit_of("dp-gd", threat_model).refuted


@pytest.mark.parametrize("threat_model", [EACH, SUMS])
def test_a_wrong_sensitivity_is_found(threat_model: str, release: Any) -> None:
    release(lambda private: replace(private, standard_deviation=private.standard_deviation / 4))
    assert audit_of("dp-gd", threat_model, canaries=500).refuted


def test_wrong_shares_of_the_noise_are_found(steps: Any) -> None:
    """Every device adds 1/N of the standard deviation instead of 1/N of the variance."""

    def too_little(plan: PrivatePlan, taken: Steps) -> Steps:
        assert plan.shares > 16
        assert taken.private is not None
        deviation = taken.private.standard_deviation / math.sqrt(plan.shares)
        return replace(taken, private=replace(taken.private, standard_deviation=deviation))

    assert not audit_of("dp-gd", SUMS, data__devices=20).refuted
    steps(too_little)
    assert audit_of("dp-gd", SUMS, canaries=500, data__devices=20).refuted


@pytest.mark.parametrize("threat_model", [EACH, SUMS])
def test_updates_in_the_clear_are_found(threat_model: str, steps: Any) -> None:
    steps(lambda _, taken: replace(taken, private=None))
    audit = audit_of("dp-gd", threat_model)
    assert audit.covers == "everything", "the claim has to be wrong"
    assert audit.refuted


# In a sum of coded rows the other samples hide canaries, whatever the noise, so there are few.
FEW_SAMPLES = {"canaries": 60, "data__test_fraction": 0.97}


@pytest.mark.parametrize("changes", [{}, {"threat_model": SUMS, **FEW_SAMPLES}])
def test_too_little_noise_in_coded_data_is_found(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert not audit_of("dp-cfl", **changes).refuted
    right: Any = encode_all

    def too_quiet(*rest: Any, noise_variance: Any, label_noise_variance: Any, **options: Any) -> Any:
        quiet = {"noise_variance": noise_variance / 64, "label_noise_variance": label_noise_variance / 64}
        return right(*rest, **quiet, **options)

    monkeypatch.setattr(codedfl.uploads._rows, "encode_all", too_quiet)
    audit = audit_of("dp-cfl", **changes)
    assert audit.claimed_epsilon <= 1.0
    assert audit.refuted


def test_too_little_noise_in_factors_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not audit_of("one-shot").refuted
    right = CodedFactor.drawn

    def too_quiet(
        self: CodedFactor, terms: Any, devices: Any, noise_variance: Any, label_noise_variance: Any, *rest: Any
    ) -> Any:
        return right(self, terms, devices, noise_variance / 64, label_noise_variance / 64, *rest)

    monkeypatch.setattr(CodedFactor, "drawn", too_quiet)
    audit = audit_of("one-shot")
    assert audit.claimed_epsilon <= 1.0
    assert audit.refuted


@pytest.mark.parametrize("threat_model", [EACH, SUMS])
def test_too_little_noise_in_statistics_is_found(threat_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codedfl.uploads._statistics, "noise_of_sum", lambda *_: 0.1)
    assert audit_of("ssp", threat_model, canaries=500).refuted


@pytest.mark.parametrize("threat_model", [EACH, SUMS])
@pytest.mark.parametrize("curvature", ["mean", "second-moments"])
def test_too_little_noise_in_curvature_is_found(
    curvature: str, threat_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"dp-gd": {"rounds": 4, "curvature": curvature}}
    # A sum has only so many numbers, and more canaries than that hide each other.
    small: dict[str, Any] = {
        "canaries": 300 if threat_model == EACH else 100,
        "features__dimension": 60,
        "options": options,
    }
    assert not audit_of("dp-gd", threat_model, **small).refuted
    right = noise_of_sum
    monkeypatch.setattr(codedfl.uploads._mean, "noise_of_sum", lambda setting: right(setting) / 100)
    assert audit_of("dp-gd", threat_model, **small).refuted


# Schemes that claim less, or nothing.


@pytest.mark.parametrize("scheme", mostly_slow(["fedavg", "codedfedl", "momentum", "fed3r", "ccfl"], "fedavg", "fed3r"))
def test_a_scheme_without_a_claim_cannot_fail(scheme: str) -> None:
    audit = audit_of(scheme, epsilon=0.0)
    assert (audit.claimed_epsilon, audit.covers, audit.refuted) == (math.inf, "nothing", False)
    assert audit.bound.epsilon > 2.5, "nothing hides the canaries"
    assert audit.bound == audit.everything


def test_a_claim_about_the_upload_is_held_against_the_upload() -> None:
    audit = audit_of("scfl")
    assert audit.covers == "upload"
    assert not audit.refuted
    assert audit.everything.epsilon > 2.5 > 1.0 >= audit.claimed_epsilon > audit.bound.epsilon


@pytest.mark.slow  # it imports dp-accounting
def test_a_sampled_batch_is_no_gaussian_mechanism() -> None:
    options = {"dp-gd": {"rounds": 4, "sampling_rate": 0.3}}
    audit = audit_of("dp-gd", options=options)
    assert audit.covers == "everything"
    assert not audit.refuted


def test_a_regression_is_audited(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = rng.standard_normal((400, 9))
    lines = [",".join("abcdefghy"), *(",".join(f"{value:.6f}" for value in row) for row in table)]
    (tmp_path / "table.csv").write_text("\n".join(lines))
    given = {"data.dataset": str(tmp_path / "table.csv"), "data.target": ["y"], "data.devices": 4}
    private = {"privacy.epsilon": 1.0, "privacy.label_bound": 2.0, "coding.clip_norm": 3.0, "schemes": ["dp-gd"]}
    audit = run_empirical_audit(load_config(overrides=list((given | private).items())), canaries=200)
    assert audit.schemes[0].covers == "everything"
    assert not audit.refuted


# Results.


def test_results_are_plain_reproducible_and_written(tmp_path: Path) -> None:
    config = small_config(schemes=["fedavg", "one-shot"], coding__coded_samples=100)
    diary = Diary()
    audit = run_empirical_audit(config, canaries=100, confidence=0.9, progress=diary)
    assert audit == run_empirical_audit(config, canaries=100, confidence=0.9)
    write_empirical_audit(audit, tmp_path / "a")
    assert {path.name for path in (tmp_path / "a").iterdir()} == {"config.toml", "empirical.json"}
    found = json.loads((tmp_path / "a/empirical.json").read_text())
    assert found == audit.as_dict()
    first, _ = found["empirical"]
    bound = audit.schemes[0].bound
    assert first == {
        "scheme": "fedavg",
        "claimed_epsilon": None,
        "covers": "nothing",
        "threat_model": "each message",
        "epsilon_lower_bound": bound.epsilon,
        "everything_lower_bound": bound.epsilon,
        "delta": 1e-5,
        "confidence": 0.9,
        "canaries": 100,
        "guesses": bound.guesses,
        "correct": bound.correct,
        "refuted": False,
    }
    assert diary.latest["FedAvg"] == (10, 10)
    assert "FedAvg" in diary.closed


@pytest.mark.parametrize("confidence", [0.0, 1.0, math.nan])
def test_an_impossible_confidence_is_refused(confidence: float) -> None:
    with pytest.raises(InputError, match="confidence"):
        run_empirical_audit(small_config(), confidence=confidence)


@pytest.mark.parametrize("canaries", [0, 19, 5001])
def test_an_impossible_number_of_canaries_is_refused(canaries: int) -> None:
    with pytest.raises(InputError, match=f"canaries = {canaries}"):
        run_empirical_audit(small_config(), canaries=canaries)


# Canaries.


def test_canaries_change_nothing_but_rows_at_the_end_of_every_device() -> None:
    setting = build_experiment(small_config(coding__clip_norm=0.5)).setting
    planted = plant_canaries(setting, 100)
    before, after = setting.federation, planted.setting.federation
    assert after.samples.tolist() == (before.samples + np.bincount(planted.device)).tolist()
    for device in range(before.devices):
        for real, row in zip(planted.real(device), before.device(device), strict=True):
            np.testing.assert_array_equal(real, row)
        own = np.flatnonzero(planted.device == device)
        features, labels = (rows[before.samples[device] :] for rows in after.device(device))
        there = planted.included[own, None]
        np.testing.assert_array_equal(features, (there * planted.features[own]).astype(np.float32))
        np.testing.assert_array_equal(labels, (there * planted.labels[own]).astype(np.float32))


def test_canaries_reach_the_bounds_and_half_of_them_exceed_the_clip_norm() -> None:
    planted = plant_canaries(build_experiment(small_config(coding__clip_norm=0.5)).setting, 120)
    norms = np.linalg.norm(planted.features, axis=1)
    assert np.count_nonzero(np.isclose(norms, 0.5)) == 60
    assert np.count_nonzero(np.isclose(norms, 0.5 * OVERSIZE)) == 60
    features, labels = planted.clipped(np.arange(120))
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 0.5)
    np.testing.assert_allclose(np.linalg.norm(labels, axis=1), 0.5 / norms)


def test_without_a_clip_norm_canaries_are_as_large_as_large_samples() -> None:
    setting = make_setting(make_federation((50, 50), task="regression"))
    planted = plant_canaries(setting, 40)
    for canaries, rows in (
        (planted.features, setting.federation.features),
        (planted.labels, setting.federation.labels),
    ):
        large = np.quantile(np.linalg.norm(rows, axis=1), 0.99)
        np.testing.assert_allclose(np.linalg.norm(canaries, axis=1), large)


# Sufficient statistics of the coins.


def test_one_canary_has_the_likelihood_ratio_of_a_gaussian() -> None:
    statistics = MembershipStatistics.none(1)
    statistics.precision[:], statistics.weighted[:] = 3.0, 2.5
    np.testing.assert_allclose(statistics.scores(), [2.5 - 3.0 / 2])


def test_canaries_that_overlap_are_told_apart() -> None:
    """Without noise, two signals at a small angle are known exactly, though each alone looks like the other."""
    signals = np.array([[1.0, 0.0, 0.0], [0.99, math.sqrt(1 - 0.99**2), 0.0]])
    statistics = MembershipStatistics.none(2)
    seen = signals[0]
    statistics.add_linear(np.arange(2), signals @ signals.T, signals @ seen, float(seen @ seen), 3)
    scores = statistics.scores()
    assert scores[0] > 0 > scores[1]


def test_the_variance_of_the_noise_is_estimated() -> None:
    rng = np.random.default_rng(1)
    numbers, deviation = 4000, 3.0
    signals = rng.standard_normal((20, numbers)) / math.sqrt(numbers)
    seen = (rng.random(20) < 0.5) @ signals + deviation * rng.standard_normal(numbers)
    statistics = MembershipStatistics.none(20)
    products = signals @ signals.T
    statistics.add_linear(np.arange(20), products, signals @ seen, float(seen @ seen), numbers)
    variance = products[0, 0] / statistics.precision[0, 0]
    assert abs(variance / deviation**2 - 1) < 4 * math.sqrt(2 / numbers)


def test_scores_of_orthogonal_canaries_have_the_law_of_a_likelihood_ratio() -> None:
    """With signal-to-noise ratio lambda it is N(lambda / 2, lambda) if present, and N(-lambda / 2, lambda) if absent."""
    rng = np.random.default_rng(2)
    count, ratio = 600, 2.0
    included = rng.random(count) < 0.5
    seen = included + rng.standard_normal(count) / math.sqrt(ratio)
    statistics = MembershipStatistics.none(count)
    statistics.precision[:] = ratio * np.eye(count)
    statistics.weighted[:] = ratio * seen
    scores = statistics.scores()
    for present, sign in ((included, 1), (~included, -1)):
        error = math.sqrt(ratio / np.count_nonzero(present))
        assert abs(scores[present].mean() - sign * ratio / 2) < 4 * error
        assert abs(scores[present].var() / ratio - 1) < 4 * math.sqrt(2 / np.count_nonzero(present))


def test_statistics_of_independent_messages_adds_up() -> None:
    first, second = MembershipStatistics.none(2), MembershipStatistics.none(2)
    first.add_ratios(np.array([1]), np.array([3.0]))
    second.add_linear(np.array([0]), np.ones((1, 1)), np.array([1.0]), 10.0, 5)
    both = first + second
    assert both.messages == 2
    np.testing.assert_allclose(both.scores(), first.scores() + second.scores())
    assert both.scores()[1] == 3.0


def test_a_message_without_signals_or_with_overflow_says_nothing() -> None:
    statistics = MembershipStatistics.none(1)
    statistics.add_linear(np.array([0]), np.zeros((1, 1)), np.zeros(1), 1.0, 5)
    statistics.add_linear(np.array([0]), np.ones((1, 1)), np.ones(1), math.inf, 5)
    assert statistics.messages == 0
    assert statistics.scores() == 0
