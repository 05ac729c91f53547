from __future__ import annotations

import json
from typing import Any

import pytest

from codedfl.paper import FIGURES, Figure, Outcomes, Scope, lambda_rows
from codedfl.paper._claims import Verdict
from codedfl.paper._executor import content_key, require_data
from codedfl.paper._fig_incentive import HALF
from codedfl.paper._fig_tau import GOOD
from codedfl.paper._figure import points_table, steps_table
from codedfl.paper._overhead import OVERHEAD, runs
from codedfl.paper._runs import FigureRun
from codedfl.paper._setups import CIFAR10, MNIST
from codedfl.paper._table_lambda import TABLE_LAMBDA
from codedfl.paper._table_schemes import PRINTED, TABLE_SCHEMES
from codedfl.paper._tables import where
from codedfl.training import StepSizeChoice, Trial
from tests.paper.made_up import World, made_up, record, small_run
from tests.support import mostly_slow

QUICK, FULL = Scope(quick=True), Scope()
SLOW_FULL = pytest.param(FULL, marks=pytest.mark.slow, id="full")
SCOPES = pytest.mark.parametrize("scope", [QUICK, FULL], ids=["quick", "full"])
EVERY_FIGURE = pytest.mark.parametrize("figure", FIGURES.values(), ids=list(FIGURES))
TRAINED = [name for name in FIGURES if name.startswith("fig-")]
COMPUTED_TABLES = ("table-lambda", "table-schemes", "overhead")
RANKS = {
    "SCFL": 0.95,
    "SCFL (b=32)": 0.93,
    "FedAvg": 0.90,
    "DP-CFL": 0.902,
    "CodedFedL, no noise": 0.80,
    "CodedFedL": 0.70,
}


def convergence(run: FigureRun) -> float:
    return RANKS[run.series]


def tradeoff(run: FigureRun) -> float:
    """Accuracy rises with the budget, on CIFAR-10 up to a budget of 8."""
    budget = min(run.x, 8.01) if run.panel == "cifar10" else run.x
    return RANKS[run.series] - 0.02 * (10 - budget)


def tau(run: FigureRun) -> float:
    """Accuracy is best with three local steps, and beyond them worse in the poor channel."""
    return 0.88 if run.x == 1 else 0.92 - (0.01 if run.series == GOOD else 0.02) * (run.x - 3)


def stragglers(run: FigureRun) -> float:
    loss = {"SCFL": 0.02, "FedAvg": 0.1, "CodedFedL": 0.2, "DP-CFL": 0.0}[run.series]
    return {**RANKS, "DP-CFL": 0.8}[run.series] - loss * run.x


def coded_samples(run: FigureRun) -> float:
    few = run.config.coding.coded_samples
    return 0.95 - run.config.fleet.straggler_ratio * 100 / few


def incentive(run: FigureRun) -> float:
    """The contract is better than the game, and than nothing from a reward of 100, above all with many stragglers."""
    at_100 = {"SCFL, contract": 0.92, "SCFL, Stackelberg": 0.88, "no incentive (FedAvg)": 0.90}[run.series]
    if run.series == "no incentive (FedAvg)":
        return at_100 - (0.05 if run.panel == HALF else 0.0)
    return at_100 + 0.0035 * (run.x - 100)


WORLDS: dict[str, World] = {
    "fig-convergence": convergence,
    "fig-tradeoff": tradeoff,
    "fig-tau": tau,
    "fig-stragglers": stragglers,
    "fig-coded-samples": coded_samples,
    "fig-incentive": incentive,
    "attack": lambda _: 0.9,
    "limits": lambda _: 0.9,
}
"""For every figure a world in which all that the paper says about it is so."""

COMPUTED = {"every device's own contract item is its best", "no device's utility is negative"}
"""Claims that are about formulas and hold in every world."""


@EVERY_FIGURE
def test_a_figure_says_what_and_where_it_is_and_what_is_claimed(figure: Figure) -> None:
    assert figure.title
    assert figure.place
    assert figure.claims
    assert len({claim.text for claim in figure.claims}) == len(figure.claims)
    assert FIGURES[figure.name] is figure
    assert bool(figure.measured(QUICK)) == (figure.measurement is not None)


def test_names_places_and_titles_are_unique() -> None:
    for words in (
        [figure.name for figure in FIGURES.values()],
        [figure.place for figure in FIGURES.values()],
        [figure.title for figure in FIGURES.values()],
    ):
        assert len(set(words)) == len(words) == 11


