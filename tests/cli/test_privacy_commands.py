from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from codedfl.privacy import CodedMechanism, GaussianMechanism, Mechanism, epsilon_of, gaussian_mu
from tests.support import Cli

SMALL = ("--devices", "4", "--coded-samples", "50", "--set", "features.dimension=20")


def test_budgets_without_data(cli: Cli) -> None:
    arguments = (
        "--coded-samples",
        "10000",
        "--noise-variance",
        "0.25",
        "--delta",
        "1e-5",
        "--norm-bound",
        "1",
        "--json",
    )
    budget = json.loads(cli("privacy", *arguments).out)
    assert {
        *("coded_samples", "noise_variance", "epsilon", "delta", "norm_bound", "mi_dp_bits", "threat_model")
    } <= set(budget)
    assert budget["epsilon"] > 10_000, "the paper's noise gives no meaningful worst-case guarantee"
    assert budget["mi_dp_bits"] == pytest.approx(0.5 * math.log2(1 + 10_000 / 0.25))
    assert budget["threat_model"] == "server sees each upload"


@pytest.mark.parametrize(("epsilon", "noise"), [(1, 267.95), (2, 143.14), (4, 77.52), (8, 42.91)])
def test_the_noise_for_an_epsilon(cli: Cli, epsilon: int, noise: float) -> None:
    """These were solved from the exact chi-square form; tests/privacy checks that form by Monte Carlo."""
    budget = json.loads(
        cli("privacy", "--coded-samples", "10000", "--epsilon", str(epsilon), "--delta", "1e-5", "--json").out
    )
    assert budget["noise_variance"] == pytest.approx(noise, abs=0.005)


def test_a_table_says_what_is_covered(cli: Cli) -> None:
    result = cli(
        *("privacy", "--coded-samples", "100", "--noise-variance", "5", "--delta", "1e-5", "--devices-in-sum", "20")
    )
    assert "server sees the sum only" in result.out
    assert "training are not" in " ".join(result.out.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "give exactly three"),
        (("--coded-samples", "10", "--delta", "1e-5"), "give exactly three"),
        (("--coded-samples", "0", "--noise-variance", "1", "--delta", "1e-5"), "coded_samples = 0"),
        (("--coded-samples", "10", "--noise-variance", "-1", "--delta", "1e-5"), "noise_variance = -1"),
        (("--coded-samples", "10", "--noise-variance", "1", "--delta", "2"), "delta = 2"),
        (("--coded-samples", "10", "--noise-variance", "1", "--delta", "0.1", "--adjacency", "odd"), "adjacency"),
    ],
)
def test_impossible_budgets_are_refused_in_one_sentence(cli: Cli, arguments: tuple[str, ...], words: str) -> None:
    result = cli("privacy", *arguments)
    assert result.code == 2
    assert words in result.err
    assert result.err.count("\n") == 1


def planned(cli: Cli, *arguments: str) -> dict[str, Any]:
    """What ``codedfl privacy --updates ... --delta 1e-5 --json`` prints."""
    result = cli("privacy", *arguments, "--delta", "1e-5", "--json")
    assert result.code == 0, result.err
    assert result.out.count("\n") == 1
    value: dict[str, Any] = json.loads(result.out)
    return value


def test_updates_are_planned_without_data(cli: Cli) -> None:
    plan = planned(cli, "--updates", "32", "--epsilon", "2")
    assert list(plan) == [
        *("updates", "sampling_rate", "epsilon", "delta", "noise_multiplier", "threat_model", "adjacency", "covers")
    ]
    assert plan["noise_multiplier"] == pytest.approx(math.sqrt(32) / gaussian_mu(2.0, 1e-5), rel=1e-9)
    assert (plan["updates"], plan["sampling_rate"], plan["epsilon"], plan["delta"]) == (32, 1.0, 2.0, 1e-5)
    assert (plan["threat_model"], plan["adjacency"]) == ("each message", "add-remove")
    assert "32 updates" in plan["covers"]


