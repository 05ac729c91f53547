from __future__ import annotations

import os
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.errors import InputError
from codedfl.experiment import Config, load_config, parse_config, parse_override, to_toml
from codedfl.schemes import SCHEMES
from tests.support import refusal_of

UNUSUAL: dict[str, Any] = {
    "seed": 7,
    "schemes": ["scfl", "codedfedl"],
    "data": {
        "dataset": "sub dir/ünï\x7f\n\t\"quoted'\\ [x].csv",
        "target": ["a b", "c,d", "😀"],
        "drop": ["\x7f"],
        "test_fraction": 1e-9,
        "dirichlet_alpha": 1e300,
    },
    "features": {"gamma": 1e-8, "standardize": False, "intercept": True},
    "fleet": {"transmit_power_dbm": [-1e-5, 1e22], "mean_gain": 1e-16},
    "coding": {"noise_variance": [0.0, 0.25, 1e16], "label_noise_variance": 3},
    "learning_rate": {"scale": 0.1, "grid": [1e-7]},
    "options": {"scfl": {"batch": 16, "device_weight": 0.25}, "codedfedl": {"deadline": "free", "noise": True}},
}


def write(tmp_path: Path, content: str | bytes) -> Path:
    path = tmp_path / "config.toml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("comments", [True, False])
@pytest.mark.parametrize("values", [{}, UNUSUAL], ids=["defaults", "unusual"])
def test_what_is_written_reads_back_the_same(tmp_path: Path, values: dict[str, Any], comments: bool) -> None:
    config = parse_config(values)
    text = to_toml(config, comments=comments)
    assert parse_config(tomllib.loads(text)) == config
    assert load_config(write(tmp_path, text)) == config
    assert any(line.startswith("#") for line in text.splitlines()) is comments


def test_every_field_and_option_is_written_with_a_comment() -> None:
    lines = to_toml(Config()).splitlines()
    for before, line in zip(["", *lines], lines, strict=False):
        if " = " in line and not line.startswith("#"):
            assert before.startswith("# "), line
            assert len(before) > len("# ") + 5, line
    text = "\n".join(lines)
    for section in ("data", "features", "fleet", "coding", "training", "learning_rate"):
        assert f"[{section}]" in text
    for scheme in set(SCHEMES) - {"dp-cfl"}:
        assert f"[options.{scheme}]" in text


def test_a_file_changes_only_what_it_names(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, "seed = 3\n[training]\nlocal_steps = 2\n"))
    assert (config.seed, config.training.local_steps, config.training.deadline_s) == (3, 2, 1.0)


def test_paths_may_be_text_and_overrides_a_mapping(tmp_path: Path) -> None:
    path = write(tmp_path, "seed = 3\n")
    assert load_config(str(path)) == load_config(path) == load_config(overrides={"seed": 3})
    assert load_config(overrides={"seed": 3, "data.devices": 4}) == load_config(
        overrides=[("seed", 3), ("data.devices", 4)]
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (({"training": {"rounds": 3}},), "path = {'training': {'rounds': 3}} is no path of a TOML file: give one, or"),
        ((3,), "path = 3 is no path of a TOML file: give one, or values as load_config(overrides=...)."),
        ((None, [1]), "overrides = [1] holds no values by key: give a dictionary such as {'training.rounds': 20}, or"),
        ((None, "seed=3"), "overrides = 'seed=3' holds no values by key"),
        ((None, [("seed", 3, 4)]), "overrides = [('seed', 3, 4)] holds no values by key"),
        ((None, 3), "overrides = 3 holds no values by key"),
    ],
)
def test_anything_else_is_refused(arguments: Any, sentence: str) -> None:
    assert refusal_of(lambda: load_config(*arguments)).startswith(sentence)


def test_a_single_string_in_a_file_is_a_list_of_one(tmp_path: Path) -> None:
    assert load_config(write(tmp_path, 'schemes = "scfl"\n[data]\ntarget = "z"\n')) == load_config(
        overrides={"schemes": ["scfl"], "data.target": ["z"]}
    )


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match=r"pipe is not a regular file: give the path of a TOML file\.$"):
        load_config(tmp_path / "pipe")


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path: Path) -> None:
    assert load_config(write(tmp_path, b"\xef\xbb\xbfseed = 3\r\n")).seed == 3


def test_later_overrides_win_over_earlier_ones_and_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "seed = 3\n[training]\nrounds = 4\n")
    config = load_config(path, [("seed", 5), ("seed", 6), ("training.local_steps", 2), ("options.scfl.batch", 8)])
    assert (config.seed, config.training.rounds, config.training.local_steps) == (6, 4, 2)
    assert config.options["scfl"]["batch"] == 8


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("training.rounds=3", ("training.rounds", 3)),
        (" training.rounds = 3 ", ("training.rounds", 3)),
        ("data.dataset=mnist", ("data.dataset", "mnist")),
        ('data.dataset="a=b.csv"', ("data.dataset", "a=b.csv")),
        ("data.dataset=a=b.csv", ("data.dataset", "a=b.csv")),
        ("data.data_dir=", ("data.data_dir", "")),
        ("coding.noise_variance=[0.1, 0.2]", ("coding.noise_variance", [0.1, 0.2])),
        ("features.standardize=true", ("features.standardize", True)),
        ("options.scfl={batch = 3}", ("options.scfl", {"batch": 3})),
        ("seed=1\nother=2", ("seed", "1\nother=2")),
        (f"seed={'9' * 5000}", ("seed", "9" * 5000)),
        (f"seed={'[' * 5000}", ("seed", "[" * 5000)),
    ],
)
def test_overrides_are_read_as_toml_or_as_text(text: str, expected: tuple[str, Any]) -> None:
    assert parse_override(text) == expected


