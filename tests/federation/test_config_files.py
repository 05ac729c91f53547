"""The two configuration files: round trips, and files that cannot be read."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.errors import InputError
from codedfl.federation import FederationConfig
from codedfl.federation._client_config import ClientConfig
from codedfl.federation._config_files import (
    client_toml,
    federation_toml,
    parse_client,
    parse_federation,
    read_client,
    read_federation,
)
from codedfl.federation._private_rules import SUPPORTED_SCHEMES
from codedfl.schemes import make_scheme
from tests.federation.configs import CLIENT, REGRESSION, federation

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12)
device_names = st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}", fullmatch=True)
positives = st.floats(1e-30, 1e30)
bounds = st.floats(1e-15, 1e15)
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
    private = make_scheme(scheme).private
    bounded = {"label_bound": draw(bounds), "label_center": draw(st.floats(-1e15, 1e15))} if classes is None else {}
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
                "clip_norm": draw(bounds) if private else 0.0,
                "sums_only": draw(st.booleans()) and scheme in ("scfl", "scfl-fixed", "dp-cfl"),
            },
            "privacy": {"epsilon": draw(positives), "delta": draw(st.floats(1e-300, 0.999)), **bounded}
            if private
            else {},
            "incentive": {
                "total_reward": 0.0 if private else draw(st.floats(0, 1e300)),
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
def test_a_federation_reads_back_from_its_own_toml(config: FederationConfig) -> None:
    again = parse_federation(tomllib.loads(federation_toml(config)))
    assert again == config
    assert again.prescription() == config.prescription()


@given(clients())
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
    with pytest.raises(InputError, match=f"^'{path}': data.columns = 3 is not possible: it must be a non-empty list "):
        read_federation(path)


@pytest.mark.parametrize("content", [b"devices = [", b"\xff\xfe", b"a = " + b"[" * 5000])
def test_a_file_that_is_not_toml_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "client.toml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"client.toml is not valid TOML .*: correct it there\.$"):
        read_client(path)


def test_a_file_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none.toml cannot be read \(No such file or directory\): give the path of a"):
        read_federation(tmp_path / "none.toml")
