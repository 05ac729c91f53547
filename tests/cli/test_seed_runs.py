from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from codedfl.cli.seed_runs import seeds_table
from codedfl.results import over_seeds
from codedfl.training import StopOnInterrupt
from tests.cli.test_tables import text_of
from tests.support import CLI_SMALL, Cli


@pytest.fixture(autouse=True)
def without_pictures_of_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than these runs; other tests look at their pictures."""
    monkeypatch.setattr("codedfl.experiment._run_folder.curves_png", lambda *_: b"no picture")
    monkeypatch.setattr("codedfl.experiment.SeedRuns._picture", lambda *_: b"no picture")


def test_several_seeds_make_a_table_with_intervals_and_one_verdict(cli: Cli) -> None:
    result = cli("run", *CLI_SMALL, "--seeds", "2", "--seed", "7", "--out", "out")
    assert result.code == 0, result.err
    assert sorted(path.name for path in Path("out").iterdir()) == [
        *("curves-charged.png", "curves.png", "seed-7", "seed-8", "summary.json")
    ]
    assert max(map(len, result.out.splitlines())) <= 80
    text = " ".join(result.out.split())
    assert "digits, 2 seeds (7 to 8): the centralised optimum has accuracy 0." in text
    assert "95% confidence over 2 seeds" in text
    assert "results: out, one run folder per seed in it" in text
    assert "seed 8 (2 of 2)" in result.err
    summary = json.loads(Path("out/summary.json").read_text())
    for scheme in summary["schemes"]:
        assert f"{scheme['accuracy']['mean']:.4f}" in text


def test_json_has_all_seeds(cli: Cli) -> None:
    result = cli("run", *CLI_SMALL, "--seeds", "2", "--out", "out", "--json")
    assert (result.code, result.err) == (0, "")
    assert json.loads(result.out) == json.loads(Path("out/summary.json").read_text())
    assert json.loads(result.out)["seeds"] == [0, 1]


@pytest.mark.slow
def test_ctrl_c_stops_all_seeds_and_resume_continues_them(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = 0

    def stop_in_the_second(self: StopOnInterrupt, progress: object) -> None:
        nonlocal rounds
        rounds += 1
        self.requested = rounds >= 30
        on_round(self, progress)  # type: ignore[arg-type]

    on_round = StopOnInterrupt.on_round
    with monkeypatch.context() as patch:
        patch.setattr(StopOnInterrupt, "on_round", stop_in_the_second)
        stopped = cli("run", *CLI_SMALL, "--seeds", "3")
    assert stopped.code == 130
    (folder,) = Path("runs").iterdir()
    assert f"stopped early; continue with: codedfl run --resume --out {folder}" in " ".join(stopped.out.split())
    assert "verdict" not in stopped.out
    resumed = cli("run", "--resume", "--json")
    assert resumed.code == 0, resumed.err
    assert json.loads(resumed.out)["seeds"] == [0, 1, 2]
    assert {tuple(each["status"]) for each in json.loads(resumed.out)["schemes"]} == {("completed",) * 3}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--seeds", "0"), ("--seeds = 0",)),
        (("--seeds", "1001"), ("--seeds = 1001",)),
        (("--seeds", "2", "--record-trace", "t.csv"), ("--record-trace", "--seeds")),
        (("--seeds", "2", "--seed", str(2**63 - 1)), ("leaves no room",)),
        (("--seeds", "2", "--set", "coding.noise_variance=[1, 2]"), ("2 value(s) for 6 device(s)",)),
    ],
)
def test_bad_input_is_refused_and_leaves_nothing(arguments: tuple[str, ...], words: tuple[str, ...], cli: Cli) -> None:
    cli("run", *CLI_SMALL, *arguments).assert_refused(*words)
    assert not any(Path().iterdir())


def test_resuming_takes_the_seeds_from_the_folder(cli: Cli) -> None:
    cli("run", "--resume", "--seeds", "2").assert_refused("--resume", "seeds")


def scheme_over_seeds(name: str, scores: list[float | None], covers: str = "nothing", **given: Any) -> dict[str, Any]:
    return {
        "scheme": name,
        "title": name.upper(),
        "covers": covers,
        "accuracy": over_seeds(scores),
        "time_to_90_s": over_seeds([None, 12.0]),
        "time_to_95_s": over_seeds([None, None]),
        "bytes_up": over_seeds([1e6, 1e6]),
        "everything_charged_s": over_seeds([10.0, 10.0]),
        **given,
    }


def summary_of(
    *schemes: dict[str, Any], centralised: float | None = None, epsilon: float | None = None
) -> dict[str, Any]:
    return {
        "dataset": "digits",
        "metric": "accuracy",
        "epsilon": epsilon,
        "seeds": [0, 1],
        "centralised": {"accuracy": over_seeds([centralised, centralised])},
        "schemes": list(schemes),
        "runs": [
            {
                "schemes": [
                    {"scheme": each["scheme"], "privacy": {"covers": each["covers"], "epsilon": 2.0}}
                    for each in schemes
                ]
            }
            for _ in range(2)
        ],
    }


def test_diverged_seeds_are_counted() -> None:
    text = text_of(seeds_table(summary_of(scheme_over_seeds("scfl", [None, 0.5]))))
    assert "1 of 2 diverged" in text
    assert "no centralised reference" in text
    assert "1 of 2" in text


@pytest.mark.parametrize(("centralised", "said"), [(0.9, True), (-0.1, False), (None, False)])
def test_never_is_said_of_a_goal_only(centralised: float | None, said: bool) -> None:
    text = text_of(seeds_table(summary_of(scheme_over_seeds("scfl", [0.4, 0.5]), centralised=centralised)))
    assert ("never" in text) is said


@pytest.mark.parametrize(("epsilon", "styles"), [(None, ["bold", "", ""]), (2.0, ["", "bold", ""])])
def test_with_an_epsilon_only_a_scheme_that_keeps_it_is_bold(epsilon: float | None, styles: list[str]) -> None:
    schemes = (
        scheme_over_seeds("scfl", [0.8, 0.8], "upload"),
        scheme_over_seeds("dp-gd", [0.7, 0.7], "everything"),
        scheme_over_seeds("ssp", [0.6, 0.6], "everything"),
    )
    summary = summary_of(*schemes, epsilon=epsilon)
    assert [str(row.style) for row in seeds_table(summary).rows] == styles
    if epsilon:
        summary["runs"][1]["schemes"][1]["privacy"]["epsilon"] = 2.1
        assert [str(row.style) for row in seeds_table(summary).rows] == ["", "", "bold"]


def test_a_small_upload_is_not_shown_as_none() -> None:
    text = text_of(seeds_table(summary_of(scheme_over_seeds("scfl", [0.8, 0.8], bytes_up=over_seeds([2e4, 2e4])))))
    assert " 0.02 " in text
