from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from codedfl.cli.tables import results_table
from codedfl.errors import InputError
from codedfl.experiment import Comparison, Verdict, notes_on, run, summarise, verdict
from codedfl.privacy import GaussianMechanism, Release
from codedfl.schemes import make_scheme
from codedfl.setting import Setting
from codedfl.training import Scheme
from codedfl.typing import FloatArray
from codedfl.uploads import NoisyStatistics
from tests.results.made_up import ROWS, evidence, right, scheme
from tests.support import StopAfter, small_config


def rise(end: float, seconds: float = 10.0) -> FloatArray:
    """Return a curve over 200 s that has all but arrived after the given time."""
    return np.asarray(end - 0.8 * np.exp(-np.arange(101) * 2.0 / seconds * 4))


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return run(small_config(schemes=["fedavg", "scfl", "ccfl", "fed3r"], training__rounds=30))


def test_a_clear_winner_is_named_with_its_lead() -> None:
    found = verdict(evidence(scheme("ccfl", rise(0.95)), scheme("fedavg", rise(0.85))))
    assert (found.best, found.may_be_best) == ("ccfl", ("ccfl",))
    assert found.lead is not None
    assert found.lead.value == pytest.approx(0.1)
    low, high = 100 * found.lead.low, 100 * found.lead.high
    assert found.sentences[0].startswith(
        "CCFL has the best accuracy, 95.0%: 10.0 points above FedAvg, which is more than noise"
        f" (from {low:.1f} to {high:.1f}; 95% confidence on 1000 test rows"
    )


def test_what_noise_cannot_tell_apart_is_not_ranked() -> None:
    rng = np.random.default_rng(0)
    near = [scheme(name, rise(0.9), rows=(rng.random(ROWS) < 0.9).astype(float)) for name in ("ccfl", "scfl", "fedavg")]
    alike = verdict(evidence(*near))
    assert set(alike.may_be_best) == {"ccfl", "scfl", "fedavg"}
    assert alike.sentences[0].startswith("No scheme is better than another by more than noise")
    worse = verdict(evidence(*near, scheme("codedfedl", rise(0.5))))
    assert "codedfedl" not in worse.may_be_best
    assert "cannot be told from it; CODEDFEDL is worse by more than noise" in worse.sentences[0]


@pytest.mark.slow
def test_the_true_best_stays_among_those_that_may_be_best() -> None:
    rng = np.random.default_rng(1)
    truth = {"ccfl": 0.9, "scfl": 0.895, "fedavg": 0.88, "momentum": 0.8}
    kept = 0
    for _ in range(200):
        common = rng.random(ROWS)  # most of what makes a row hard is hard for every scheme
        drawn = {
            name: (0.7 * common + 0.3 * rng.random(ROWS) > 0.85 - a * 0.7).astype(float) for name, a in truth.items()
        }
        schemes = [scheme(name, [0.1, rows.mean()], rows=rows) for name, rows in drawn.items()]
        kept += "ccfl" in verdict(evidence(*schemes)).may_be_best
    assert kept / 200 >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / 200)


def test_seeds_replace_the_noise_of_rows_by_that_of_runs() -> None:
    def seeds(shift: float, spread: float) -> list[object]:
        rng = np.random.default_rng(2)
        ends = 0.9 + spread * rng.standard_normal((5, 2)) + [0, shift]
        return [evidence(scheme("fedavg", rise(a)), scheme("ccfl", rise(b)), seed=i) for i, (a, b) in enumerate(ends)]

    clear, unclear = verdict(seeds(0.03, 0.002)), verdict(seeds(0.003, 0.01))  # type: ignore[arg-type]
    assert (clear.noise, clear.may_be_best) == ("seeds", ("ccfl",))
    assert "95% confidence over 5 seeds" in clear.sentences[0]
    assert set(unclear.may_be_best) == {"ccfl", "fedavg"}
    assert not any("--seeds" in sentence for sentence in clear.sentences)


