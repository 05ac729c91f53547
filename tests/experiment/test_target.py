from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from codedfl.config import Config, load_config, to_toml
from codedfl.data import FeatureMap, Federation
from codedfl.errors import InputError
from codedfl.experiment import build_experiment, notes_on, run, sweep
from codedfl.experiment._build import family_key
from codedfl.experiment._target import (
    BINS,
    KEPT,
    NORM_SHARE,
    clip_labels,
    norm_edges,
    privacy_target,
    private_norm,
)
from codedfl.privacy import GaussianMechanism, epsilon_of
from codedfl.schemes import DEFAULT_SCHEMES, PRIVATE_SCHEMES
from codedfl.streams import Streams
from codedfl.typing import FloatArray
from tests.problems import make_federation
from tests.support import refusal_of, small_config


def feature_map(*, rff: bool = False, intercept: bool = False, scale: float = 1.0) -> FeatureMap:
    frequencies, phases = (np.ones((2, 3)), np.zeros(3)) if rff else (None, None)
    return FeatureMap(None, None, frequencies, phases, np.full(1, scale, np.float32), intercept, 2)


def config_with(**changes: Any) -> Config:
    return small_config(**{"privacy__epsilon": 2.0, **changes})


def with_norms(norms: FloatArray, devices: int = 4, dimension: int = 9) -> Federation:
    """Return a federation whose rows have given norms."""
    federation = make_federation([len(norms) // devices] * devices, dimension)
    features = federation.features / np.linalg.norm(federation.features, axis=1, keepdims=True) * norms[:, None]
    return replace(federation, features=features)


def test_without_epsilon_there_is_no_target_and_a_clip_norm_only_if_it_is_given() -> None:
    federation, streams = make_federation(), Streams(0)
    assert privacy_target(small_config(), federation, feature_map(), streams) == (None, None)
    given = small_config(coding__clip_norm=0.7)
    assert privacy_target(given, federation, feature_map(), streams) == (None, 0.7)


def test_a_given_norm_is_kept_and_costs_nothing() -> None:
    config = config_with(coding__clip_norm=0.7, privacy__delta=1e-6, privacy__threat_model="sums-only")
    target, norm = privacy_target(config, make_federation(), feature_map(), Streams(0))
    assert norm == 0.7
    assert target is not None
    assert (target.epsilon, target.delta, target.threat_model, target.spent) == (2.0, 1e-6, "sums-only", ())


@pytest.mark.parametrize("clip_norm", [0.0, "auto"])
@pytest.mark.parametrize(("intercept", "norm"), [(False, 1.0), (True, math.sqrt(2.0))])
def test_random_fourier_features_are_clipped_to_their_mean_square_norm(
    *, clip_norm: float | str, intercept: bool, norm: float
) -> None:
    config = config_with(coding__clip_norm=clip_norm)
    target, found = privacy_target(config, make_federation(), feature_map(rff=True, intercept=intercept), Streams(0))
    assert found == pytest.approx(norm)
    assert target is not None
    assert target.spent == ()


@pytest.mark.parametrize("intercept", [False, True])
def test_the_rule_is_the_mean_square_norm_of_actual_features(*, intercept: bool) -> None:
    config = config_with(features__dimension=400, features__intercept=intercept)
    setting = build_experiment(config).setting
    squares = np.sum(setting.federation.features.astype(float) ** 2, axis=1)
    assert setting.code.clip_norm == pytest.approx(math.sqrt(1 + intercept))
    # Mean of 400 products 2 cos^2 / 400, each with mean 1 and variance 1/2: standard error sqrt(0.5 / 400) = 0.035.
    assert squares.mean() == pytest.approx(1 + intercept, abs=4 * 0.036)


@pytest.mark.parametrize("changed", [feature_map(), feature_map(rff=True, scale=0.5)])
def test_other_norms_are_found_privately_and_charged(changed: FeatureMap) -> None:
    federation = with_norms(np.full(400, 1.0))
    for threat_model in ("each-message", "sums-only"):
        config = config_with(privacy__threat_model=threat_model)
        target, norm = privacy_target(config, federation, changed, Streams(0))
        assert target is not None
        (spent,) = target.spent
        assert isinstance(spent, GaussianMechanism)
        assert norm in norm_edges(9)
        left = target.multiplier_for_share(1 - NORM_SHARE)
        assert epsilon_of([spent, GaussianMechanism(left)], 1e-5) == pytest.approx(2.0, rel=1e-9)
        assert norm == private_norm(federation, spent.noise_multiplier, target.sums_only, Streams(0))


def test_bins_span_eight_octaves_and_every_norm_is_in_one() -> None:
    edges = norm_edges(9)
    assert len(edges) == BINS
    np.testing.assert_allclose(edges[1:] / edges[:-1], math.sqrt(2.0))
    assert edges[-1] == pytest.approx(2 * 3.0)


@pytest.mark.parametrize("typical", [0.05, 0.4, 1.0, 3.0])
def test_with_little_noise_the_norm_keeps_about_four_in_five_samples(typical: float) -> None:
    norms = typical * np.random.default_rng(0).lognormal(0.0, 0.7, 4000)
    norm = private_norm(with_norms(norms), 1e-6, False, Streams(0))
    quantile = float(np.quantile(norms, KEPT))
    assert norm in norm_edges(9)
    assert quantile / math.sqrt(2) < norm < quantile * math.sqrt(2), "an edge of the bin that the quantile is in"


def test_samples_that_all_have_the_same_norm_are_clipped_to_the_end_of_its_bin() -> None:
    """No edge beyond it keeps any more samples, and each would cost noise."""
    federation = with_norms(np.full(400, 1.0), dimension=400)
    for seed in range(10):
        assert 1.0 <= private_norm(federation, 3.0, True, Streams(seed)) < math.sqrt(2), seed


def test_norms_beyond_all_bins_give_the_last_edge_and_zeros_the_first() -> None:
    edges = norm_edges(9)
    assert private_norm(with_norms(np.full(400, 1e9)), 1e-6, False, Streams(0)) == edges[-1]
    assert private_norm(with_norms(np.full(400, 1e-9)), 1e-6, False, Streams(0)) == edges[0]


@pytest.mark.parametrize("sums_only", [False, True])
def test_the_noise_of_the_histogram_has_the_stated_law(*, sums_only: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    federation = with_norms(np.full(400, 1.0))
    seen: list[FloatArray] = []
    cumsum = np.cumsum

    def watch(counts: FloatArray) -> FloatArray:
        seen.append(np.array(counts))
        return np.asarray(cumsum(counts))

    monkeypatch.setattr("codedfl.experiment._target.np.cumsum", watch)
    for seed in range(200):
        private_norm(federation, 3.0, sums_only, Streams(seed))
    exact = np.zeros(BINS)
    exact[int(np.searchsorted(norm_edges(9), 1.0))] = 400
    noise = np.array(seen) - exact
    deviation = 3.0 if sums_only else 3.0 * 2.0  # four devices add it each
    assert abs(noise.mean()) < 4 * deviation / math.sqrt(noise.size)
    assert abs(noise.var() / deviation**2 - 1) < 4 * math.sqrt(2 / noise.size)
    assert np.all(np.abs(np.corrcoef(noise.T) - np.eye(BINS)) < 4.5 / math.sqrt(200))


def test_one_sample_changes_one_count_of_the_histogram_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[FloatArray] = []
    cumsum = np.cumsum

    def watch(counts: FloatArray) -> FloatArray:
        seen.append(np.array(counts))
        return np.asarray(cumsum(counts))

    norms = np.random.default_rng(1).lognormal(0.0, 3.0, 40)
    pooled, fewer = with_norms(norms, 1), [with_norms(np.delete(norms, row), 1) for row in range(40)]
    monkeypatch.setattr("codedfl.experiment._target.np.cumsum", watch)
    for each in (pooled, *fewer):
        private_norm(each, 1.0, False, Streams(0))
    changes = np.linalg.norm(np.array(seen[1:]) - seen[0], axis=1)
    np.testing.assert_allclose(changes, 1.0, rtol=1e-9)


def test_auto_without_epsilon_is_refused_unless_no_data_is_looked_at() -> None:
    config = small_config(coding__clip_norm="auto")
    sentence = refusal_of(lambda: privacy_target(config, make_federation(), feature_map(), Streams(0)))
    assert sentence.startswith('coding.clip_norm = "auto" looks at the norms')
    assert sentence.endswith(".")
    assert privacy_target(config, make_federation(), feature_map(rff=True), Streams(0)) == (None, 1.0)


def test_targets_of_a_regression_are_clipped_to_the_bound_and_those_below_it_are_kept() -> None:
    federation = make_federation((40,), outputs=2, task="regression")
    sizes = np.linalg.norm(federation.labels, axis=1)
    bound = float(np.median(sizes))
    clipped = clip_labels(config_with(privacy__label_bound=bound), federation).labels
    np.testing.assert_allclose(np.linalg.norm(clipped, axis=1), np.minimum(sizes, bound), rtol=1e-12)
    np.testing.assert_array_equal(clipped[sizes <= bound], federation.labels[sizes <= bound])
    np.testing.assert_allclose(clipped / federation.labels, (clipped[:, :1] / federation.labels[:, :1]).repeat(2, 1))


def test_a_centre_is_subtracted_before_clipping_from_test_targets_too() -> None:
    federation = make_federation((40,), outputs=2, task="regression")
    moved = replace(federation, labels=federation.labels + 50, test_labels=federation.test_labels + 50)
    given = {"privacy__label_bound": float(np.median(np.linalg.norm(federation.labels, axis=1)))}
    expected = clip_labels(config_with(**given), federation)
    found = clip_labels(config_with(**given, privacy__label_center=50.0), moved)
    np.testing.assert_allclose(found.labels, expected.labels, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.test_labels, expected.test_labels, rtol=0, atol=1e-12)


def test_classes_have_no_centre() -> None:
    sentence = refusal_of(lambda: clip_labels(config_with(privacy__label_center=3.0), make_federation()))
    assert sentence.startswith("privacy.label_center = 3 is for the targets of a regression")


def test_a_centre_makes_training_and_predictions_those_of_centred_targets(tmp_path: Path) -> None:
    centred = pd.read_csv(regression_file(tmp_path))
    centred.assign(y=centred["y"] + 1024).to_csv(tmp_path / "moved.csv", index=False, float_format="%.17g")
    given: dict[str, Any] = {"schemes": ["dp-gd", "ssp"], "privacy__epsilon": 8.0, "privacy__label_bound": 2.0}
    here = run(on_file(str(tmp_path / "table.csv"), **given))
    there = run(on_file(str(tmp_path / "moved.csv"), **given, privacy__label_center=1024.0))
    for scheme in ("dp-gd", "ssp"):
        # Targets near 1024 are stored in single precision, to 2^-14.
        assert there[scheme].final.score == pytest.approx(here[scheme].final.score, abs=1e-3)
        shift = there.predictor(scheme).predict(centred) - here.predictor(scheme).predict(centred)
        np.testing.assert_allclose(shift, 1024.0, rtol=0, atol=0.01)


def test_targets_far_from_zero_are_noted(tmp_path: Path) -> None:
    table = pd.read_csv(regression_file(tmp_path))
    table.assign(y=table["y"] + 1000).to_csv(tmp_path / "moved.csv", index=False)
    given: dict[str, Any] = {"schemes": ["ssp"], "privacy__epsilon": 8.0, "privacy__label_bound": 2000.0}
    far = notes_on(run(on_file(str(tmp_path / "moved.csv"), **given)))
    near = notes_on(run(on_file(str(tmp_path / "moved.csv"), **given, privacy__label_center=1000.0)))
    assert [any("--label-center" in note for note in notes) for notes in (far, near)] == [True, False]


def test_labels_of_a_classification_are_left_alone_and_have_norm_one() -> None:
    federation = make_federation()
    assert clip_labels(config_with(privacy__label_bound=0.1), federation) is federation
    target, _ = privacy_target(
        config_with(privacy__label_bound=0.1, coding__clip_norm=1.0), federation, feature_map(), Streams(0)
    )
    assert target is not None
    assert target.label_bound == 1.0


def test_a_regression_without_a_bound_is_refused_if_it_is_to_keep_an_epsilon() -> None:
    federation = make_federation(task="regression")
    sentence = refusal_of(lambda: privacy_target(config_with(), federation, feature_map(), Streams(0)))
    assert sentence.startswith("privacy.label_bound = 0")
    assert "--label-bound" in sentence
    assert clip_labels(small_config(), federation) is federation


def regression_file(folder: Path) -> str:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.standard_normal((120, 3)), columns=list("abc"))
    table["y"] = table["a"] + 0.1 * rng.standard_normal(120)
    table.to_csv(folder / "table.csv", index=False)
    return str(folder / "table.csv")


def on_file(path: str, **changes: Any) -> Config:
    return small_config(data__dataset=path, data__target=["y"], data__devices=3, **changes)


def test_a_regression_in_a_family_with_a_run_without_epsilon_is_refused_as_well(tmp_path: Path) -> None:
    path = regression_file(tmp_path)
    plain, private = on_file(path), on_file(path, privacy__epsilon=2.0)
    assert "privacy.label_bound = 0" in refusal_of(lambda: sweep([plain, private]))
    experiment = build_experiment(plain)
    assert "privacy.label_bound = 0" in refusal_of(lambda: build_experiment(private, like=experiment))


def test_configurations_that_differ_in_the_bound_on_labels_are_not_one_family() -> None:
    base = config_with(privacy__label_bound=1.0)
    assert family_key(base) != family_key(config_with(privacy__label_bound=2.0))
    assert family_key(base) != family_key(config_with(privacy__label_bound=1.0, privacy__label_center=2.0))
    for other in (
        config_with(privacy__label_bound=1.0, privacy__epsilon=5.0),
        config_with(privacy__label_bound=1.0, privacy__delta=1e-7),
        config_with(privacy__label_bound=1.0, privacy__threat_model="sums-only"),
    ):
        assert family_key(base) == family_key(other)


def test_a_sweep_over_epsilon_gives_the_results_of_separate_runs(tmp_path: Path) -> None:
    path = regression_file(tmp_path)
    given: dict[str, Any] = {"schemes": ["dp-gd", "ssp", "fedavg"], "privacy__label_bound": 2.0}
    configs = [
        on_file(path, **given, privacy__epsilon=1.0),
        on_file(path, **given, privacy__epsilon=8.0),
        on_file(path, **given, privacy__epsilon=8.0, privacy__threat_model="sums-only"),
    ]
    for config, swept in zip(configs, sweep(configs), strict=True):
        alone = run(config)
        assert swept.setting.privacy == alone.setting.privacy
        assert swept.setting.code.clip_norm == alone.setting.code.clip_norm
        for name in config.schemes:
            np.testing.assert_allclose(swept[name].model, alone[name].model, rtol=1e-4, atol=1e-6)
            assert swept.privacy(name)["epsilon"] == pytest.approx(alone.privacy(name)["epsilon"], rel=1e-9)


def test_an_epsilon_selects_private_schemes_unless_schemes_are_named() -> None:
    assert load_config().schemes == DEFAULT_SCHEMES
    assert load_config(overrides=[("privacy.epsilon", 2.0)]).schemes == PRIVATE_SCHEMES
    assert load_config(overrides=[("privacy.epsilon", 2)]).schemes == PRIVATE_SCHEMES
    assert load_config(overrides=[("privacy.epsilon", 0.0)]).schemes == DEFAULT_SCHEMES
    assert load_config(overrides=[("privacy.delta", 1e-6)]).schemes == DEFAULT_SCHEMES
    named = [("privacy.epsilon", 2.0), ("schemes", ["fedavg"])]
    assert load_config(overrides=named).schemes == ("fedavg",)
    assert Config(privacy=load_config(overrides=[("privacy.epsilon", 2.0)]).privacy).schemes == PRIVATE_SCHEMES


@pytest.mark.parametrize("clip_norm", ["auto", 0.0, 1.5])
def test_a_configuration_comes_back_from_its_file(clip_norm: float | str, tmp_path: Path) -> None:
    config = config_with(
        coding__clip_norm=clip_norm, privacy__threat_model="sums-only", privacy__label_bound=3.0, schemes=["fedavg"]
    )
    (tmp_path / "config.toml").write_text(to_toml(config))
    assert load_config(tmp_path / "config.toml") == config


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("privacy.epsilon", -1.0),
        ("privacy.epsilon", math.nan),
        ("privacy.epsilon", math.inf),
        ("privacy.epsilon", "much"),
        ("privacy.delta", 0.0),
        ("privacy.delta", 2.0),
        ("privacy.threat_model", "nobody"),
        ("privacy.label_bound", -1.0),
        ("coding.clip_norm", "often"),
        ("coding.clip_norm", -1.0),
    ],
)
def test_values_out_of_range_are_refused_in_one_sentence(key: str, value: Any) -> None:
    with pytest.raises(InputError, match=key.replace(".", r"\.")) as refused:
        load_config(overrides=[(key, value)])
    assert "\n" not in str(refused.value)
    assert str(refused.value).endswith(".")