@pytest.mark.slow
def test_noise_and_epsilon_of_updates_are_inverse(cli: Cli) -> None:
    sampled = ("--updates", "50", "--sampling-rate", "0.1")
    plan = planned(cli, *sampled, "--epsilon", "2")
    assert "Poisson sample of the rows at rate 0.1" in plan["covers"]
    back = planned(cli, *sampled, "--noise-multiplier", str(plan["noise_multiplier"]))
    assert 2 * 0.999 <= back["epsilon"] <= 2
    assert planned(cli, "--updates", "50", "--epsilon", "2")["noise_multiplier"] > plan["noise_multiplier"]


@pytest.mark.slow
def test_an_upload_takes_its_share_of_the_budget(cli: Cli) -> None:
    upload = ("--coded-samples", "100", "--noise-variance", "60", "--label-noise-variance", "80", "--norm-bound", "1.5")
    alone = planned(cli, "--updates", "20", "--epsilon", "3")
    plan = planned(cli, "--updates", "20", "--epsilon", "3", *upload)
    assert plan["noise_multiplier"] > alone["noise_multiplier"]
    mechanisms: list[Mechanism] = [
        CodedMechanism(100, 1.5**2 / 60 + 1 / 80),
        GaussianMechanism(plan["noise_multiplier"], 20),
    ]
    assert epsilon_of(mechanisms, 1e-5) == pytest.approx(3, rel=1e-3)
    assert plan["epsilon_of_upload"] == pytest.approx(epsilon_of(mechanisms[:1], 1e-5))
    assert (plan["coded_samples"], plan["noise_variance"], plan["label_noise_variance"]) == (100, 60, 80)
    assert "one upload of 100 coded samples" in plan["covers"]
    joint = planned(cli, "--updates", "20", "--noise-multiplier", str(plan["noise_multiplier"]), *upload)
    assert joint["epsilon"] == pytest.approx(3, rel=1e-3)
    features = planned(cli, "--updates", "20", "--epsilon", "3", *upload[:4])
    assert "no labels may be coded" in features["covers"]
    assert features["label_noise_variance"] is None


def test_sums_share_the_noise_out(cli: Cli) -> None:
    arguments = ("--updates", "20", "--epsilon", "3", "--coded-samples", "100", "--noise-variance", "3")
    plan = planned(cli, *arguments, "--devices-in-sum", "20")
    assert plan["threat_model"] == "sums only"
    assert plan["devices_in_sum"] == 20
    assert plan["noise_multiplier_per_device"] == pytest.approx(plan["noise_multiplier"] / math.sqrt(20))
    one_device = planned(cli, *arguments[:-1], "60")
    assert plan["noise_multiplier"] == one_device["noise_multiplier"], "noise of 20 devices adds up"
    assert "noise_multiplier_per_device" not in one_device


def test_updates_without_noise_are_unbounded(cli: Cli) -> None:
    assert planned(cli, "--updates", "3", "--noise-multiplier", "0")["epsilon"] is None
    assert "no bound" in cli("privacy", "--updates", "3", "--noise-multiplier", "0", "--delta", "1e-5").out


