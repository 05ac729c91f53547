from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from codedfl.privacy import PrivacyAccountant
from codedfl.training import PrivateSum
from tests.support import Cli

SMALL = (*("--devices", "4", "--coded-samples", "50", "--set", "features.dimension=20"), "--known-ratio", "0")
NOISY = (*SMALL, "--clip-norm", "1", "--noise-variance", "20", "--label-noise-variance", "20")

EACH = PrivacyAccountant(coded_samples=50, noise_variance=20.0, label_noise_variance=20.0, delta=1e-5).epsilon
IN_SUM = PrivacyAccountant(
    coded_samples=50, noise_variance=20.0, label_noise_variance=20.0, delta=1e-5, devices_in_sum=4
).epsilon
BETWEEN = f"{(EACH + IN_SUM) / 2}"


def sentence_of(err: str) -> str:
    """Return the only sentence of the program on standard error."""
    (sentence,) = (line for line in err.splitlines() if line.startswith("codedfl: "))
    return sentence


def test_a_limit_that_is_kept_changes_nothing(cli: Cli) -> None:
    result = cli("audit", *NOISY, "--max-epsilon", f"{1.01 * EACH}")
    assert result.code == 0
    assert "codedfl: " not in result.err


def test_a_limit_that_is_exceeded_fails_after_everything_is_printed(cli: Cli) -> None:
    result = cli("audit", *NOISY, "--max-epsilon", f"{0.99 * IN_SUM}", "--out", "a")
    assert result.code == 1
    assert "results: a" in result.out
    assert {path.name for path in Path("a").iterdir()} == {"audit.json", "audit.png", "config.toml"}
    assert json.loads(Path("a/audit.json").read_text())["exceeded"] == [f"device-0{i}" for i in (1, 2, 3, 4)]
    sentence = sentence_of(result.err)
    assert "4 of 4 device(s) exceed --max-epsilon" in sentence
    assert f"device-01 most, with epsilon = {EACH:.4g}: raise coding.noise_variance" in sentence
    assert "sums-only" not in sentence, "the sum exceeds the limit too"


@pytest.mark.slow
def test_the_threat_model_decides(cli: Cli) -> None:
    each = cli("audit", *NOISY, "--max-epsilon", BETWEEN)
    assert each.code == 1
    assert sentence_of(each.err).endswith("or aggregate securely and give --threat-model sums-only.")
    sums = cli("audit", *NOISY, "--max-epsilon", BETWEEN, "--threat-model", "sums-only", "--json")
    assert sums.code == 0
    assert json.loads(sums.out)["exceeded"] == []
    assert json.loads(sums.out)["threat_model"] == "sums-only"


@pytest.mark.parametrize("threat_model", ["each-message", "sums-only"])
def test_an_unbounded_epsilon_exceeds_everything(cli: Cli, threat_model: str) -> None:
    result = cli("audit", *SMALL, "--max-epsilon", "1e300", "--threat-model", threat_model)
    assert result.code == 1
    assert "with no bound on epsilon: set coding.label_noise_variance and coding.clip_norm." in sentence_of(result.err)


def test_the_worst_device_is_named(cli: Cli) -> None:
    noise = "coding.noise_variance=[20.0, 20.0, 5.0, 20.0]"
    options = (*SMALL, "--clip-norm", "1", "--label-noise-variance", "20", "--set", noise)
    result = cli("audit", *options, "--max-epsilon", f"{1.01 * EACH}")
    assert result.code == 1
    assert "1 of 4 device(s) exceed" in sentence_of(result.err)
    assert "device-03 most" in sentence_of(result.err)


def test_json_names_the_limit_and_those_above_it(cli: Cli) -> None:
    above = cli("audit", *NOISY, "--max-epsilon", BETWEEN, "--json")
    assert above.code == 1
    found = json.loads(above.out)
    assert (found["max_epsilon"], found["threat_model"]) == (float(BETWEEN), "each-message")
    assert found["exceeded"] == [f"device-0{i}" for i in (1, 2, 3, 4)]
    assert sentence_of(above.err)


def test_json_names_what_is_unbounded(cli: Cli) -> None:
    unbounded = json.loads(cli("audit", *SMALL, "--json").out)
    assert unbounded["devices"][0]["epsilon"] is None
    assert "epsilon" in unbounded["devices"][0]["unbounded"]
    assert "max_epsilon" not in unbounded


@pytest.mark.parametrize("limit", ["0", "-1", "nan", "inf"])
def test_an_impossible_limit_is_refused_before_any_work(cli: Cli, limit: str) -> None:
    cli("audit", *NOISY, "--max-epsilon", limit, "--out", "a").assert_refused(f"--max-epsilon = {float(limit)}")
    assert not Path("a").exists()


