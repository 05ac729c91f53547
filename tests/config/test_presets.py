from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from codedfl.config import Config, load_config, load_with_preset, parse_config, preset_of, to_toml
from codedfl.config._files import PRESETS
from codedfl.data import list_datasets

EXAMPLES = Path(__file__).parents[2] / "examples"


def value_at(config: Config, key: str) -> Any:
    section, field = key.split(".")
    return getattr(getattr(config, section), field)


def test_presets_are_those_of_named_datasets() -> None:
    assert set(PRESETS) < {status.name for status in list_datasets()}
    assert preset_of("digits") == preset_of("mnist.csv") == {}


@pytest.mark.parametrize("dataset", PRESETS)
def test_a_dataset_brings_its_preset(dataset: str) -> None:
    config, taken = load_with_preset(overrides={"data.dataset": dataset})
    assert taken == preset_of(dataset)
    for key, value in taken.items():
        assert value_at(config, key) == value != value_at(Config(), key)


def test_the_preset_of_mnist_is_the_setting_of_the_paper() -> None:
    config = load_config(overrides={"data.dataset": "mnist"})
    assert (config.features.dimension, config.features.gamma) == (2000, 0.02)
    assert (config.training.deadline_s, config.training.total_time_s) == (10.0, 20_000.0)
    assert (config.fleet.transmit_power_dbm, config.fleet.straggler_ratio) == ((15.0, 25.0), 0.0)
    assert (config.coding.coded_samples, config.coding.noise_variance) == (10_000, 0.25)


@pytest.mark.parametrize("dataset", PRESETS)
def test_explicit_values_win_even_if_they_are_the_defaults(dataset: str, tmp_path: Path) -> None:
    defaults = {key: value_at(Config(), key) for key in preset_of(dataset)}
    config, taken = load_with_preset(overrides={"data.dataset": dataset, **defaults})
    assert taken == {}
    assert config == parse_config({"data": {"dataset": dataset}})
    file = tmp_path / "own.toml"
    file.write_text(to_toml(Config(), comments=False).replace('dataset = "digits"', f'dataset = "{dataset}"'))
    assert load_with_preset(file) == (config, {})


@pytest.mark.parametrize("dataset", ["digits", *PRESETS])
def test_a_resolved_configuration_reads_back_the_same(dataset: str, tmp_path: Path) -> None:
    config = load_config(overrides={"data.dataset": dataset, "training.deadline_s": 3.0})
    file = tmp_path / "config.toml"
    file.write_text(to_toml(config))
    assert load_with_preset(file) == (config, {})
    assert parse_config(tomllib.loads(to_toml(config))) == config


def test_parsing_alone_applies_no_preset() -> None:
    assert parse_config({"data": {"dataset": "mnist"}}).features == Config().features


@pytest.mark.parametrize(("name", "deadline"), [("mnist", 10.0), ("cifar10", 15.0)])
def test_the_examples_are_the_experiments_of_the_paper(name: str, deadline: float) -> None:
    config = load_config(EXAMPLES / f"{name}.toml")
    assert (config.training.deadline_s, config.training.total_time_s) == (deadline, 20_000.0)
    assert (config.data.devices, config.data.partition, config.coding.coded_samples) == (20, "shards", 10_000)


def test_a_section_that_is_none_is_refused_as_without_a_preset() -> None:
    from tests.support import refusal_of

    sentence = refusal_of(lambda: load_config(overrides={"data.dataset": "mnist", "features": 3}))
    assert sentence == "features = 3 is not possible: it must be a section with keys and values."
    assert refusal_of(lambda: load_config(overrides={"data.dataset": ["mnist"]})).startswith("data.dataset = ")


def test_what_the_caller_gave_is_left_as_it_was() -> None:
    features: dict[str, Any] = {"gamma": 1.0}
    load_config(overrides=[("data.dataset", "mnist"), ("features", features), ("features.intercept", True)])
    assert features == {"gamma": 1.0}
