"""What devices agree on, and federations that are refused."""

from __future__ import annotations

import math
import tomllib
from typing import Any

import numpy as np
import pytest

from codedfl.data import FeatureMap, fit_feature_map
from codedfl.errors import InputError
from codedfl.federation._config_files import federation_toml, parse_federation
from codedfl.federation._private_rules import SUPPORTED_SCHEMES
from codedfl.schemes import SCHEMES, make_scheme
from codedfl.streams import Streams
from tests.federation.configs import CLASSIFICATION, REGRESSION, federation

PRIVATE: dict[str, Any] = {
    "scheme": "dp-gd",
    "data": CLASSIFICATION,
    "coding": {"clip_norm": 1.0},
    "privacy": {"epsilon": 2.0},
}

FEDERATION_REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"round": 3}, "round: there is no such key; the keys are name, scheme, devices, .*server\\.$"),
    (
        {"training": {"round": 3}},
        "training.round: there is no such key, did you mean training.rounds\\?$",
    ),
    (
        {"training": {"rounds": 0}},
        r"training.rounds = 0 is not possible: it must be an integer \(1 or more, at most 1000000000\).",
    ),
    ({"training": {"rounds": "many"}}, 'training.rounds = "many" is not possible: it must be an integer '),
    (
        {"training": {"deadline_s": float("nan")}},
        r"training.deadline_s = NaN is not possible: it must be a finite number \(above 0, at most 1000000000\).",
    ),
    ({"training": {"deadline_s": True}}, "training.deadline_s = true is not possible: it must be a finite number "),
    (
        {"training": {"most_refusals": 0}},
        r"training.most_refusals = 0 is not possible: it must be an integer \(1 or more, ",
    ),
    ({"training": 3}, "training = 3 is not possible: it must be a section with keys and values."),
    (
        {"training": {"least_devices": 3}},
        r"training.least_devices = 3 is not possible: there are 2 device\(s\), give at most",
    ),
    ({"devices": []}, r"devices = \[\] is not possible: it must be a non-empty list of strings."),
    ({"devices": "ward-1"}, 'devices = "ward-1" is not possible: it must be a non-empty list of strings.'),
    ({"devices": ["a", "b", "A"]}, 'devices names "a" more than once: name each once.'),
    ({"devices": ["a", "../b"]}, r'devices\[1\] = "../b" is not possible: it must have 1 to 64 characters out of A-Z'),
    ({"devices": [".."]}, r'devices\[0\] = ".." is not possible: .* the first not a dot.'),
    ({"devices": ["x" * 65]}, r"devices\[0\] = .* is not possible: it must have 1 to 64 characters"),
    ({"devices": ["a\n"]}, r'devices\[0\] = "a\\n" is not possible: it must have 1 to 64 characters'),
    ({"name": "a\0b"}, r'name = "a\\u0000b" is not possible: it must be UTF-8 text without NUL characters.'),
    ({"name": ""}, r'name = "" is not possible: it must be a non-empty string \(at most 200 characters\).'),
    ({"scheme": "ccflx"}, "scheme = \"ccflx\" is not possible: it must be one of fedavg, .*Did you mean 'ccfl'\\?"),
    (
        {"scheme": "cfl-fb"},
        'scheme = "cfl-fb" is not possible: what its devices send is not offered over a network; choose',
    ),
    ({"options": {"rnak": 3}}, "options.rnak: there is no such key, did you mean options.rank?"),
    ({"options": {"rank": "big"}}, r"options.rank = 'big': input should be"),
    (
        {"options": {"damping_factor": float("nan")}},
        "options.damping_factor = nan is not possible: it must be a finite",
    ),
    ({"options": {"deadline": "auto"}}, 'options.deadline = "auto" is not possible over a network, .* leave it out.'),
    ({"options": 3}, "options = 3 is not possible: it must be a section with keys and values."),
    ({"data": {"columns": ["x"], "task": "regression"}}, r"data.target is missing: give it \(column\(s\) to predict"),
    (
        {"data": REGRESSION | {"columns": []}},
        r"data.columns = \[\] is not possible: it must be a non-empty list of non-empty strings.",
    ),
    ({"data": REGRESSION | {"columns": ["a", "a"]}}, 'data.columns names "a" more than once: name each once.'),
    (
        {"data": REGRESSION | {"columns": ["a", 3]}},
        r"data.columns\[1\] = 3 is not possible: it must be a non-empty string.",
    ),
    (
        {"data": REGRESSION | {"columns": ["effect"]}},
        'data.target = "effect" is also one of data.columns: name it in one',
    ),
    (
        {"data": REGRESSION | {"classes": ["a"]}},
        r'data.classes = \["a"\] is not possible for a regression: leave it out.',
    ),
    (
        {"data": CLASSIFICATION | {"classes": ["a"]}},
        r'data.classes = \["a"\] is not possible: name all classes .*2 or more.',
    ),
    ({"data": CLASSIFICATION | {"classes": ["a", "b", "a"]}}, 'data.classes names "a" more than once: name each once.'),
    (
        {"data": CLASSIFICATION | {"target": ["a", "b"]}},
        r'data.target = \["a", "b"\] is not possible for a classification',
    ),
    (
        {"data": REGRESSION | {"task": "guess"}},
        'data.task = "guess" is not possible: it must be "classification" or "regression".',
    ),
    (
        {"features": {"mean": [1.0]}},
        r"features.mean has 1 value\(s\) for 2 column\(s\): give one for each column, or none.",
    ),
    (
        {"features": {"mean": [1, 2]}},
        r"features.mean = \[1.0, 2.0\] and features.scale = \[\] belong together: give both",
    ),
    (
        {"features": {"mean": [1, 2], "scale": [1, 0]}},
        r"features.scale\[1\] = 0 is not possible: it must be a finite number \(1e-30 or more, at most 1e\+30\).",
    ),
    (
        {"features": {"output_scale": 0}},
        r"features.output_scale = 0 is not possible: it must be a finite number \(1e-30 or more",
    ),
    ({"features": {"seed": -1}}, r"features.seed = -1 is not possible: it must be an integer \(0 or more, "),
    (
        {"coding": {"noise_variance": -1}},
        r"coding.noise_variance = -1 is not possible: it must be a finite number \(0 or more, at most 1e\+30\).",
    ),
    (
        {"coding": {"sums_only": True}},
        'coding.sums_only = true is not possible with scheme = "ccfl" and options.upload = "subspace", whose server needs more'
        r" than the sum of the uploads: choose one that uploads rows \(dp-cfl, scfl-fixed, scfl\), or coding.sums_only = false.",
    ),
    (
        {"coding": {"sums_only": True}, "scheme": "fedavg"},
        'coding.sums_only = true is not possible with scheme = "fedavg", which has no upload: choose',
    ),
    (
        {"coding": {"sums_only": True}, "scheme": "fed3r"},
        'coding.sums_only = true is not possible with scheme = "fed3r", as masks hide coded rows alone and no exact second'
        " moments: choose",
    ),
    (
        {"coding": {"sums_only": True}, "scheme": "one-shot"},
        'coding.sums_only = true is not possible with scheme = "one-shot" and options.upload = "factor", whose server',
    ),
    (
        {"coding": {"sums_only": True}, "scheme": "scfl", "options": {"upload": "factor"}},
        'coding.sums_only = true is not possible with scheme = "scfl" and options.upload = "factor", whose server needs more',
    ),
    (
        {"coding": {"sums_only": True}, "scheme": "scfl", "devices": ["a"]},
        r'coding.sums_only = true is not possible with devices = \["a"\], .* name 2 or more',
    ),
    (
        {"incentive": {"sensitivity": [1.0]}},
        r"incentive.sensitivity has 1 value\(s\) for 2 device\(s\): give one for each",
    ),
    (
        {"incentive": {"sensitivity": [1.0, 0]}},
        r"incentive.sensitivity\[1\] = 0 is not possible: it must be a finite number \(above 0\).",
    ),
    (
        {"server": {"address": "localhost"}},
        'server.address = "localhost" is not possible: it must be a host and a port',
    ),
    (
        {"privacy": {"epsilon": 2.0}},
        'privacy.epsilon = 2 is not possible with scheme = "ccfl", which sets no noise by it: choose dp-gd or ihm or ssp or '
        "scfl-private, or let devices",
    ),
    (
        {"privacy": {"delta": 1.0}},
        r"privacy.delta = 1.0 is not possible: it must be a finite number \(above 0, below 1\).",
    ),
    (
        PRIVATE | {"privacy": {}},
        "privacy.epsilon = 0 leaves the noise of dp-gd open: set the epsilon .* for example 2.",
    ),
    *(
        (PRIVATE | {"scheme": scheme, "privacy": {}}, f"privacy.epsilon = 0 leaves the noise of {scheme} open: set the")
        for scheme in ("ssp", "ihm", "scfl-private")
    ),
    (
        PRIVATE | {"scheme": "ssp", "coding": {"sums_only": True, "clip_norm": 1.0}},
        'coding.sums_only = true is not possible with scheme = "ssp", as masks hide coded rows alone and no noisy statistics:',
    ),
    (
        PRIVATE | {"scheme": "ihm", "coding": {"sums_only": True, "clip_norm": 1.0}},
        'coding.sums_only = true is not possible with scheme = "ihm", as masks hide coded rows alone and no sketches of the',
    ),
    (
        PRIVATE | {"scheme": "scfl-private", "coding": {"sums_only": True, "clip_norm": 1.0}},
        'coding.sums_only = true is not possible with scheme = "scfl-private" and options.upload = "rows", whose updates have no'
        " masks, so that no noise",
    ),
    (
        PRIVATE | {"scheme": "ihm", "data": REGRESSION},
        "privacy.label_bound = 0 leaves the targets of the regression unbounded, so that privacy.epsilon = 2 cannot be kept",
    ),
    (
        PRIVATE | {"scheme": "scfl-private", "coding": {}},
        'coding.clip_norm = 0 leaves samples unbounded, so that scheme = "scfl-private" cannot keep privacy.epsilon = 2: set',
    ),
    (
        PRIVATE | {"scheme": "ihm", "options": {"budget_share": 2.0}},
        "options.budget_share = 2.0",
    ),
    (
        PRIVATE | {"data": REGRESSION},
        "privacy.label_bound = 0 leaves the targets of the regression unbounded, so that privacy.epsilon = 2 cannot be kept",
    ),
    (
        PRIVATE | {"privacy": {"epsilon": 2.0, "label_bound": 3.0}},
        r"privacy.label_bound = 3 is for a regression with a private scheme \(dp-gd, ihm, ssp, scfl-private\): leave it out.",
    ),
    (
        {"privacy": {"label_center": -3.0}},
        r"privacy.label_center = -3 is for a regression with a private scheme \(dp-gd, ihm, ssp, scfl-private\): leave it out.",
    ),
    (
        PRIVATE | {"coding": {}},
        r'coding.clip_norm = 0 leaves samples unbounded, so that scheme = "dp-gd" cannot keep privacy.epsilon = 2: set it',
    ),
    (
        PRIVATE | {"incentive": {"total_reward": 5.0}},
        'incentive.total_reward = 5 is not possible with scheme = "dp-gd", whose noise is the same for all devices: set it',
    ),
    (
        PRIVATE | {"coding": {"clip_norm": 1e-170}},
        "coding.clip_norm = 1e-170 is too small to compute with: give 1e-60 or more.",
    ),
    (
        PRIVATE | {"data": REGRESSION, "privacy": {"epsilon": 2.0, "label_bound": 1e-200}},
        "privacy.label_bound = 1e-200 is too small to compute with: give 1e-60 or more.",
    ),
    (
        PRIVATE | {"training": {"model_norm_bound": 3.0}},
        'training.model_norm_bound = 3 is not possible with scheme = "dp-gd", which has a ridge instead: set it to 0.',
    ),
    (
        PRIVATE | {"options": {"sampling_rate": 0.1}},
        "options.sampling_rate = 0.1 is not possible over a network, where updates are on all rows: leave it out.",
    ),
    (
        PRIVATE | {"options": {"curvature": "second-moments"}},
        'options.curvature = "second-moments" is not possible over a network: choose "mean" or "none".',
    ),
    ({"server": {"address": "a:65536"}}, 'server.address = "a:65536" is not possible: it must be a host and a port'),
    (
        {"server": {"test_file": "test.xls"}},
        'server.test_file = "test.xls" is not possible: it must be a file whose name ends',
    ),
]