def test_an_unknown_threat_model_is_refused(cli: Cli) -> None:
    cli("audit", *NOISY, "--max-epsilon", "1", "--threat-model", "odd").assert_refused("each-message", "sums-only")


def test_no_bound_is_called_so_and_never_none(cli: Cli) -> None:
    result = cli("audit", *SMALL, "--noise-variance", "0", "--set", "features.dimension=600")
    assert result.code == 0
    assert "none" not in result.out.split()
    rows = [line for line in result.out.splitlines() if line.startswith("device-0")]
    assert [row.count("no bound") for row in rows] == [3] * 4, "more features than samples and no noise at all"
    assert "…" not in result.out
    assert all(len(line) <= 80 for line in result.out.splitlines())


def test_a_whole_run_is_pointed_to(cli: Cli) -> None:
    text = " ".join(cli("audit", *NOISY).out.split())
    assert "epsilon is above" not in text
    assert "not covered by any of these numbers: the updates that devices send during training" in text
    assert "`codedfl run --epsilon` covers a whole run, with private schemes" in text


def test_a_joint_epsilon_that_only_aggregation_lowers_is_named(cli: Cli) -> None:
    # epsilon is 15.3 in each upload, 7.0 for its features alone, and 3.2 in the sum
    noise = ("--noise-variance", "4", "--label-noise-variance", "4")
    text = " ".join(cli("audit", *SMALL, "--clip-norm", "1", *noise).out.split())
    assert "unsafe: all devices: epsilon is above 10" in text
    assert "the guarantee rests on secure aggregation" in text


EMPIRICAL = (
    *("--empirical", "--devices", "4", "--canaries", "200", "--set", "features.dimension=20"),
    *("--coded-samples", "50", "--set", "options.dp-gd.rounds=4"),
)


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices forget their noise."""
    right = PrivateSum.release

    def without_noise(self: PrivateSum, *rest: Any) -> Any:
        return right(replace(self, standard_deviation=0.0), *rest)

    monkeypatch.setattr(PrivateSum, "release", without_noise)


def test_claims_that_hold_pass_the_empirical_audit(cli: Cli) -> None:
    result = cli("audit", *EMPIRICAL, "--scheme", "dp-gd", "--scheme", "fedavg", "--epsilon", "1", "--out", "a")
    assert result.code == 0
    assert "codedfl: " not in result.err
    rows = {line.split()[0]: line for line in result.out.splitlines() if line.startswith(("DP-GD", "FedAvg"))}
    assert rows["DP-GD"].endswith("not refuted")
    assert "everything" in rows["DP-GD"]
    assert "no claim" in rows["FedAvg"]
    assert all(len(line) <= 80 for line in result.out.splitlines())
    assert "results: a" in result.out
    assert {path.name for path in Path("a").iterdir()} == {"empirical.json", "config.toml"}


@pytest.mark.usefixtures("silent")
def test_a_refuted_claim_fails_after_everything_is_printed(cli: Cli) -> None:
    result = cli("audit", *EMPIRICAL, "--scheme", "dp-gd", "--epsilon", "1", "--json", "--out", "a")
    assert result.code == 1
    found = json.loads(result.out)
    assert found == json.loads(Path("a/empirical.json").read_text())
    (scheme,) = found["empirical"]
    assert scheme["refuted"]
    assert scheme["claimed_epsilon"] <= 1 < scheme["epsilon_lower_bound"]
    assert (scheme["canaries"], scheme["confidence"], scheme["covers"]) == (200, 0.95, "everything")
    sentence = sentence_of(result.err)
    assert "1 of 1 scheme(s) reveal more than they claim, dp-gd most" in sentence
    assert f"{scheme['correct']} right guesses of {scheme['guesses']}" in sentence


@pytest.mark.slow
def test_an_epsilon_audits_private_schemes_by_default(cli: Cli) -> None:
    found = json.loads(cli("audit", *EMPIRICAL, "--epsilon", "1", "--threat-model", "sums-only", "--json").out)
    names = [scheme["scheme"] for scheme in found["empirical"]]
    assert {"dp-gd", "one-shot", "dp-cfl"} <= set(names)
    assert {scheme["threat_model"] for scheme in found["empirical"]} == {"sums only"}
    assert not any(scheme["refuted"] for scheme in found["empirical"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--empirical", "--canaries", "5"), "canaries = 5"),
        (("--empirical", "--confidence", "2"), "--confidence = 2"),
        (("--empirical", "--max-epsilon", "1"), "--max-epsilon"),
        (("--epsilon", "1"), "add --empirical"),
        (("--scheme", "dp-gd"), "add --empirical"),
    ],
)
def test_options_that_do_not_go_together_are_refused(cli: Cli, options: tuple[str, ...], words: str) -> None:
    cli("audit", *options, "--out", "a").assert_refused(words)
    assert not Path("a").exists()