def test_both_clocks_are_told_apart() -> None:
    quick_but_heavy = scheme("scfl", rise(0.9, 10), preparation_s=300, upload_bytes=5e6)
    found = verdict(evidence(quick_but_heavy, scheme("fedavg", rise(0.9, 80))))
    assert found.training is not None
    assert found.everything is not None
    assert (found.training.first, found.everything.first) == (("scfl",), ("fedavg",))
    text = " ".join(found.sentences)
    assert (
        "On the training clock, SCFL is first within 1 point of the centralised accuracy of 90.0%, after 12 s" in text
    )
    assert "With encoding and uploads charged as well, FedAvg is first there, after 88 s." in text
    assert "The upload of SCFL before training (5.0 MB) is larger than the data itself (1.0 MB)." in text
    assert found.fedavg_suffices
    assert "FedAvg suffices here" in text


def test_coding_pays_does_not_pay_or_makes_little_difference() -> None:
    def coding(coded_s: float, plain_s: float) -> str | None:
        schemes = (
            scheme("ccfl", rise(0.92, coded_s)),
            scheme("fedavg", rise(0.92, plain_s)),
            scheme("fed3r", [0.1] * 101),
        )
        return verdict(evidence(*schemes)).coding

    assert coding(10, 100) == "pays"
    assert coding(100, 10) == "does not pay"
    assert coding(50, 52) == "makes little difference"
    assert verdict(evidence(scheme("ccfl", rise(0.9)), scheme("scfl", rise(0.9)))).coding is None
    only_coded = verdict(evidence(scheme("ccfl", rise(0.9)), scheme("fedavg", rise(0.6))))
    assert only_coded.coding == "pays"
    assert "no scheme without coding gets there in time" in " ".join(only_coded.sentences)


def test_a_goal_that_nobody_reaches_gives_way_to_a_lower_one() -> None:
    def goal(end: float, **others: object) -> str:
        found = verdict(evidence(scheme("fedavg", rise(end)), scheme("ccfl", rise(end - 0.005)), **others)).goal
        assert found is not None
        return found.words

    assert goal(0.895) == "within 1 point of the centralised accuracy of 90.0%"
    assert goal(0.86) == "at 95% of the centralised accuracy of 90.0%"
    assert goal(0.6) == "within 1 point of the best accuracy of 60.0%"
    assert goal(0.6, centralised=None) == "within 1 point of the best accuracy of 60.0%"


def test_runs_that_fell_or_had_not_arrived_are_told_so() -> None:
    falls = rise(0.9) - np.maximum(0, np.arange(101) - 40) * 0.001
    slow = 0.9 - 0.8 * np.exp(-np.arange(101) / 50)
    found = verdict(evidence(scheme("scfl", falls), scheme("fedavg", slow)))
    assert (set(found.fell), found.rising) == ({"scfl"}, ("fedavg",))
    text = " ".join(found.sentences)
    assert "SCFL peaked at 90.0% after 7" in text
    assert f"and then fell to {falls[-10:].mean():.1%}, the mean of its last tenth: more time" in text
    assert "no tuned stopping times" in text
    assert "FedAvg was still improving when training ended" in text


