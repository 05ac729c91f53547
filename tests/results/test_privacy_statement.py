from __future__ import annotations

import io
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from codedfl.cli.tables import results_table
from codedfl.experiment import Comparison, notes_on, releases_of, run, summarise, verdict
from codedfl.models import Predictor
from codedfl.privacy import CodedMechanism, GaussianMechanism, PrivacyAccountant, epsilon_of
from tests.support import small_config

COVERS = {
    "dp-gd": "everything",
    "dp-cfl": "everything",
    "one-shot": "everything",
    "scfl": "upload",
    "fedavg": "nothing",
    "ccfl": "nothing",  # its sketch has no noise by default
}


def private_config(**changes: Any) -> Any:
    return small_config(**{"schemes": list(COVERS), "privacy__epsilon": 2.0, **changes})


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return run(private_config())


@pytest.fixture(scope="module")
def in_sums() -> Comparison:
    return run(private_config(privacy__threat_model="sums-only", privacy__delta=1e-6))


@pytest.mark.parametrize("scheme", COVERS)
def test_what_is_covered_keeps_the_target(scheme: str, comparison: Comparison, in_sums: Comparison) -> None:
    for each, words, delta in ((comparison, "each message", 1e-5), (in_sums, "sums only", 1e-6)):
        statement = each.privacy(scheme)
        assert statement["covers"] == COVERS[scheme]
        assert statement["threat_model"] == words
        assert statement["delta"] == delta
        assert statement["adjacency"] == "one sample more or less"
        assert len(statement["devices"]) == 6
        if COVERS[scheme] == "nothing":
            assert statement["epsilon"] == math.inf
        else:
            assert 0.998 * 2.0 < statement["epsilon"] <= 2.0 * (1 + 1e-9)
            assert statement["epsilon"] == max(statement["devices"])


def test_the_epsilon_of_private_descent_is_the_target_itself(comparison: Comparison) -> None:
    assert comparison.privacy("dp-gd")["epsilon"] == pytest.approx(2.0, rel=1e-6)


def test_messages_are_listed_with_their_mechanisms_and_compose_to_the_epsilon(comparison: Comparison) -> None:
    statement = comparison.privacy("dp-gd")
    named = [message["message"] for message in statement["messages"]]
    assert named[0] == "mean of the features"
    assert named[-1] == "updates"
    mechanisms = [
        GaussianMechanism(message["noise_multiplier"], message["count"], message["sampling_rate"])
        for message in statement["messages"]
    ]
    assert epsilon_of(mechanisms, 1e-5) == pytest.approx(2.0, rel=1e-6)
    (rows, updates) = comparison.privacy("scfl")["messages"]
    assert rows["message"] == "coded rows"
    assert epsilon_of([CodedMechanism(rows["coded_samples"], rows["signal_to_noise"])], 1e-5) == pytest.approx(
        2.0, rel=1e-3
    )
    assert updates == {"message": "updates", "mechanism": "none"}
    assert [message["message"] for message in comparison.privacy("dp-cfl")["messages"]] == ["coded rows"]


def test_messages_in_the_clear_are_listed_even_if_the_first_device_sent_none(comparison: Comparison) -> None:
    """All devices have an infinite epsilon then; the one to list is one that shows why."""
    in_the_clear = {"message": "updates", "mechanism": "none"}
    assert comparison.privacy("fedavg")["messages"] == [in_the_clear]
    assert comparison.privacy("ccfl")["messages"] == [{"message": "subspace sketch", "mechanism": "none"}, in_the_clear]


def test_noise_in_the_coded_rows_is_what_the_statement_says(comparison: Comparison) -> None:
    (coded,) = comparison["dp-cfl"].prepared.held
    (release,) = releases_of(comparison["dp-cfl"])[0]
    assert isinstance(release.mechanism, CodedMechanism)
    # The noise of six devices is in the sum; each of them keeps the target by itself, with half of the ratio for the labels.
    assert release.mechanism.signal_to_noise == pytest.approx(2 * 1.0 / (coded.noise_variance / 6), rel=1e-9)


