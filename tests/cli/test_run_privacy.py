from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from codedfl.models import Predictor
from codedfl.schemes import PRIVATE_SCHEMES
from tests.support import CLI_SMALL, Cli

SMALL = (
    *("--devices", "6", "--coded-samples", "60", "--rounds", "12"),
    *("--set", "features.dimension=30", "--set", "training.evaluations=6"),
)


@pytest.mark.parametrize(
    "schemes", [pytest.param((), id="default", marks=pytest.mark.slow), pytest.param(("dp-gd", "ssp"), id="two")]
)
def test_an_epsilon_runs_private_schemes_and_states_it_in_json(schemes: tuple[str, ...], cli: Cli) -> None:
    named = [word for scheme in schemes for word in ("--scheme", scheme)]
    result = cli("run", *SMALL, *named, "--epsilon", "2", "--delta", "1e-6", "--out", "found", "--json")
    assert result.code == 0, result.err
    summary = json.loads(result.out)
    assert [scheme["scheme"] for scheme in summary["schemes"]] == list(schemes or PRIVATE_SCHEMES)
    for scheme in summary["schemes"]:
        privacy = scheme["privacy"]
        assert privacy["covers"] == "everything"
        assert privacy["threat_model"] == "each message"
        assert privacy["delta"] == 1e-6
        assert 0.98 * 2 < privacy["epsilon"] <= 2 * (1 + 1e-9)
        model = Path("found/models") / f"{scheme['scheme']}.safetensors"
        assert model.exists() == (scheme["status"] != "diverged")
        assert not model.exists() or Predictor.load(model).privacy == privacy
    assert summary == json.loads(Path("found/summary.json").read_text())


@pytest.mark.slow
def test_named_schemes_are_kept_and_the_table_says_what_is_covered(cli: Cli) -> None:
    result = cli(
        "run", *CLI_SMALL, "--scheme", "dp-gd", "--epsilon", "2", "--threat-model", "sums-only", "--out", "found"
    )
    assert result.code == 0, result.err
    assert max(map(len, result.out.splitlines())) <= 80
    rows = {line.split()[0]: line.split() for line in result.out.splitlines() if line.strip()}
    assert "nothing" in rows["FedAvg"]
    assert "upload" in rows["SCFL"]
    assert "everything" in rows["DP-GD"]
    text = " ".join(result.out.split())
    assert "its updates travel in the clear" in text
    assert "against a server that sees only sums over devices" in text


@pytest.mark.slow
def test_a_run_that_is_resumed_has_the_same_statement(cli: Cli) -> None:
    arguments = ("run", *SMALL, "--scheme", "dp-gd", "--epsilon", "2", "--out", "found", "--json")
    first = json.loads(cli(*arguments).out)
    again = json.loads(cli("run", "--resume", "--out", "found", "--json").out)
    assert again["schemes"][0]["privacy"] == first["schemes"][0]["privacy"]


def test_the_clip_norm_can_be_left_to_the_rule_by_name(cli: Cli) -> None:
    result = cli("run", *SMALL, "--scheme", "ssp", "--epsilon", "2", "--clip-norm", "auto", "--out", "found", "--json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["clip_norm"] == 1.0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--epsilon", "-1"), ("privacy.epsilon = -1",)),
        (("--epsilon", "nan"), ("privacy.epsilon = NaN",)),
        (("--epsilon", "inf"), ("privacy.epsilon = Infinity",)),
        (("--epsilon", "2", "--delta", "2"), ("privacy.delta = 2",)),
        (("--epsilon", "2", "--delta", "0"), ("privacy.delta = 0",)),
        (("--epsilon", "2", "--threat-model", "foo"), ("privacy.threat_model", "foo", "sums-only")),
        (("--label-bound", "-1"), ("privacy.label_bound = -1",)),
        (("--label-center", "nan"), ("privacy.label_center = NaN",)),
        (("--label-center", "7"), ("privacy.label_center = 7", "classes")),
        (("--clip-norm", "sometimes"), ("clip", "norm", "sometimes")),
        (("--scheme", "dp-gd"), ("privacy.epsilon = 0", "--epsilon")),
        (("--scheme", "dp-gd", "--epsilon", "2", "--set", "options.dp-gd.sampling_rate=0"), ("sampling_rate = 0",)),
        (("--scheme", "dp-gd", "--epsilon", "2", "--set", "options.dp-gd.sampling_rate=1.5"), ("sampling_rate = 1.5",)),
        (("--set", "features.map=none", "--set", "coding.clip_norm=auto"), ("coding.clip_norm", "privacy.epsilon")),
    ],
)
def test_bad_input_is_refused_in_one_sentence_and_leaves_nothing(
    arguments: tuple[str, ...], words: tuple[str, ...], cli: Cli
) -> None:
    cli("run", *SMALL, *arguments).assert_refused(*words)
    assert not any(Path().iterdir())


@pytest.fixture
def regression() -> tuple[str, ...]:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.standard_normal((200, 3)), columns=list("abc"))
    table["y"] = 2 * table["a"] + 0.1 * rng.standard_normal(200)
    table.to_csv("table.csv", index=False)
    return ("--dataset", "table.csv", "--target", "y", "--devices", "3", "--rounds", "6")


@pytest.mark.slow
def test_a_regression_needs_a_bound_on_its_targets(cli: Cli, regression: tuple[str, ...]) -> None:
    cli("run", *regression, "--epsilon", "2").assert_refused("privacy.label_bound = 0", "--label-bound")
    assert [path.name for path in Path().iterdir()] == ["table.csv"]
    given = ("--scheme", "dp-gd", "--epsilon", "20", "--label-bound", "4", "--out", "found", "--json")
    result = cli("run", *regression, *given)
    assert result.code == 0, result.err
    (scheme,) = json.loads(result.out)["schemes"]
    assert scheme["privacy"]["covers"] == "everything"
    assert scheme["privacy"]["epsilon"] == pytest.approx(20, rel=1e-6)
    assert math.isfinite(scheme["loss"])


def test_a_softmax_of_a_regression_is_refused(cli: Cli, regression: tuple[str, ...]) -> None:
    softmax = ("--scheme", "dp-gd", "--epsilon", "2", "--label-bound", "4", "--set", "options.dp-gd.loss=softmax")
    cli("run", *regression, *softmax).assert_refused('options.dp-gd.loss = "softmax"', "square")