@pytest.mark.parametrize(("values", "sentence"), FEDERATION_REFUSALS)
def test_a_wrong_federation_is_refused_in_one_sentence(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=f"^{sentence}") as refused:
        federation(**values)
    assert "\n" not in str(refused.value)
    assert str(refused.value)[-1] in ".?"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_is_supported_or_refused(scheme: str) -> None:
    if scheme not in SUPPORTED_SCHEMES:
        with pytest.raises(InputError, match="not offered over a network"):
            federation(scheme=scheme)
        return
    config = federation(**(PRIVATE | {"scheme": scheme} if make_scheme(scheme).private else {"scheme": scheme}))
    assert make_scheme(scheme, config.options).name == scheme
    assert config.options.get("deadline", "fixed") == "fixed"


def test_options_are_filled_in() -> None:
    assert federation(scheme="momentum", options={"momentum": 0.5}).options == {
        "momentum": 0.5,
        "batch": "adaptive",
        "weight_cap": 100.0,
    }


def test_private_descent_begins_with_the_mean() -> None:
    assert federation(**PRIVATE).options["curvature"] == "mean"
    assert federation(**PRIVATE, options={"curvature": "none"}).options["curvature"] == "none"


@pytest.mark.parametrize("intercept", [False, True])
def test_random_fourier_features_have_a_norm_that_no_data_is_needed_for(intercept: bool) -> None:
    features = {"map": "rff", "dimension": 30, "gamma": 0.1, "intercept": intercept}
    config = federation(**PRIVATE | {"coding": {}, "features": features})
    assert config.clip_norm is not None
    assert config.clip_norm == pytest.approx(math.sqrt(1 + intercept))
    rows = config.map().transform(np.random.default_rng(0).standard_normal((2000, 2), dtype=np.float32))
    squares = np.sum(rows.astype(np.float64) ** 2, axis=1)
    # The mean over the random features is 1; 30 of them leave a standard deviation of sqrt(1 / 60) that all rows share.
    assert abs(squares.mean() - config.clip_norm**2) < 5 / math.sqrt(60)
    assert federation(**PRIVATE | {"features": features}).clip_norm == 1.0, "a norm that is given counts"
    assert federation(features=features).clip_norm is None, "schemes that are not private do not clip unasked"
    with pytest.raises(InputError, match=r"coding\.clip_norm = 0 leaves samples unbounded"):
        federation(**PRIVATE | {"coding": {}, "features": features | {"output_scale": 3.0}})


