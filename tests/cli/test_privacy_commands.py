from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

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
