from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import Cli

ITEM = {"name", "sensitivity", "mi_dp_bits", "noise_variance", "reward", "utility"}


def test_a_contract_for_a_budget_as_json(cli: Cli) -> None:
    contract = json.loads(
        cli("contract", "--budget", "100", "--devices", "20", "--coded-samples", "10000", "--json").out
    )
    assert {"lambda", "total_reward", "total_noise_variance", "server_utility", "items", "verified"} == set(contract)
    assert contract["total_reward"] == pytest.approx(100, rel=1e-9)
    assert len(contract["items"]) == 20
    assert all(set(item) == ITEM for item in contract["items"])
    assert sum(item["reward"] for item in contract["items"]) == pytest.approx(100)
    check = contract["verified"]
    assert check["individually_rational"]
    assert check["incentive_compatible"]
    assert check["monotone"]
    assert check["optimality_residual"] < 1e-7


def test_a_lambda_of_the_papers_table(cli: Cli) -> None:
    contract = json.loads(cli("contract", "--lambda", "9000", "--json").out)
    assert int(contract["total_noise_variance"]) == 1329


def test_all_twelve_noise_variances_of_table_lambda(cli: Cli) -> None:
    rows = json.loads(cli("contract", "table", "--json").out)
    assert len(rows) == 12
    assert all(row["noise_variance"] == row["printed_noise_variance"] for row in rows)
    text = cli("contract", "table").out
    assert text.count("same") == 12
    assert "99.74" in text, "where the printed reward differs, both are shown"


def test_a_table_a_verdict_and_a_picture(cli: Cli) -> None:
    result = cli("contract", "--budget", "100", "--plot", "items.png")
    assert "nobody gains by leaving: True" in result.out
    assert "…" not in result.out
    assert Path("items.png").read_bytes().startswith(b"\x89PNG")


def test_devices_from_a_file_keep_their_order_and_names(cli: Cli) -> None:
    Path("fleet.csv").write_text("name,sensitivity,h2,min_noise_variance\nshy,3,0,2\nbold,1,5,0.5\nmid,2,0,1\n")
    contract = json.loads(
        cli("contract", "--budget", "5", "--devices-file", "fleet.csv", "--coded-samples", "50", "--json").out
    )
    assert [item["name"] for item in contract["items"]] == ["shy", "bold", "mid"]
    assert [item["sensitivity"] for item in contract["items"]] == [3, 1, 2]
    bits = {item["name"]: item["mi_dp_bits"] for item in contract["items"]}
    assert bits["bold"] >= bits["mid"] >= bits["shy"]
    assert all(contract["verified"][name] for name in ("individually_rational", "incentive_compatible", "monotone"))
    game = json.loads(
        cli("stackelberg", "--reward", "5", "--devices-file", "fleet.csv", "--coded-samples", "50", "--json").out
    )
    assert [item["name"] for item in game["items"]] == ["shy", "bold", "mid"]


def test_the_game_as_json_and_as_a_table(cli: Cli) -> None:
    game = json.loads(cli("stackelberg", "--reward", "100", "--json").out)
    assert game["participants"] == [f"device-{i}" for i in range(1, 12)]
    assert game["items"][19]["noise_variance"] is None
    assert game["verified"]["equilibrium"]
    assert sum(item["reward"] for item in game["items"]) == pytest.approx(100)
    paper = json.loads(cli("stackelberg", "--lambda", "1e-9", "--leader", "paper", "--json").out)
    assert int(paper["total_noise_variance"]) == 6808
    assert "11 of 20 devices take part" in cli("stackelberg", "--reward", "100").out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("contract",), "give either --budget"),
        (("contract", "--budget", "1", "--lambda", "1"), "give either --budget"),
        (("contract", "--budget", "-1"), "total_reward = -1"),
        (("contract", "--lambda", "0"), "0.0 must be a positive finite number"),
        (("contract", "--budget", "5", "--coded-samples", "0"), "coded_samples = 0"),
        (("contract", "--budget", "5", "--devices", "0"), "--devices = 0"),
        (("contract", "--budget", "5", "--devices-file", "nowhere.csv"), "nowhere.csv"),
        (("contract", "--budget", "5", "--devices-file", "bad.csv"), "'sensitivty'"),
        (("contract", "--budget", "5", "--devices-file", "words.csv"), "row 2: 'high'"),
        (("contract", "--budget", "5", "--devices-file", "zero.csv"), "sensitivity"),
        (("contract", "--budget", "1e9", "--devices-file", "capped.csv"), "at most"),
        (("stackelberg",), "give either --reward"),
        (("stackelberg", "--reward", "5", "--devices", "1"), "device"),
        (("stackelberg", "--lambda", "1", "--leader", "loud"), "leader"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(cli: Cli, arguments: tuple[str, ...], words: str) -> None:
    Path("bad.csv").write_text("name,sensitivty\na,1\n")
    Path("words.csv").write_text("sensitivity\n1\nhigh\n")
    Path("zero.csv").write_text("sensitivity\n1\n0\n")
    Path("capped.csv").write_text("sensitivity,min_noise_variance\n1,1\n2,1\n")
    assert words in cli(*arguments).assert_refused()