def test_labels_have_a_norm_that_is_known_without_them() -> None:
    assert federation(**PRIVATE).label_norm == 1.0
    assert federation().label_norm is None
    bounded = {"epsilon": 2.0, "label_bound": 3.0, "label_center": 40.0}
    assert federation(**PRIVATE | {"data": REGRESSION, "privacy": bounded}).label_norm == 3.0


def test_devices_agree_on_the_target() -> None:
    agreed = federation(**PRIVATE).prescription()
    for changed in ({"epsilon": 2.5}, {"epsilon": 2.0, "delta": 1e-6}):
        assert federation(**PRIVATE | {"privacy": changed}).prescription() != agreed


def test_rows_can_be_masked() -> None:
    for scheme in ("scfl", "scfl-fixed", "dp-cfl"):
        assert federation(scheme=scheme, coding={"sums_only": True}).coding.sums_only
    assert federation(scheme="one-shot", options={"upload": "rows"}, coding={"sums_only": True}).coding.sums_only


def test_all_schemes_but_those_that_weight_rows_by_arrivals_run_over_a_network() -> None:
    assert set(SCHEMES) - set(SUPPORTED_SCHEMES) == {"cfl-fb", "codedfedl"}


@pytest.mark.parametrize("intercept", [False, True])
def test_dimension_and_outputs_are_those_of_the_map(intercept: bool) -> None:
    for kind, width in (("none", 2), ("rff", 7)):
        config = federation(data=CLASSIFICATION, features={"map": kind, "dimension": 7, "intercept": intercept})
        assert config.dimension == config.map().dimension == width + intercept
        assert config.outputs == 2
    assert federation(data=REGRESSION | {"target": ["a", "b", "c"]}).outputs == 3