def test_figures_2_to_8_and_the_tables_are_all_there() -> None:
    places = {figure.place for figure in FIGURES.values()}
    assert {f"Fig. {number}" for number in range(2, 9)} <= places
    assert {"Table I", "Table III (appendix)", "Sec. VI-B", "Remark 1"} <= places


@SCOPES
@EVERY_FIGURE
def test_runs_are_stated_without_data(figure: Figure, scope: Scope, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codedfl.data._registry.load_named", None)
    found = figure.runs(scope)
    assert all(len(run.config.schemes) == 1 for run in found)
    assert len({(run.panel, run.series, run.x) for run in found}) == len(found)
    assert len(set(found)) == len(found)
    datasets = {run.config.data.dataset for run in found} | {config.data.dataset for config in figure.measured(scope)}
    assert datasets <= ({"digits"} if scope.quick else {"mnist", "cifar10-vgg"})
    assert bool(datasets) == (figure.name not in {"table-lambda", "table-schemes"})
    if scope.quick:
        require_data(datasets, "nowhere")


@EVERY_FIGURE
def test_every_run_searches_its_step_size(figure: Figure) -> None:
    assert all(run.config.learning_rate.scale == "grid" for run in figure.runs(FULL))


def test_figures_share_runs() -> None:
    """The books of SCFL are those of Fig. 3, and FedAvg without incentive is one run for all rewards."""
    convergence_runs, overhead_runs = (FIGURES[name].runs(FULL) for name in ("fig-convergence", "overhead"))
    assert set(overhead_runs) <= set(convergence_runs)
    fedavg = [run for run in FIGURES["fig-incentive"].runs(FULL) if run.series == "no incentive (FedAvg)"]
    assert len({content_key("train", run.config) for run in fedavg}) == 2 < len(fedavg)
    elsewhere = {content_key("train", run.config) for name in TRAINED for run in FIGURES[name].runs(FULL)}
    assert {content_key("train", run.config) for run in FIGURES["limits"].runs(FULL)} <= elsewhere


@pytest.mark.parametrize(
    "scope",
    [
        pytest.param(QUICK, id="quick"),
        SLOW_FULL,
        pytest.param(Scope(seeds=(3,)), marks=pytest.mark.slow, id="one-seed"),
    ],
)
@pytest.mark.parametrize("name", WORLDS)
def test_where_the_paper_is_right_its_claims_are_confirmed(name: str, scope: Scope) -> None:
    done = made_up(FIGURES[name], scope, WORLDS[name])
    assert {judgement.verdict for judgement in done.judgements} == {"confirmed"}


@pytest.mark.parametrize("scope", [pytest.param(QUICK, id="quick"), SLOW_FULL])
@pytest.mark.parametrize("name", WORLDS)
def test_where_everything_is_upside_down_no_claim_is_confirmed(name: str, scope: Scope) -> None:
    """Two things that are alike are so upside down as well, so there the accuracies are far apart."""

    def upside_down(run: FigureRun) -> float:
        return 1 - WORLDS[name](run) + (0.05 if run.series == "FedAvg" and name == "fig-convergence" else 0.0)

    done = made_up(FIGURES[name], scope, upside_down, protection=-0.3)
    verdicts: dict[str, set[Verdict]] = {}
    for judgement in done.judgements:
        verdicts.setdefault(judgement.claim, set()).add(judgement.verdict)
    plateau = "test accuracy on CIFAR-10 plateaus beyond a budget of 8.0"
    for claim, found in verdicts.items():
        assert ("confirmed" in found) == (claim in {*COMPUTED, plateau}), claim


@pytest.mark.parametrize("name", mostly_slow([*WORLDS, *COMPUTED_TABLES], "fig-tau", *COMPUTED_TABLES))
def test_every_claim_is_judged_in_the_full_version(name: str) -> None:
    done = made_up(FIGURES[name], FULL, WORLDS.get(name, lambda _: 0.9))
    judged = {judgement.claim for judgement in done.judgements}
    assert judged == {claim.text for claim in FIGURES[name].claims}
    assert all(judgement.evidence for judgement in done.judgements)
    json.dumps([judgement.as_dict() for judgement in done.judgements], allow_nan=False)
    for claim in FIGURES[name].claims:
        panels = [judgement.panel for judgement in done.judgements if judgement.claim == claim.text]
        assert set(panels) == set(claim.panels or panels)


@pytest.mark.slow
def test_a_plateau_that_goes_on_rising_is_none() -> None:
    done = made_up(FIGURES["fig-tradeoff"], FULL, lambda run: 0.9 - 0.02 * (10 - run.x))
    (found,) = [each for each in done.judgements if "plateaus" in each.claim]
    assert (found.panel, found.verdict) == ("cifar10", "not confirmed")


@pytest.mark.parametrize("quirk", ["printed", "table"])
def test_the_sensitivities_follow_the_quirk(quirk: str) -> None:
    scope = Scope(quirks=frozenset({"printed-sensitivities"}) if quirk == "printed" else frozenset())
    asked = [run.config.incentive for run in FIGURES["fig-incentive"].runs(scope)]
    assert {own.sensitivity for own in asked if own.mechanism != "none"} == {quirk}
    menu = made_up(FIGURES["fig-incentive"], scope, incentive).tables["menu"]
    (own,) = where(menu, device=20, item=1).to_dict("records")
    # utility = reward - mu * epsilon, with mu = 1 + 0.02 * 20 or 1 + 0.02 * 19
    sensitivity = (float(own["reward"]) - float(own["utility"])) / float(own["budget"])
    assert sensitivity == pytest.approx(1.4 if quirk == "printed" else 1.38)


def test_the_noise_of_table_lambda_is_the_printed_one() -> None:
    printed = {
        "contract": {1.8e5: 5878, 8e4: 3937, 5e4: 3119, 9e3: 1329, 3.9e3: 876, 1e3: 444},
        "stackelberg": {2e-4: 12324, 1e-5: 10488, 1e-7: 8364, 1e-9: 6808, 1.1e-11: 5652, 1e-12: 5146},
    }
    found: dict[str, dict[Any, Any]] = {"contract": {}, "stackelberg": {}}
    for row in lambda_rows():
        found[str(row["mechanism"])][row["lambda"]] = row["noise_variance"]
        assert row["agrees"] is True
    assert found == printed


def test_the_rewards_of_table_lambda_are_compared_with_the_printed_ones() -> None:
    rows = lambda_rows()
    assert [row["printed_total_reward"] for row in rows] == [70, 80, 90, 100, 110, 120] * 2
    done = made_up(TABLE_LAMBDA, QUICK)
    for judgement in done.judgements:
        if "total rewards" not in judgement.claim:
            assert judgement.verdict == "confirmed"
            continue
        expected = [
            abs(float(row["total_reward"]) - float(row["printed_total_reward"])) < 0.5
            for row in rows
            if row["mechanism"] == judgement.panel
        ]
        assert [item.finding == "holds" for item in judgement.evidence] == expected


def test_the_code_agrees_with_table_1() -> None:
    done = made_up(TABLE_SCHEMES, QUICK)
    (judgement,) = done.judgements
    assert judgement.verdict == "confirmed"
    assert judgement.findings == "10/0/0"
    code = {(row["scheme"], row["property"]): row["code"] for row in done.tables["points"].to_dict("records")}
    assert {scheme for (scheme, what), value in code.items() if what == "noise" and value} == {"dp-cfl", "scfl"}
    assert {scheme for (scheme, what), value in code.items() if what == "periodical" and value} == {"scfl"}
    assert {scheme for (scheme, what), value in code.items() if what == "mini_batch" and value} == {"codedfedl", "scfl"}
    assert len(done.tables["schemes"]) == 6


def test_a_scheme_that_differs_from_table_1_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PRINTED, "dp-cfl", {"noise": False})
    (judgement,) = made_up(TABLE_SCHEMES, QUICK).judgements
    assert (judgement.verdict, judgement.findings) == ("partly", "9/1/0")


