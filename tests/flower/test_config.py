"""The two configuration files: round trips, refusals, and what devices agree on."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codedfl.data import FeatureMap, fit_feature_map
from codedfl.errors import InputError
from codedfl.flower._config import (
    SUPPORTED_SCHEMES,
    ClientConfig,
    FederationConfig,
    client_toml,
    federation_toml,
    parse_client,
    parse_federation,
    read_client,
    read_federation,
)
from codedfl.schemes import SCHEMES, make_scheme
from codedfl.streams import Streams

REGRESSION = {"columns": ["age", "dose"], "target": ["effect"], "task": "regression"}
CLASSIFICATION = {"columns": ["age", "dose"], "target": ["ill"], "task": "classification", "classes": ["no", "yes"]}
CLIENT = {"name": "ward-1", "server": "192.0.2.7:9092", "data": "ward.csv"}


def federation(**values: Any) -> FederationConfig:
    return parse_federation({"devices": ["ward-1", "ward-2"], "data": REGRESSION} | values)


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12)
device_names = st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}", fullmatch=True)
positives = st.floats(1e-30, 1e30)
counts = st.integers(1, 10**9)
addresses = st.builds(
    "{}:{}".format, st.sampled_from(["127.0.0.1", "[::1]", "fl.example.org", "a"]), st.integers(1, 65535)
)


@st.composite
def federations(draw: st.DrawFn) -> FederationConfig:
    names = draw(st.lists(texts, min_size=2, max_size=6, unique=True))
    cut = draw(st.integers(1, len(names) - 1))
    columns = names[:cut]
    classes = draw(st.one_of(st.none(), st.lists(texts, min_size=2, max_size=4, unique=True)))
    devices = draw(st.lists(device_names, min_size=2, max_size=4, unique_by=str.lower))
    scheme = draw(st.sampled_from(SUPPORTED_SCHEMES))
    options = {"batch": draw(st.integers(1, 99))} if scheme in ("fedavg", "scfl", "momentum", "scfl-fixed") else {}
    standardised = draw(st.booleans())
    return parse_federation(
        {
            "name": draw(texts),
            "scheme": scheme,
            "options": options,
            "devices": devices,
            "data": {
                "columns": columns,
                "target": names[cut:] if classes is None else names[-1:],
                "task": "regression" if classes is None else "classification",
                "classes": classes or [],
            },
            "features": {
                "map": draw(st.sampled_from(["none", "rff"])),
                "dimension": draw(counts),
                "gamma": draw(positives),
                "seed": draw(st.integers(0, 2**63 - 1)),
                "mean": draw(st.tuples(*[st.floats(-1e30, 1e30)] * cut)) if standardised else [],
                "scale": draw(st.tuples(*[positives] * cut)) if standardised else [],
                "intercept": draw(st.booleans()),
                "output_scale": draw(positives),
            },
            "coding": {
                "coded_samples": draw(counts),
                "noise_variance": draw(st.floats(0, 1e30)),
                "sums_only": draw(st.booleans()) and scheme in ("scfl", "scfl-fixed", "dp-cfl"),
            },
            "incentive": {
                "total_reward": draw(st.floats(0, 1e300)),
                "sensitivity": draw(st.sampled_from([[], [1.5] * len(devices)])),
            },
            "training": {
                "deadline_s": draw(st.floats(1e-3, 1e9)),
                "least_devices": draw(st.integers(0, len(devices))),
                "norm_bound": draw(st.floats(0, 1e300)),
            },
            "server": {
                "address": draw(addresses),
                "test_file": draw(st.sampled_from(["", "test data.CSV", "a\tb.npz"])),
            },
        }
    )


@st.composite
def clients(draw: st.DrawFn) -> ClientConfig:
    noise = draw(st.one_of(st.none(), st.floats(0, 1e30)))
    return parse_client(
        {
            "name": draw(device_names),
            "server": draw(addresses),
            "data": draw(texts) + draw(st.sampled_from([".csv", ".npz", ".parquet"])),
            "insecure": draw(st.booleans()),
            "certificate": draw(texts),
            "key": draw(texts),
            "federation": draw(texts),
            "state": draw(texts),
            "privacy": {
                "noise_variance": noise,
                "label_noise_variance": draw(st.one_of(st.none(), st.floats(0, 1e30))),
                "epsilon": draw(st.floats(0, 1e300)) if noise is None else 0,
                "delta": draw(st.floats(1e-300, 0.999)),
                "sensitivity": draw(st.floats(0, 1e300)),
            },
            "policy": {
                "least_noise_variance": draw(st.floats(0, 1e30)),
                "most_coded_rows": draw(st.integers(0, 10**9)),
                "features": draw(st.lists(texts, max_size=3)),
                "labels": draw(st.lists(texts, max_size=3)),
            },
        }
    )


@given(federations())
@settings(max_examples=50, deadline=None)
def test_a_federation_reads_back_from_its_own_toml(config: FederationConfig) -> None:
    again = parse_federation(tomllib.loads(federation_toml(config)))
    assert again == config
    assert again.prescription() == config.prescription()


@given(clients())
@settings(max_examples=50, deadline=None)
def test_a_client_reads_back_from_its_own_toml(config: ClientConfig) -> None:
    assert parse_client(tomllib.loads(client_toml(config))) == config


def test_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "federation.toml").write_text(federation_toml(federation()), encoding="utf-8")
    (tmp_path / "client.toml").write_text(client_toml(parse_client(CLIENT)), encoding="utf-8")
    assert read_federation(tmp_path / "federation.toml") == federation()
    assert read_client(str(tmp_path / "client.toml")) == parse_client(CLIENT)


@pytest.mark.parametrize("text", [federation_toml(federation()), client_toml(parse_client(CLIENT))])
def test_a_comment_precedes_every_key(text: str) -> None:
    lines = text.splitlines()
    keys = [number for number, line in enumerate(lines) if re.match(r"(# )?\w+ =", line)]
    assert len(keys) > 20
    assert all(re.match(r"# \S.{10,}", lines[number - 1]) for number in keys)
    assert "None" not in text


FEDERATION_REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"round": 3}, "round: there is no such key, only name, scheme, "),
    (
        {"training": {"round": 3}},
        "training.round: there is no such key, only rounds, deadline_s, .*Did you mean 'rounds'\\?$",
    ),
    ({"training": {"rounds": 0}}, "training.rounds = 0 is not possible: it must be greater than or equal to 1."),
    ({"training": {"rounds": "many"}}, 'training.rounds = "many" is not possible: it must be a valid integer'),
    (
        {"training": {"deadline_s": float("nan")}},
        "training.deadline_s = NaN is not possible: it must be a finite number.",
    ),
    ({"training": {"deadline_s": True}}, "training.deadline_s = true is not possible: it must be a number or a word"),
    ({"training": 3}, "training = 3 is not possible: it must be a section with keys and values."),
    (
        {"training": {"least_devices": 3}},
        r"training.least_devices = 3 is not possible: there are 2 device\(s\), give at most",
    ),
    ({"devices": []}, r"devices = \[\] is not possible: it must have at least one item."),
    ({"devices": "ward-1"}, 'devices = "ward-1" is not possible: it must be a list.'),
    ({"devices": ["a", "b", "A"]}, 'devices names "a" more than once: name each once.'),
    ({"devices": ["a", "../b"]}, r'devices\[1\] = "../b" is not possible: it must have 1 to 64 characters out of A-Z'),
    ({"devices": [".."]}, r'devices\[0\] = ".." is not possible: .* the first not a dot.'),
    ({"devices": ["x" * 65]}, r"devices\[0\] = .* is not possible: it must have 1 to 64 characters"),
    ({"devices": ["a\n"]}, r'devices\[0\] = "a\\n" is not possible: it must have 1 to 64 characters'),
    ({"name": "a\0b"}, r'name = "a\\u0000b" is not possible: it must be UTF-8 text without NUL characters.'),
    ({"name": ""}, 'name = "" is not possible: it must not be empty.'),
    ({"scheme": "ccflx"}, "scheme = \"ccflx\" is not possible: it must be one of fedavg, .*Did you mean 'ccfl'\\?"),
    (
        {"scheme": "cfl-fb"},
        'scheme = "cfl-fb" is not possible: it needs exact or weighted uploads, which are not offered over a network; choose',
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
    ({"data": REGRESSION | {"columns": []}}, r"data.columns = \[\] is not possible: it must have at least one item."),
    ({"data": REGRESSION | {"columns": ["a", "a"]}}, 'data.columns names "a" more than once: name each once.'),
    (
        {"data": REGRESSION | {"columns": ["a", 3]}},
        r"data.columns\[1\] = 3 is not possible: it must be a valid string.",
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
    ({"data": REGRESSION | {"task": "guess"}}, "data.task = \"guess\" is not possible: it must be 'classification' or"),
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
        r"features.scale\[1\] = 0 is not possible: it must be greater than",
    ),
    ({"features": {"output_scale": 0}}, "features.output_scale = 0 is not possible: it must be greater than"),
    ({"features": {"seed": -1}}, "features.seed = -1 is not possible: it must be greater than or equal to 0."),
    (
        {"coding": {"noise_variance": -1}},
        "coding.noise_variance = -1 is not possible: it must be greater than or equal to 0.",
    ),
    (
        {"coding": {"sums_only": True}},
        'coding.sums_only = true is not possible with scheme = "ccfl", .*: choose scfl or scfl-fixed or dp-cfl',
    ),
    (
        {"coding": {"sums_only": True}, "scheme": "scfl", "options": {"upload": "factor"}},
        'coding.sums_only = true is not possible with options.upload = "factor", .*: choose options.upload = "rows"',
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
        r"incentive.sensitivity\[1\] = 0 is not possible: it must be greater than 0.",
    ),
    (
        {"server": {"address": "localhost"}},
        'server.address = "localhost" is not possible: it must be a host and a port',
    ),
    ({"server": {"address": "a:65536"}}, 'server.address = "a:65536" is not possible: it must be a host and a port'),
    (
        {"server": {"test_file": "test.xls"}},
        'server.test_file = "test.xls" is not possible: it must be a file whose name ends',
    ),
]

CLIENT_REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"nmae": "x"}, "nmae: there is no such key, only name, .*Did you mean 'name'\\?"),
    ({"policy": {"most_round": 3}}, "policy.most_round: there is no such key, .*Did you mean 'most_rounds'\\?"),
    ({"name": "../ward"}, 'name = "../ward" is not possible: it must have 1 to 64 characters'),
    ({"server": "https://example.org"}, 'server = "https://example.org" is not possible: it must be a host and a port'),
    (
        {"data": "ward.xls"},
        'data = "ward.xls" is not possible: it must be a file whose name ends in .csv, .npz or .parquet.',
    ),
    ({"state": ""}, 'state = "" is not possible: it must not be empty.'),
    ({"insecure": "perhaps"}, 'insecure = "perhaps" is not possible: it must be a valid boolean'),
    ({"privacy": {"delta": 1}}, "privacy.delta = 1 is not possible: it must be less than 1."),
    (
        {"privacy": {"epsilon": 1.0, "noise_variance": 0.5}},
        "privacy.epsilon = 1.0 is not possible beside privacy.noise_variance = 0.5, .*: leave one of them out.",
    ),
    (
        {"policy": {"most_uploads": -1}},
        "policy.most_uploads = -1 is not possible: it must be greater than or equal to 0.",
    ),
]


@pytest.mark.parametrize(("values", "sentence"), FEDERATION_REFUSALS)
def test_a_wrong_federation_is_refused_in_one_sentence(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=f"^{sentence}") as refused:
        federation(**values)
    assert "\n" not in str(refused.value)
    assert str(refused.value)[-1] in ".?"


@pytest.mark.parametrize(("values", "sentence"), CLIENT_REFUSALS)
def test_a_wrong_client_is_refused_in_one_sentence(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=f"^{sentence}") as refused:
        parse_client(CLIENT | values)
    assert "\n" not in str(refused.value)
    assert str(refused.value)[-1] in ".?"


def test_what_is_missing_is_named() -> None:
    with pytest.raises(InputError, match=r"^devices is missing: give it \(names of all devices, in order\)\.$"):
        parse_federation({"data": REGRESSION})
    with pytest.raises(InputError, match=r"^the section \[data\] is missing: write it\.$"):
        parse_federation({"devices": ["a"]})
    with pytest.raises(InputError, match=r"^server is missing: give it \(host:port of the server\)\.$"):
        parse_client({"name": "a", "data": "a.csv"})


def test_a_refusal_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "federation.toml"
    path.write_text('devices = ["a"]\n[data]\ncolumns = 3\n', encoding="utf-8")
    with pytest.raises(InputError, match=f"^'{path}': data.columns = 3 is not possible: it must be a list.$"):
        read_federation(path)


@pytest.mark.parametrize("content", [b"devices = [", b"\xff\xfe", b"a = " + b"[" * 5000])
def test_a_file_that_is_not_toml_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "client.toml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"client.toml' is not valid TOML .*: correct it there\.$"):
        read_client(path)


def test_a_file_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"none.toml' cannot be read \(No such file or directory\): give the path of a"
    ):
        read_federation(tmp_path / "none.toml")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_is_supported_or_refused(scheme: str) -> None:
    if scheme not in SUPPORTED_SCHEMES:
        with pytest.raises(InputError, match="not offered over a network"):
            federation(scheme=scheme)
        return
    config = federation(scheme=scheme)
    assert make_scheme(scheme, config.options).name == scheme
    assert config.options.get("deadline", "fixed") == "fixed"


def test_options_are_filled_in() -> None:
    assert federation(scheme="momentum", options={"momentum": 0.5}).options == {
        "momentum": 0.5,
        "batch": "adaptive",
        "weight_cap": 100.0,
    }


def test_rows_of_scfl_and_dp_cfl_can_be_masked() -> None:
    for scheme in ("scfl", "scfl-fixed", "dp-cfl"):
        assert federation(scheme=scheme, coding={"sums_only": True}).coding.sums_only


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