@pytest.mark.parametrize("text", ["", "seed", "=3", "  =3", "seed:3"])
def test_overrides_without_key_or_value_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"must look like section.key=value\.$"):
        parse_override(text)


def test_an_override_below_a_value_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"^seed.x: seed is a value, not a section; `codedfl config` lists all keys\.$"
    ):
        load_config(write(tmp_path, "seed = 3"), [("seed.x", 1)])


@pytest.mark.parametrize(
    "content",
    [
        b"seed",
        b"seed = ",
        b"\xff\xfe",
        b"seed = 1\nseed = 2",
        b"[data\n",
        b"seed = " + b"9" * 5000,
        b"seed = " + b"[" * 5000,
        b"\x00",
        b"PK\x03\x04",
    ],
)
def test_a_file_that_is_not_toml_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(InputError, match=r"config.toml is not valid TOML \(.*\): correct it there\.$") as error:
        load_config(write(tmp_path, content))
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("name", ["nowhere.toml", ".", "a/b/c.toml"])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"cannot be read \(.*\): give the path of a TOML file\.$"):
        load_config(tmp_path / name)


def accepted_or_refused(path: Path | None, overrides: list[tuple[str, Any]]) -> None:
    assert len(refusal_of(lambda: load_config(path, overrides)).splitlines()) <= 1


KEYS = st.sampled_from(
    ["seed", "schemes", "data.devices", "data.target", "options.scfl.batch", "coding.noise_variance"]
)
TOML_LINES = st.lists(
    st.text(max_size=20)
    | st.sampled_from(
        ["[data]", "[options]", "[options.scfl]", "[[data]]", "[training]", "seed = 1979-05-27", "a.b = 1"]
    )
    | st.tuples(KEYS | st.text(max_size=5), st.text(max_size=8)).map(" = ".join)
    | st.tuples(KEYS, st.integers() | st.floats() | st.booleans()).map(lambda pair: f"{pair[0]} = {pair[1]}".lower()),
    max_size=6,
)


@given(content=TOML_LINES.map(lambda lines: "\n".join(lines).encode(errors="replace")) | st.binary(max_size=60))
def test_whatever_is_in_a_file_is_a_config_or_one_sentence(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        accepted_or_refused(write(Path(folder), content), [])


@pytest.mark.slow
@given(
    texts=st.lists(
        st.text(max_size=30)
        | st.tuples(KEYS | st.text(max_size=8), st.text(max_size=12)).map("=".join)
        | st.tuples(KEYS, st.integers() | st.floats() | st.lists(st.floats())).map(lambda pair: f"{pair[0]}={pair[1]}"),
        max_size=3,
    )
)
def test_whatever_is_set_is_a_config_or_one_sentence(texts: list[str]) -> None:
    sentences = [refusal_of(lambda text=text: parse_override(text)) for text in texts]  # type: ignore[misc]
    assert all(not sentence or sentence.endswith("must look like section.key=value.") for sentence in sentences)
    if not any(sentences):
        accepted_or_refused(None, [parse_override(text) for text in texts])


@pytest.mark.slow
@given(text=st.text(max_size=12), numbers=st.lists(st.floats(0, 1e30), max_size=4))
def test_any_text_and_any_numbers_survive_writing(text: str, numbers: list[float]) -> None:
    values = {"data": {"dataset": text, "target": [text]}, "coding": {"noise_variance": numbers}}
    assert bool(refusal_of(lambda: parse_config(values))) == ("\0" in text)
    if "\0" not in text:
        config = parse_config(values)
        assert parse_config(tomllib.loads(to_toml(config))) == config


def test_overrides_may_be_nested(tmp_path: Path) -> None:
    path = write(tmp_path, "[training]\nlocal_steps = 2\nrounds = 4\n[options.scfl]\nbatch = 16\n")
    nested = {"training": {"rounds": 5}, "options": {"scfl": {"device_weight": 0.25}}, "data": {}, "seed": 3}
    flat = {"training.rounds": 5, "options.scfl.device_weight": 0.25, "seed": 3}
    assert load_config(path, nested) == load_config(path, flat)
    config = load_config(path, nested)
    assert (config.training.local_steps, config.training.rounds) == (2, 5)
    assert (config.options["scfl"]["batch"], config.options["scfl"]["device_weight"]) == (16, 0.25)
    assert load_config(path, {"training": {}}) == load_config(path)
    assert load_config(overrides={"data.dataset": Path("a") / "b.csv"}).data.dataset == "a/b.csv"


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({"training": {"round": 5}}, "training.round: there is no such key, did you mean training.rounds?"),
        ({"seed": {"x": 1}}, "seed"),
        ({"seed": {}}, "seed"),
        ({"training": {3: 5}}, "training.3: there is no such key"),
        ({3: 5}, "3: there is no such key"),
    ],
)
def test_nested_overrides_are_refused_by_their_keys(overrides: Any, sentence: str) -> None:
    assert refusal_of(lambda: load_config(overrides=overrides)).startswith(sentence)