def overhead_outcomes(scope: Scope, rounds: int) -> Outcomes:
    """Return the records of overhead with the dimensions that the tasks have."""
    points = (record().curve[0], type(record().curve[0])(rounds, 2e4, 2e4, 0.9, 0.9, 0.1))
    sizes = {"mnist": 2000, "cifar10": 4096, "digits": 100}
    records = {run: (record(dimension=sizes[run.panel], curve=points),) for run in runs(scope)}
    return Outcomes((0,), records, {})


def test_the_coded_upload_costs_what_the_formula_says() -> None:
    points = OVERHEAD.tables(FULL, overhead_outcomes(FULL, 2000))["points"]
    for setup, mib in ((MNIST, 76.29), (CIFAR10, 156.25)):
        (row,) = where(points, panel=setup.name, what="coded features of one device").to_dict("records")
        assert row["mib"] == pytest.approx(mib, abs=0.005)
        assert row["bytes"] == 4 * 10_000 * (2000 if setup is MNIST else 4096)
        assert float(row["mb"]) == pytest.approx(float(row["bytes"]) / 1e6)
        (labels,) = where(points, panel=setup.name, what="coded labels of one device").to_dict("records")
        assert labels["bytes"] == 4 * 10_000 * 10


def test_updates_cost_what_the_rounds_cost() -> None:
    points = OVERHEAD.tables(FULL, overhead_outcomes(FULL, 1333))["points"]
    (updates,) = where(points, panel="cifar10", what="updates of one device that always arrives").to_dict("records")
    assert updates["bytes"] == 4 * 4096 * 10 * 1333
    assert int(float(updates["mib"])) == 208, "as printed"
    (charged,) = where(points, panel="cifar10", what="updates of all devices that arrived, as charged").to_dict(
        "records"
    )
    (coded,) = where(points, panel="cifar10", what="coded upload of all devices, as charged").to_dict("records")
    assert (coded["bytes"], charged["bytes"]) == (1e6, 2e6)