def test_with_an_epsilon_only_schemes_that_cover_everything_count() -> None:
    open_scheme = scheme("scfl", rise(0.9), private=False)
    covered = scheme("dp-gd", rise(0.7), private=True), scheme("ssp", rise(0.4), private=True)
    found = verdict(evidence(open_scheme, *covered, epsilon=2.0, sums_only=True))
    assert found.candidates == ("dp-gd", "ssp")
    assert found.cost is not None
    low, high = 100 * found.cost.low, 100 * found.cost.high
    assert found.sentences[0] == (
        "DP-GD has the highest accuracy with epsilon = 2, delta = 1e-05 per sample for everything that devices send, against a"
        f" server that sees only sums over devices: privacy costs 20.0 points (from {low:.1f} to {high:.1f} with 95%"
        " confidence), as the centralised optimum without privacy has 90.0%."
    )
    (nobody,) = verdict(evidence(open_scheme, epsilon=2.0)).sentences
    assert nobody.startswith("No scheme with a usable model keeps epsilon = 2")


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (0.8, "privacy costs 10.0 points (from "),
        (0.898, "what privacy costs, 0.2 points, cannot be told from 0 (from "),
        (0.902, "what privacy costs, -0.2 points, cannot be told from 0 (from "),
        (0.95, "privacy costs nothing, as"),
    ],
)
def test_the_cost_of_privacy_has_an_interval(end: float, words: str) -> None:
    assert words in verdict(evidence(scheme("ssp", rise(end), private=True), epsilon=2.0)).sentences[0]


def test_schemes_no_better_than_a_constant_are_told_so_first() -> None:
    schemes = scheme("ccfl", rise(0.902)), scheme("fedavg", rise(0.9))
    found = verdict(evidence(*schemes, constant_rows=right(0.901)))
    assert (found.useful, found.goal, found.coding, found.fedavg_suffices) == ((), None, None, None)
    assert found.sentences[0] == (
        "No scheme is better than a constant answer by more than noise (95% confidence on 1000 test rows; --seeds 5 would count"
        " chance in training too): always answering 'no' has accuracy 90.1%, and CCFL, the best scheme, 90.2%."
    )
    assert not any(word in " ".join(found.sentences) for word in ("first", "suffices", "Coding"))
    assert verdict(evidence(*schemes, constant_rows=right(0.85))).useful == ("ccfl", "fedavg")


def test_a_constant_is_beaten_over_seeds_or_on_the_rows_of_every_seed() -> None:
    def useful(ends: list[float], constant: float) -> tuple[str, ...]:
        return verdict(
            [evidence(scheme("ccfl", rise(e)), seed=i, constant_rows=right(constant)) for i, e in enumerate(ends)]
        ).useful

    assert useful([0.80, 0.90], 0.7) == ("ccfl",)  # two seeds that differ have a wide interval, but each is clear
    assert useful([0.904, 0.905, 0.905, 0.904, 0.905], 0.9) == ("ccfl",)  # five rows are noise once, but not five times
    assert useful([0.89, 0.91, 0.90, 0.92], 0.9) == ()


def test_nobody_races_to_what_a_constant_reaches() -> None:
    ends = {"ccfl": (0.25, 30.0), "fedavg": (-1.4, 50.0)}
    rng = np.random.default_rng(4)

    def judged(shift: float, constant: float) -> Verdict:
        schemes = [
            scheme(name, rise(end + shift, seconds), rows=end + shift + 0.1 * rng.standard_normal(ROWS))
            for name, (end, seconds) in ends.items()
        ]
        return verdict(
            evidence(*schemes, task="regression", centralised=None, constant_rows=np.full(ROWS, constant)),
        )

    assert judged(0.0, -0.01).coding == "pays"
    bad = judged(-1.0, -0.01)
    assert (bad.useful, bad.goal, bad.coding) == ((), None, None)
    assert (
        judged(-0.245, -0.5).goal is None
    )  # better than the mean of the training rows, but an R2 below zero to race to


def test_a_lucky_evaluation_is_no_arrival() -> None:
    lucky = np.full(101, 0.85)
    lucky[2] = 0.95
    found = verdict(evidence(scheme("fedavg", lucky), scheme("ccfl", rise(0.9, 40))))
    assert found.training is not None
    assert list(found.training.times) == ["ccfl"]
    assert found.coding == "pays"