def test_a_sketch_with_noise_on_features_and_labels_covers_the_upload() -> None:
    noisy = private_config(
        schemes=["ccfl"],
        coding__noise_variance=50.0,
        coding__label_noise_variance=50.0,
        options={"ccfl": {"noise": True}},
    )
    statement = run(noisy).privacy("ccfl")
    assert statement["covers"] == "upload"
    assert 0 < statement["epsilon"] < math.inf


def test_batches_are_accounted_for_as_poisson_samples() -> None:
    config = private_config(schemes=["dp-gd"], options={"dp-gd": {"sampling_rate": 0.3, "rounds": 5}})
    comparison = run(config)
    statement = comparison.privacy("dp-gd")
    assert 0.999 * 2.0 < statement["epsilon"] <= 2.0 * (1 + 1e-9)
    updates = statement["messages"][-1]
    assert (updates["count"], updates["sampling_rate"]) == (5, 0.3)


def test_a_device_that_was_asked_in_fewer_rounds_has_a_smaller_epsilon() -> None:
    config = private_config(
        schemes=["dp-gd"], training__cohort=2, options={"dp-gd": {"rounds": 7}}, fleet__straggler_ratio=0.05
    )
    comparison = run(config)
    updates = comparison["dp-gd"].progress.ledger.updates
    assert updates.min() < updates.max()
    statement = comparison.privacy("dp-gd")
    precision = comparison["dp-gd"].progress.ledger.precision
    assert np.argsort(statement["devices"], kind="stable").tolist() == np.argsort(precision, kind="stable").tolist()
    assert statement["epsilon"] == max(statement["devices"]) < 2.0
    for epsilon, everything in zip(statement["devices"], releases_of(comparison["dp-gd"]), strict=True):
        sent = [release.mechanism for release in everything if release.mechanism]
        assert epsilon == pytest.approx(epsilon_of(sent, 1e-5), rel=1e-9)


def own_file(folder: Path, **changes: Any) -> Any:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.standard_normal((150, 4)), columns=list("abcd"))
    table["y"] = np.where(table["a"] + 0.2 * rng.standard_normal(150) > 0, "yes", "no")
    table.to_csv(folder / "table.csv", index=False)
    given = {"data__dataset": str(folder / "table.csv"), "data__target": ["y"], "data__devices": 3}
    return private_config(**{**given, **changes})


@pytest.mark.slow
def test_the_private_choice_of_the_clip_norm_is_part_of_every_statement(tmp_path: Path) -> None:
    comparison = run(own_file(tmp_path, schemes=["dp-gd", "scfl"]))
    for scheme in ("dp-gd", "scfl"):
        statement = comparison.privacy(scheme)
        assert statement["messages"][0]["message"] == "norms of the samples"
        assert statement["covers"] == COVERS[scheme]
        assert 0.998 * 2.0 < statement["epsilon"] <= 2.0 * (1 + 1e-9)
        assert any("fitted to the pooled samples" in clause for clause in statement["outside"])


def test_the_private_choice_of_the_clip_norm_is_no_cover_for_a_scheme_without_an_upload(tmp_path: Path) -> None:
    statement = run(own_file(tmp_path, schemes=["fedavg"])).privacy("fedavg")
    assert statement["covers"] == "nothing"
    assert statement["epsilon"] == math.inf


def test_what_no_number_covers_is_said() -> None:
    outside = run(private_config(schemes=["fedavg"], learning_rate__scale="grid")).privacy("fedavg")["outside"]
    assert any("how many samples" in clause for clause in outside)
    assert any("protects nobody" in clause for clause in outside)
    assert any("step size was chosen on held-out" in clause for clause in outside)
    assert any("features.gamma was fitted" in clause for clause in outside)
    fixed = run(private_config(schemes=["dp-gd"], features__gamma=0.02)).privacy("dp-gd")["outside"]
    assert not any("step size" in clause or "gamma" in clause for clause in fixed)


def test_a_run_without_a_target_has_a_statement_too() -> None:
    comparison = run(small_config(schemes=["fedavg", "scfl"]))
    assert comparison.privacy("fedavg")["covers"] == comparison.privacy("scfl")["covers"] == "nothing"
    clipped = run(small_config(schemes=["scfl"], coding__clip_norm=1.0, coding__label_noise_variance=0.5))
    statement = clipped.privacy("scfl")
    assert statement["covers"] == "upload"
    assert 2.0 < statement["epsilon"] < math.inf


