from __future__ import annotations

from typing import Any

import pytest

from codedfl.cli.sweep_tables import sweep_table
from codedfl.experiment import SweepResults
from tests.cli.test_tables import text_of


def results(epsilon: float | None, centralised: float = 0.9) -> SweepResults:
    covers = {"scfl": "upload", "dp-gd": "everything"}
    scores = {("scfl", 5): 0.8, ("dp-gd", 5): 0.7, ("scfl", 9): 0.5, ("dp-gd", 9): 0.6}
    rows: list[dict[str, Any]] = [
        {
            "values": {"training.rounds": rounds},
            "seed": 0,
            "scheme": scheme,
            "title": scheme.upper(),
            "score": score,
            "centralised": centralised,
            "target_epsilon": epsilon,
            "covers": covers[scheme],
            "epsilon": 2.0,
            "time_to_90_s": None,
            "time_to_95_s": None,
            "everything_charged_s": 10.0,
            "bytes_up": 3e4,
        }
        for (scheme, rounds), score in scores.items()
    ]
    return SweepResults({"training.rounds": [5, 9]}, "digits", "accuracy", tuple(rows), 2, 2)


@pytest.mark.parametrize(("epsilon", "styles"), [(None, ["bold", "", "", "bold"]), (2.0, ["", "bold", "", "bold"])])
def test_the_best_of_each_point_is_bold_if_it_keeps_the_epsilon(epsilon: float | None, styles: list[str]) -> None:
    assert [str(row.style) for row in sweep_table(results(epsilon)).rows] == styles


def test_a_scheme_that_exceeds_the_epsilon_of_a_point_is_not_bold() -> None:
    found = results(2.0)
    found.rows[3]["epsilon"] = 2.1
    assert [str(row.style) for row in sweep_table(found).rows] == ["", "bold", "", ""]


@pytest.mark.parametrize(("centralised", "said"), [(0.9, True), (-0.2, False)])
def test_never_is_said_of_a_goal_only(centralised: float, said: bool) -> None:
    assert ("never" in text_of(sweep_table(results(None, centralised)))) is said


def test_a_small_upload_is_not_shown_as_none() -> None:
    assert " 0.03 " in text_of(sweep_table(results(None)))