def test_overhead_is_not_judged_where_nothing_is_printed() -> None:
    assert made_up(OVERHEAD, QUICK).judgements == []


def test_a_direction_grows_by_the_step_times_its_eigenvalue_in_every_step() -> None:
    """Runs have eta = 0.5 / L, and the made-up limits L = 1000, an eigenvalue of -2 and 5000 steps."""
    points = made_up(FIGURES["limits"], QUICK, protection=-1.0).tables["points"]
    assert set(points["e_foldings"]) == {0.5 / 1000 * 5000 * 2}
    assert set(points["limit_accuracy"]) == {0.1}
    assert not points["stable"].any()


def test_a_limit_that_does_not_exist_is_not_compared_with_the_optimum() -> None:
    done = made_up(FIGURES["limits"], QUICK, protection=-1.0)
    assert {each.claim for each in done.judgements} == {
        "with decreasing steps SCFL converges",
        "adding stronger noise degrades the learned model",
    }
    assert done.tables["limits"].empty
    assert done.draw() is not None


def outcomes() -> Outcomes:
    whole, early = small_run("SCFL", 1.0), small_run("DP-CFL", 2.0)
    early = type(early)(early.panel, early.series, early.x, early.config, read_at_s=25.0)
    choice = StepSizeChoice(0.5, (Trial(0.25, 0.8, 1.0), Trial(0.5, 0.9, 0.5)))
    return Outcomes(
        (4, 7),
        {whole: (record(0.9), record(0.8, status="diverged")), early: (record(0.6), record(0.4))},
        {whole: choice, early: choice},
    )


def test_points_have_the_accuracy_at_the_time_that_counts() -> None:
    first, diverged, early, other = points_table(outcomes()).to_dict("records")
    assert (first["series"], first["x"], first["seed"], first["accuracy"]) == ("SCFL", 1.0, 4, 0.9)
    assert (diverged["seed"], diverged["status"], diverged["accuracy"]) == (7, "diverged", 0.1)
    assert (early["time_s"], other["time_s"], other["seed"]) == (20.0, 20.0, 7)
    assert early["accuracy"] == pytest.approx(0.6 * 0.75)
    assert other["accuracy"] == pytest.approx(0.4 * 0.75)
    assert (first["time_s"], first["loss_gap"], first["step_size"], first["stragglers"]) == (40.0, 0.2, 0.5, 0.3)
    assert first["last_accuracy"] == pytest.approx(0.89)
    assert first["panel"] == "digits"


def test_step_sizes_have_a_row_for_each_candidate() -> None:
    rows = steps_table(outcomes()).to_dict("records")
    assert [(row["series"], row["step_size"], row["chosen"]) for row in rows] == [
        (series, scale, scale == 0.5) for series in ("SCFL", "DP-CFL") for scale in (0.25, 0.5)
    ]
    assert [row["validation_accuracy"] for row in rows] == [0.8, 0.9, 0.8, 0.9]