def test_the_summary_is_json_in_which_an_infinite_epsilon_is_null(comparison: Comparison) -> None:
    summary = json.loads(json.dumps(summarise(comparison), allow_nan=False))
    found = {scheme["scheme"]: scheme["privacy"] for scheme in summary["schemes"]}
    for name, expected in COVERS.items():
        assert found[name]["covers"] == expected
        assert found[name]["delta"] == 1e-5
        assert found[name]["threat_model"] == "each message"
        assert (found[name]["epsilon"] is None) == (expected == "nothing")
    assert found["fedavg"]["devices"] == [None] * 6


def test_model_files_carry_the_statement(comparison: Comparison, tmp_path: Path) -> None:
    for scheme in summarise(comparison)["schemes"]:
        path = tmp_path / f"{scheme['scheme']}.safetensors"
        comparison.predictor(scheme["scheme"]).save(path)
        assert Predictor.load(path).privacy == scheme["privacy"]
        assert scheme["privacy"]["covers"] == COVERS[scheme["scheme"]]


def lines_of(comparison: Comparison) -> list[str]:
    console = Console(file=io.StringIO(), width=80)
    console.print(results_table(comparison))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_the_table_shows_epsilon_and_what_it_covers_within_80_columns(comparison: Comparison) -> None:
    lines = lines_of(comparison)
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)
    (header,) = (line for line in lines if line.startswith("scheme"))
    assert "epsilon" in header.split()
    assert "covers" in header.split()
    for result in comparison.results:
        (row,) = (line for line in lines if line.startswith(f"{result.scheme.title}  "))
        assert COVERS[result.scheme.name] in row.split()
        assert ("no bound" in row) == (COVERS[result.scheme.name] == "nothing")


def test_the_verdict_tells_the_cost_of_privacy_in_points(comparison: Comparison, in_sums: Comparison) -> None:
    for each, seen in ((comparison, "each message"), (in_sums, "only sums over devices")):
        found = verdict(each)
        sentence = found.sentences[0]
        full = [each[name] for name, what in COVERS.items() if what == "everything"]
        best = max(full, key=lambda result: result.final.score)
        assert each.evaluator.reference is not None
        points = 100 * (each.evaluator.reference.score - best.final.score)
        assert sentence.startswith(f"{best.scheme.title} has the highest accuracy")
        assert found.cost is not None
        told = " (" if found.cost.more_than_noise else ", cannot be told from 0 ("
        assert re.search(rf"privacy costs,? {points:.1f} points{re.escape(told)}", sentence)
        assert f"epsilon = 2, delta = {each.config.privacy.delta:g} per sample" in sentence
        assert f"sees {seen}" in sentence


def test_notes_name_what_is_not_covered(comparison: Comparison) -> None:
    notes = notes_on(comparison)
    (scfl,) = (note for note in notes if note.startswith("epsilon of SCFL"))
    assert "covers its upload alone; its updates travel in the clear" in scfl
    (fedavg,) = (note for note in notes if note.startswith("epsilon of FedAvg"))
    assert "covers nothing" in fedavg
    assert not any(note.startswith("epsilon of DP-GD") for note in notes)
    assert not any(note.startswith("epsilon covers all") for note in notes), "DP-GD is compared"
    assert any(note.startswith("outside of any epsilon: ") for note in notes)
    assert any(note.startswith("samples are clipped to norm 1,") for note in notes)


def test_notes_without_a_covered_scheme_name_none() -> None:
    notes = notes_on(run(private_config(schemes=["scfl"])))
    assert not any("cover everything" in note for note in notes)
    (scfl,) = (note for note in notes if note.startswith("epsilon of SCFL"))
    assert scfl.endswith("travel in the clear.")
    assert any(note.startswith("epsilon covers all that devices send with dp-gd, ssp, one-shot, not") for note in notes)