@pytest.mark.parametrize(
    ("scores", "seconds"),
    [
        ([0, 1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 0, 1, 1, 1], 14),  # held in spite of one below
        ([0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0], None),  # peaked and fell
        ([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], 28),  # there at the end
        ([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0], None),
        ([0, 1, 1], 2),  # fewer evaluations than a window
        ([1], 0),
        ([math.nan, 1, math.nan, 0, 0], None),
    ],
)
def test_a_score_is_reached_once_it_is_held(scores: list[float], seconds: float | None) -> None:
    found = scheme("ccfl", scores).reached(1.0, "training")
    assert found == (None if seconds is None else (seconds, 2.0 if seconds else 0.0))


def test_a_time_belongs_to_the_scheme_that_took_it() -> None:
    at_once = scheme("fed3r", np.full(101, 0.9), preparation_s=18)
    next_evaluation = scheme("ccfl", [0.1, *[0.9] * 100], preparation_s=17.4)
    text = " ".join(verdict(evidence(at_once, next_evaluation)).sentences)
    assert (
        "Fed3R is first within 1 point of the centralised accuracy of 90.0%: at once on the training clock, after 18 s with"
        " everything charged (CCFL, after 19 s, is as early as far as the evaluations tell)." in text
    )
    twins = verdict(evidence(scheme("ccfl", rise(0.9)), scheme("scfl", rise(0.9)))).sentences[1]
    assert twins.startswith("CCFL and SCFL are first within 1 point")
    assert "as early" not in twins


def test_diverged_and_interrupted_runs() -> None:
    diverged = scheme("fedavg", rise(0.5), status="diverged")
    assert verdict(evidence(diverged, scheme("ccfl", rise(0.9)))).candidates == ("ccfl",)
    assert "every one diverged" in verdict(evidence(diverged)).sentences[0]
    stopped = verdict(evidence(scheme("ccfl", rise(0.9)), interrupted=True))
    assert stopped.sentences == ("Training was stopped early, so there is no verdict yet.",)
    alone = verdict(evidence(scheme("ccfl", rise(0.88)))).sentences[0]
    assert alone == "CCFL ends with accuracy 88.0%, 2.0 points below the centralised optimum."


def test_a_regression_speaks_of_r2() -> None:
    rng = np.random.default_rng(3)
    rows = rng.standard_normal(ROWS)
    first = scheme("ccfl", rise(0.95), rows=0.95 + 0.1 * rows)
    found = verdict(evidence(first, scheme("fedavg", rise(0.85), rows=0.85 + 0.11 * rows), task="regression"))
    assert found.sentences[0].startswith("CCFL has the best R2, 0.950: 0.100 above FedAvg, which is more than noise")


def test_a_lead_too_small_to_show_has_no_weight() -> None:
    rows = np.random.default_rng(3).standard_normal(ROWS)
    rows -= rows.mean()
    first = scheme("ccfl", rise(0.9501), rows=0.9501 + 0.001 * rows)
    found = verdict(evidence(first, scheme("fedavg", rise(0.95), rows=0.95 + 0.001 * rows), task="regression"))
    assert found.may_be_best == ("ccfl",)
    assert found.sentences[0].startswith(
        "CCFL has the best R2, 0.950, but FedAvg is less than 0.001 below: more than noise"
    )


def test_verdicts_need_comparisons_that_differ_in_the_seed_alone() -> None:
    one = evidence(scheme("ccfl", rise(0.9)))
    with pytest.raises(InputError, match="at least one comparison"):
        verdict([])
    with pytest.raises(InputError, match="differ in their task or their epsilon"):
        verdict([one, replace(one, epsilon=2.0)])


