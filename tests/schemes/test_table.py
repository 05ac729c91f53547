from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from codedfl.coding import CodedData
from codedfl.schemes import (
    COLUMNS,
    SCHEMES,
    ccfl,
    codedfedl,
    describe,
    dp_gd,
    fedavg,
    make_scheme,
    momentum,
    one_shot,
    scfl,
)
from codedfl.setting import Setting
from codedfl.training import CodedSGD, LocalSGD, Round, Scheme, ServerPlan, ServerWork


def test_the_readme_shows_the_table_as_it_stands_in_the_code() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    rows = [COLUMNS, ("---",) * len(COLUMNS), *(describe(make_scheme(name)) for name in SCHEMES)]
    assert "\n".join(f"| {' | '.join(row)} |" for row in rows) in readme


def test_rows_follow_the_choices() -> None:
    rows = {name: dict(zip(COLUMNS, describe(make_scheme(name)), strict=True)) for name in SCHEMES}
    # Table I of the paper: noise protects the coded data of DP-CFL and SCFL alone ...
    noisy = {name for name, row in rows.items() if row["upload"] == "projection + noise"}
    assert noisy == {"dp-cfl", "scfl", "scfl-fixed", "scfl-private"}
    # ... and CFL-FB and CodedFedL aggregate after every step.
    assert {name for name, row in rows.items() if row["steps a round"] == "1"} == {
        "cfl-fb",
        "codedfedl",
        "ccfl",
        "momentum",
        "dp-gd",
        "ihm",
        "scfl-private",
    }
    averaging = {name for name, row in rows.items() if row["returns"] == "step-weighted average"}
    assert averaging == {"scfl", "scfl-fixed", "momentum"}
    # The others train in rounds; these solve once.
    assert {name for name, row in rows.items() if row["returns"] == "solution"} == {
        "fed3r",
        "one-shot",
        "ssp",
    }
    assert rows["fed3r"]["upload"] == "exact second moments"
    assert rows["one-shot"]["upload"] == "factor of projection + noise"
    assert rows["dp-cfl"]["devices, each round"] == "nothing"
    # Private updates are clipped and have noise.
    clipped = {name for name, row in rows.items() if row["devices, each round"].endswith("clipped + noise")}
    assert clipped == {"dp-gd", "ihm", "scfl-private"}
    assert rows["ssp"]["upload"] == "second moments + noise"
    assert rows["ihm"]["upload"] == "projection + noise, for each round"
    assert rows["dp-gd"]["upload"] == "mean, second moments + noise"
    # One alone remembers devices.
    assert {name for name, row in rows.items() if row["combined by"] == "memory"} == {"ccfl"}
    assert rows["ccfl"]["upload"] == "subspace sketch"
    assert rows["ccfl"]["returns"] == "average of recent iterates"


def test_a_changed_choice_changes_the_row() -> None:
    assert describe(codedfedl(noise=True))[1] == "projection + noise"
    assert describe(scfl(batch=8))[2] == "mini-batch SGD, batch 8"
    assert describe(scfl(upload="factor"))[1] == "factor of projection + noise"
    assert describe(one_shot(upload="rows"))[1] == "projection + noise"
    assert describe(momentum(momentum=0.5))[3] == "momentum 0.5"
    assert describe(ccfl(noise=True))[1] == "subspace sketch + noise"
    assert describe(ccfl(deadline="fixed"))[2] == "mini-batch gradient, adaptive batch"
    assert describe(dp_gd(curvature="mean"))[1] == "mean + noise"
    assert describe(dp_gd(curvature="none"))[1] == "none"
    assert describe(dp_gd(sampling_rate=0.1))[2] == "mini-batch gradient, clipped + noise"
    assert describe(ccfl(memory="none"))[3:6:2] == ("curvature step, momentum", "weights 1/p")


def test_a_new_kind_of_device_work_is_named_by_its_class() -> None:
    @dataclass(frozen=True)
    class Telepathy(LocalSGD):
        pass

    assert "SGD" in describe(replace(scfl(), device=Telepathy()))[2]


def test_the_work_of_a_server_is_what_the_scheme_says() -> None:
    class Halved(Scheme):
        def step(self, state: Any, round: Round) -> Any:
            return super().step(state, replace(round, step_size=round.step_size / 2))

    class Named(Halved):
        def describe_server(self) -> str:
            return "half a step"

    @dataclass(frozen=True)
    class Sums(ServerWork[tuple[CodedData, ...]]):
        def plan(self, setting: Setting, coded: tuple[CodedData, ...]) -> ServerPlan:
            return CodedSGD().plan(setting, coded)

        def describe(self) -> str:
            return "sums of coded rows"

    assert describe(Halved(**vars(fedavg())))[3] == "a step of its own"
    assert describe(Named(**vars(fedavg())))[3] == "half a step"
    assert describe(Named(**vars(scfl())))[3] == "half a step"
    assert describe(replace(scfl(), server=Sums()))[3] == "sums of coded rows"