def same(first: FeatureMap, second: FeatureMap) -> bool:
    ours, theirs = first.to_arrays(), second.to_arrays()
    return ours.keys() == theirs.keys() and all(
        ours[name].dtype == theirs[name].dtype and ours[name].tobytes() == theirs[name].tobytes() for name in ours
    )


def test_the_map_is_the_same_twice_bit_for_bit() -> None:
    features = {"map": "rff", "dimension": 30, "gamma": 0.3, "seed": 4, "mean": [0.1, 2], "scale": [3, 0.7]}
    config = federation(features=features)
    again = parse_federation(tomllib.loads(federation_toml(config)))
    assert same(config.map(), again.map())
    assert not same(config.map(), federation(features=features | {"seed": 5}).map())


def test_the_map_is_the_one_that_the_simulator_fits() -> None:
    raw = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    fitted = fit_feature_map(
        raw, dimension=30, gamma=0.3, standardize=True, intercept=True, rng=Streams(4).at("features")
    )
    assert fitted.input_mean is not None
    assert fitted.input_scale is not None
    mean, scale = fitted.input_mean.tolist(), fitted.input_scale.tolist()
    features = {"map": "rff", "dimension": 30, "gamma": 0.3, "seed": 4, "mean": mean, "scale": scale}
    assert same(federation(features=features).map(), fitted)