SEVERAL = ["codedfedl", "cfl-fb", "scfl", "dp-cfl", "ccfl", "one-shot", "fedavg", "fed3r"]
PRIVATE = ["codedfedl", "scfl", "dp-cfl", "one-shot", "ssp", "dp-gd", "scfl-private", "ihm", "fedavg"]
WITH_NOISE = {
    "codedfedl": {"noise": True, "mini_batches": 4},
    "cfl-fb": {"noise": True},
    "ccfl": {"noise": True, "rank": 8},
}
NOISE = {"coding__clip_norm": 1.0, "coding__noise_variance": 50.0, "coding__label_noise_variance": 30.0}


def several(**changes: Any) -> list[dict[str, Any]]:
    comparison = run(small_config(**{"schemes": SEVERAL, "options": WITH_NOISE, **changes}))
    blocks: list[dict[str, Any]] = json.loads(json.dumps(summarise(comparison), allow_nan=False))["schemes"]
    return blocks


PRIVATELY = {
    "schemes": PRIVATE,
    "privacy__epsilon": 2.0,
    "options": {key: WITH_NOISE[key] for key in ("codedfedl",)},
}


@pytest.mark.parametrize(
    "changes",
    [NOISE, {"coding__noise_variance": 1.0}, PRIVATELY, {**PRIVATELY, "privacy__threat_model": "sums-only"}],
    ids=["noise", "unclipped", "each message", "sums only"],
)
def test_every_block_of_a_summary_has_one_epsilon(changes: dict[str, Any]) -> None:
    for block in several(**changes):
        statement = block["privacy"]
        private_updates = any(
            message["message"] == "updates" and message["mechanism"] != "none" for message in statement["messages"]
        )
        if private_updates:
            assert block["epsilon"] is block["epsilon_features"] is block["epsilon_in_sum"] is None, block["scheme"]
        else:
            assert block["epsilon"] == statement["epsilon"], block["scheme"]
        if statement["epsilon"] is None:
            assert statement["covers"] == "nothing"
            continue
        mechanisms = [
            {"CodedMechanism": CodedMechanism, "GaussianMechanism": GaussianMechanism}[message.pop("mechanism")](
                **message
            )
            for message in statement["messages"]
            if message.pop("message") and message["mechanism"] != "none"
        ]
        assert statement["epsilon"] == max(statement["devices"])
        assert statement["epsilon"] == pytest.approx(epsilon_of(mechanisms, statement["delta"]), rel=1e-12)
        if block["epsilon"] is not None:
            assert block["epsilon_features"] <= block["epsilon"] >= block["epsilon_in_sum"]
        if block["scheme"] in ("scfl", "codedfedl") and statement["threat_model"] == "sums only":
            assert block["epsilon_in_sum"] == block["epsilon"]


def test_the_rows_of_all_mini_batches_count() -> None:
    """CodedFedL's bound is that of SCFL with as many rows."""
    blocks = {block["scheme"]: block for block in several(schemes=["codedfedl", "scfl"], **NOISE)}
    coded, whole = blocks["codedfedl"], blocks["scfl"]
    (message, updates) = coded["privacy"]["messages"]
    assert message["coded_samples"] == 60
    assert updates["mechanism"] == "none"
    for name in ("epsilon", "epsilon_features", "epsilon_in_sum"):
        assert coded[name] == whole[name]
    assert coded["mi_dp_bits"] < whole["mi_dp_bits"], "the paper's bound is that of one mini-batch"
    assert any("mini-batches" in clause for clause in coded["privacy"]["outside"])
    assert not any("mini-batches" in clause for clause in whole["privacy"]["outside"])


def test_in_the_sum_the_noise_of_all_devices_adds_up() -> None:
    variances = [20.0, 30.0, 40.0, 50.0, 60.0, 0.0]
    (block,) = several(schemes=["scfl"], **{**NOISE, "coding__noise_variance": variances})
    in_sum = PrivacyAccountant(
        coded_samples=60, noise_variance=sum(variances), delta=1e-5, norm_bound=1.0, label_noise_variance=6 * 30.0
    )
    assert block["epsilon"] is None, "one device has no noise"
    assert block["epsilon_in_sum"] == pytest.approx(in_sum.epsilon, rel=1e-9)
