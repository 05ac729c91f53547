"""The way of an update in ``docs/architecture.md`` is the one that it takes in a simulated round."""

from __future__ import annotations

import re
import sys
from types import FrameType
from typing import Any

from codedfl.schemes import make_scheme
from codedfl.training import LearningRate, Run, advance
from tests.docs.pages import DOCS
from tests.problems import make_setting

PAGE = (DOCS / "architecture.md").read_text(encoding="utf-8")

BESIDE = {"Attendance", "BernoulliBatches", "Workload"}
"""Who arrives, which rows are sampled and what is charged: nothing of an update is in them."""


def made_in_a_round() -> set[str]:
    """Return the names of the project's classes of which a round of FedAvg makes objects."""
    run = Run(make_scheme("fedavg").prepare(make_setting()), LearningRate(0.02), 2)
    made: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name == "__init__":
            cls = type(frame.f_locals["self"])
            if cls.__module__.startswith("codedfl."):
                made.add(cls.__name__)

    sys.setprofile(note)
    try:
        advance(0, [run], Run.apply)
    finally:
        sys.setprofile(None)
    return made


def test_the_carriers_are_those_of_the_page_and_at_most_six() -> None:
    (listed,) = re.findall(r"^    (Rows ──▶ .*)$", PAGE, flags=re.MULTILINE)
    carriers = listed.split(" ──▶ ")
    assert len(carriers) <= 6
    # A payload is a dictionary, and the state that of the scheme.
    assert made_in_a_round() - BESIDE == {*carriers, "SchemeState"} - {"Payload", "State"}
    assert [row[0] for row in re.findall(r"^\| \d \| `(\w+)`(.*)", PAGE, flags=re.MULTILINE)] == carriers
