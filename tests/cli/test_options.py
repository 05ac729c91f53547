from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from codedfl.cli.options import KEYS, Settings
from codedfl.config import Config, load_config, parse_config, to_toml
from codedfl.schemes import DEFAULT_SCHEMES, PRIVATE_SCHEMES
from tests.support import Cli, Diary


def field_of(key: str) -> tuple[Any, str]:
    *sections, field = key.split(".")
    return (getattr(Config(), sections[0]) if sections else Config()), field


@pytest.mark.parametrize("name", KEYS)
def test_every_option_sets_a_field_that_takes_its_type(name: str) -> None:
    key, kind = KEYS[name]
    section, field = field_of(key)
    schema = json.dumps(type(section).model_json_schema()["properties"][field])
    wanted = {int: "integer", float: "number", list[str]: "array"}.get(kind, "string")
    assert f'"type": "{wanted}"' in schema


@pytest.mark.parametrize("command", ["run", "audit", "theory"])
def test_help_shows_the_defaults_of_the_schema(cli: Cli, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    result = cli(command, "--help")
    shown = " ".join(result.out.replace("│", " ").split())
    assert str(type(Config().data).model_fields["devices"].description)[1:] in shown
    assert f"[default: ({Config().data.devices})]" in shown
    assert f"[default: ({Config().coding.coded_samples})]" in shown
    assert f"[default: ({Config().coding.noise_variance:g})]" in shown


def test_help_does_not_wait_for_the_libraries_that_training_needs() -> None:
    program = (
        "import sys; sys.argv = ['codedfl', '--help']\n"
        "from codedfl.cli import main\n"
        "try: main()\n"
        "except SystemExit: print({'numpy', 'scipy', 'pydantic', 'sklearn', 'pandas', 'matplotlib'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


@pytest.mark.parametrize("command", ["run", "audit", "theory"])
def test_a_run_says_which_preset_it_took(cli: Cli, command: str) -> None:
    result = cli(command, "--dataset", "mnist", "--data-dir", "nowhere", "--set", "features.gamma=0.02")
    assert result.code == 2
    preset, refusal = result.err.splitlines()
    assert preset.startswith("preset of mnist: features.dimension = 2000, training.deadline_s = 10.0, ")
    assert "gamma" not in preset, "it is the user's own"
    assert "nowhere/mnist" in refusal


def test_the_configuration_of_a_dataset_or_a_file_is_printed(cli: Cli) -> None:
    printed = cli("config", "--dataset", "mnist", "--set", "seed=3")
    assert printed.code == 0
    assert parse_config(tomllib.loads(printed.out)) == load_config(overrides={"data.dataset": "mnist", "seed": 3})
    assert printed.err == ""
    Path("own.toml").write_text("seed = 5")
    assert tomllib.loads(cli("config", "own.toml").out)["seed"] == 5


def test_an_epsilon_for_the_configuration_of_an_earlier_run_brings_private_schemes(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(to_toml(Config()), encoding="utf-8")
    diary = Diary()
    settings = Settings(file, [("privacy.epsilon", 2.0)])
    assert settings.load().schemes == PRIVATE_SCHEMES
    settings.tell_preset(diary)
    assert diary.said == [
        f"private schemes in place of the default ones, as --epsilon is given: {', '.join(PRIVATE_SCHEMES)}"
    ]


def test_schemes_that_somebody_chose_are_kept_with_an_epsilon(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(to_toml(Config(schemes=("fedavg", "scfl"))), encoding="utf-8")
    assert Settings(file, [("privacy.epsilon", 2.0)]).load().schemes == ("fedavg", "scfl")
    asked = [("privacy.epsilon", 2.0), ("schemes", list(DEFAULT_SCHEMES))]
    assert Settings(file, asked).load().schemes == DEFAULT_SCHEMES