def test_public_constants_enter_the_map_as_written() -> None:
    config = federation(features={"mean": [1, 2], "scale": [2, 4], "output_scale": 0.5, "intercept": False})
    np.testing.assert_array_equal(config.map().transform(np.array([[3, 10]], np.float32)), [[2, 4]])


def test_the_map_exists_at_the_limits_of_its_constants() -> None:
    extreme = {"map": "rff", "gamma": 1e30, "mean": [1e30, -1e30], "scale": [1e30, 1e-30], "output_scale": 1e-30}
    assert federation(features=extreme).map().dimension == 101


def test_devices_agree_on_what_they_compute_and_release_and_on_nothing_else() -> None:
    reference = federation().prescription()
    apart: list[dict[str, Any]] = [
        {"name": "other"},
        {"scheme": "scfl"},
        {"options": {"rank": 5}},
        {"devices": ["ward-2", "ward-1"]},
        {"data": REGRESSION | {"columns": ["dose", "age"]}},
        {"features": {"seed": 1}},
        {"coding": {"noise_variance": 0.2}},
        {"training": {"local_steps": 6}},
    ]
    alike: list[dict[str, Any]] = [
        {"server": {"address": "192.0.2.7:9092"}},
        {"training": {"rounds": 3}},
        {"incentive": {"total_reward": 5.0}},
        {"options": {"sketch_rows": 100}},
    ]
    others = [federation(**values).prescription() for values in apart]
    assert len({reference, *others}) == 1 + len(apart)
    assert {federation(**values).prescription() for values in alike} == {reference}