def test_the_verdict_on_a_real_run_reaches_its_summary(comparison: Comparison) -> None:
    found = verdict(comparison)
    assert summarise(comparison)["verdict"] == list(found.sentences)
    assert 2 <= len(found.sentences) <= 7
    assert all(sentence.endswith(".") and len(sentence) < 320 for sentence in found.sentences)
    coded = {each.name: each.coded for each in found.evidence[0].schemes}
    assert coded == {"fedavg": False, "scfl": True, "ccfl": True, "fed3r": False}
    labels = comparison.setting.federation.labels
    assert found.evidence[0].constant == f"always answering '{labels.sum(axis=0).argmax()}'"
    assert found.evidence[0].centralised_rows.mean() == pytest.approx(found.evidence[0].centralised)
    for each in found.evidence[0].schemes:
        assert each.rows.mean() == pytest.approx(each.score)
        assert each.upload_bytes == comparison[each.name].progress.ledger.coded_bits.sum() / 8
    assert found.evidence[0].data_bytes == 4 * 1258 * (30 + 1)  # 30 features are less than 64 pixels; one label each


def table(rows: int) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(rows, 3)), columns=["a", "b", "c"])
    return frame.assign(y=frame.a - frame.b + 0.1 * rng.normal(size=rows))


def test_a_real_regression_and_one_without_a_score() -> None:
    table(90).to_csv("own.csv", index=False)
    config = small_config(data__dataset="own.csv", data__target=["y"])
    found = verdict(run(config))
    assert all(each.rows.mean() == pytest.approx(each.score, abs=1e-6) for each in found.evidence[0].schemes)
    assert " R2" in found.sentences[0]
    few = small_config(data__dataset="own.csv", data__target=["y"], training__evaluation_samples=1)
    assert "too few test rows" in verdict(run(few)).sentences[0]


def test_a_real_run_on_noise_says_that_a_constant_does_as_well() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(300, 3)), columns=["a", "b", "c"])
    frame.assign(y=np.where(rng.random(300) < 0.9, "no", "yes")).to_csv("own.csv", index=False)
    found = verdict(run(small_config(data__dataset="own.csv", data__target=["y"])))
    assert "always answering 'no' has accuracy" in found.sentences[0]
    assert "suffices" not in " ".join(found.sentences)
    frame.assign(y=rng.normal(size=300)).to_csv("own.csv", index=False)
    found = verdict(run(small_config(data__dataset="own.csv", data__target=["y"], schemes=["fed3r"])))
    assert "the mean of the training rows has R2 -0.0" in found.sentences[0]


@pytest.mark.parametrize("rounds", [4, 14])
def test_a_run_that_was_stopped_has_no_verdict_yet(rounds: int) -> None:
    stopped = run(small_config(training__evaluations=12), callbacks=(StopAfter(rounds),))
    assert verdict(stopped).sentences == ("Training was stopped early, so there is no verdict yet.",)


@dataclass(frozen=True)
class Loud(NoisyStatistics):
    """Says of itself that it adds a tenth of the noise."""

    def releases(self, setting: Setting, coverage: Any, device: int) -> tuple[Release, ...]:
        (sent,) = super().releases(setting, coverage, device)
        assert isinstance(sent.mechanism, GaussianMechanism)
        louder = replace(sent.mechanism, noise_multiplier=sent.mechanism.noise_multiplier / 10)
        return (replace(sent, mechanism=louder),)


def test_a_scheme_that_exceeds_the_epsilon_asked_for_is_not_recommended(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(name: str, options: Mapping[str, object] | None = None) -> Scheme:
        made = make_scheme(name, options)
        return replace(made, upload=Loud()) if name == "ssp" else made

    monkeypatch.setattr("codedfl.experiment._family.make_scheme", make)
    private = {"privacy__epsilon": 2.0, "coding__clip_norm": 1.0}
    found = run(small_config(schemes=["ssp", "dp-gd"], **private))
    assert found.privacy("ssp")["covers"] == "everything"
    assert found.privacy("ssp")["epsilon"] > 10
    assert verdict(found).candidates == ("dp-gd",)
    (note,) = (note for note in notes_on(found) if "does not keep" in note)
    assert note.startswith("Noisy statistics has epsilon = ")
    assert note.endswith("does not keep the 2 that was asked for.")
    assert [row.style for row in results_table(found).rows] == ["", "bold"]