def test_a_table_of_updates_fits_and_says_what_is_covered(cli: Cli) -> None:
    result = cli(
        *("privacy", "--updates", "20", "--epsilon", "3", "--delta", "1e-5", "--coded-samples", "100"),
        *("--noise-variance", "3", "--devices-in-sum", "20"),
    )
    assert all(len(line) <= 80 for line in result.out.splitlines())
    words = " ".join(result.out.split())
    assert "noise over clip norm, per update" in words
    assert "share of 20 devices" in words
    assert "threat model sums only" in words
    assert "one sample more or less, in 20 updates" in words


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--epsilon", "2"), "delta is missing"),
        (("--delta", "1e-5"), "epsilon and noise_multiplier are both missing"),
        (("--delta", "1e-5", "--epsilon", "2", "--noise-multiplier", "3"), "are both given"),
        (("--delta", "1e-5", "--epsilon", "2", "--sampling-rate", "0"), "sampling_rate = 0.0"),
        (("--delta", "1e-5", "--epsilon", "2", "--sampling-rate", "1.1"), "sampling_rate = 1.1"),
        (("--delta", "1e-5", "--epsilon", "2", "--sampling-rate", "nan"), "sampling_rate = nan"),
        (("--delta", "1e-5", "--noise-multiplier", "-1"), "noise_multiplier = -1.0"),
        (("--delta", "1e-5", "--noise-multiplier", "inf"), "noise_multiplier = inf"),
        (("--delta", "1e-5", "--epsilon", "2", "--updates", "0"), "updates = 0"),
        (("--delta", "1e-5", "--epsilon", "2", "--updates", str(2**63)), "updates = 1e+18"),
        (("--delta", "1e-5", "--epsilon", "2", "--adjacency", "replace"), "adjacency = 'replace'"),
        (("--delta", "1e-5", "--epsilon", "2", "--devices-in-sum", "0"), "devices_in_sum = 0"),
        (("--delta", "1e-5", "--epsilon", "2", "--coded-samples", "10"), "only together"),
        (("--delta", "1e-5", "--epsilon", "2", "--label-noise-variance", "10"), "only together"),
        (
            ("--delta", "1e-5", "--epsilon", "2", "--coded-samples", "1000", "--noise-variance", "1"),
            "leaves nothing for the updates",
        ),
        (("--delta", "2", "--epsilon", "2"), "delta = 2.0"),
    ],
)
def test_impossible_updates_are_refused_in_one_sentence(cli: Cli, arguments: tuple[str, ...], words: str) -> None:
    result = cli("privacy", "--updates", "10", *arguments)
    assert result.code == 2
    assert words in result.err
    assert result.err.count("\n") == 1
    assert result.out == ""


@pytest.mark.parametrize("option", ["--sampling-rate", "--noise-multiplier"])
def test_options_of_updates_need_updates(cli: Cli, option: str) -> None:
    result = cli("privacy", "--coded-samples", "10", "--noise-variance", "1", "--delta", "1e-5", option, "0.5")
    assert result.code == 2
    assert "give their number with --updates" in result.err


def test_an_audit_prints_a_table_warnings_and_writes_its_files(cli: Cli) -> None:
    result = cli("audit", *SMALL, "--out", "a")
    assert result.code == 0
    assert "…" not in result.out
    assert all(len(line) <= 80 for line in result.out.splitlines())
    assert "unsafe: all devices: samples are not clipped" in result.out
    assert "updates that devices send during training" in " ".join(result.out.split())
    assert {path.name for path in Path("a").iterdir()} == {"audit.json", "audit.png", "config.toml"}


def test_an_audit_as_json(cli: Cli) -> None:
    result = cli(
        *("audit", *SMALL, "--clip-norm", "0.5", "--noise-variance", "3", "--label-noise-variance", "2"),
        *("--known-ratio", "0", "--json"),
    )
    audit = json.loads(result.out)
    assert [device["name"] for device in audit["devices"]] == [f"device-0{i}" for i in (1, 2, 3, 4)]
    assert audit["clip_norm"] == 0.5
    assert all(device["attack"] is None and device["epsilon"] > 0 for device in audit["devices"])


def test_an_audit_of_a_csv_with_devices(cli: Cli) -> None:
    rows = "".join(f"{i % 7},{i % 5},{'yes' if i % 3 else 'no'},{'ab'[i % 2]}\n" for i in range(60))
    Path("own.csv").write_text("x,z,answer,site\n" + rows)
    result = cli(
        *("audit", "--dataset", "own.csv", "--target", "answer", "--set", "data.device_column=site"),
        *("--coded-samples", "20", "--json"),
    )
    assert [device["name"] for device in json.loads(result.out)["devices"]] == ["a", "b"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--known-ratio", "1"), "--known-ratio = 1.0"),
        (("--clip-norm", "-1"), "coding.clip_norm = -1.0"),
        (("--dataset", "mnist", "--data-dir", "nowhere"), "train-images-idx3-ubyte"),
        (("--out", "full"), "full exists and is not empty"),
    ],
)
def test_a_bad_audit_is_refused_in_one_sentence(cli: Cli, arguments: tuple[str, ...], words: str) -> None:
    Path("full").mkdir()
    Path("full/kept").write_text("me")
    result = cli("audit", *SMALL, *arguments)
    assert result.code == 2
    assert words in result.err
    assert "Traceback" not in result.err
    assert Path("full/kept").read_text() == "me"
