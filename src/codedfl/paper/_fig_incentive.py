"""Fig. 8: the incentive mechanism. (a) utility of every contract item for every device; (b), (c) accuracy against reward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
from matplotlib.figure import Figure as MplFigure
from matplotlib.ticker import MaxNLocator

from codedfl.incentive import DeviceTraits, contract_for_reward, printed_sensitivities, table_sensitivities
from codedfl.paper._claims import Claim, Evidence, above, accuracies, exactly, higher, places
from codedfl.paper._drawing import (
    HEIGHT,
    MARKERS,
    OTHER_COLOURS,
    PANEL_WIDTH,
    Axis,
    add_legend,
    draw_lines,
    finish,
    row_of_panels,
)
from codedfl.paper._executor import Outcomes
from codedfl.paper._figure import Figure, accuracy_tables
from codedfl.paper._runs import FigureRun, run_of
from codedfl.paper._setups import CIFAR10, Scope
from codedfl.paper._tables import Tables, column, where
from codedfl.plotting import new_figure

REWARDS = {"cifar10": (70.0, 80.0, 90.0, 100.0, 110.0, 120.0), "digits": (100.0, 160.0, 220.0)}
CONTRACT, STACKELBERG, NONE = "SCFL, contract", "SCFL, Stackelberg", "no incentive (FedAvg)"
DEFAULT, HALF = "default channel", "50% stragglers"
MENU_REWARD = 100.0
SHOWN_DEVICES = (1, 5, 10, 20)


def runs(scope: Scope) -> Sequence[FigureRun]:
    """Train SCFL with the noise that each mechanism buys, and FedAvg."""
    setup = scope.only(CIFAR10)
    sensitivity = "printed" if "printed-sensitivities" in scope.quirks else "table"
    wanted = []
    for panel, ratio in ((DEFAULT, setup.config.fleet.straggler_ratio), (HALF, 0.5)):
        fleet = {"fleet__straggler_ratio": ratio}
        for reward in REWARDS[setup.name]:
            for series, mechanism in ((CONTRACT, "contract"), (STACKELBERG, "stackelberg")):
                run = run_of(
                    setup,
                    "SCFL",
                    reward,
                    incentive__mechanism=mechanism,
                    incentive__total_reward=reward,
                    incentive__sensitivity=sensitivity,
                    **fleet,
                )
                wanted.append(replace(run, panel=panel, series=series))
            wanted.append(replace(run_of(setup, "FedAvg", reward, **fleet), panel=panel, series=NONE))
    return wanted


def tables(scope: Scope, outcomes: Outcomes) -> Tables:
    """Return accuracy by reward, and the utility of every contract item for every device."""
    printed = "printed-sensitivities" in scope.quirks
    devices = scope.only(CIFAR10).config.data.devices
    sensitivity = printed_sensitivities(devices) if printed else table_sensitivities(devices)
    coded = scope.only(CIFAR10).config.coding.coded_samples
    contract = contract_for_reward(DeviceTraits(sensitivity), MENU_REWARD, coded)
    menu = pd.DataFrame(
        {
            "device": i + 1,
            "item": j + 1,
            "budget": float(contract.mi_dp_bits[j]),
            "reward": float(contract.reward[j]),
            "utility": float(contract.reward[j] - sensitivity[i] * contract.mi_dp_bits[j]),
        }
        for i in range(devices)
        for j in range(devices)
    )
    return {**accuracy_tables(scope, outcomes), "menu": menu}


def _own_item(tables: Tables, panel: str) -> list[Evidence]:  # noqa: ARG001
    menu = tables["menu"]
    best = [
        column(menu, "utility", device=i, item=i)[0] >= column(menu, "utility", device=i).max() - 1e-9
        for i in menu["device"].unique()
    ]
    return [exactly(f"the own item is best for {sum(best)} of {len(best)} devices", all(best))]


def _willing(tables: Tables, panel: str) -> list[Evidence]:  # noqa: ARG001
    menu = tables["menu"]
    own = menu.loc[menu["device"] == menu["item"], "utility"]
    return [exactly(f"the least utility is {own.min():.3g}", own.min() >= -1e-9)]


def _gains_more(tables: Tables, panel: str) -> list[Evidence]:  # noqa: ARG001
    return [
        above(
            f"gain of the contract over FedAvg at {x:g}: {HALF} over {DEFAULT}",
            *(accuracies(tables, p, CONTRACT, x) - accuracies(tables, p, NONE, x) for p in (HALF, DEFAULT)),
        )
        for x in places(tables, HALF, CONTRACT)
        if x >= 100
    ]


def draw_incentive(tables: Tables) -> MplFigure:
    """Draw the utility of contract items for some devices, and accuracy against reward with few and with many stragglers."""
    summary, menu = tables["summary"], tables["menu"]
    panels = summary["panel"].unique()
    figure = new_figure(PANEL_WIDTH * (1 + len(panels)), HEIGHT + 0.4)
    first, *others = row_of_panels(figure, 1 + len(panels))
    for colour, marker, device in zip(OTHER_COLOURS, MARKERS, SHOWN_DEVICES, strict=False):
        items, utilities = (column(menu, name, device=device) for name in ("item", "utility"))
        label = f"(a) device {device}"
        first.plot(items, utilities, color=colour, marker=marker, markevery=[device - 1], label=label, clip_on=False)
    first.xaxis.set_major_locator(MaxNLocator(integer=True))
    first.set_xlim(0.5, menu["item"].max() + 0.5)
    first.set_xlabel("contract item, by the number of its device")
    first.set_ylabel("utility of the device")
    first.set_title("(a) each device's own item is marked", loc="left", fontsize=11)
    finish(first)
    for letter, axes, panel in zip("bc", others, panels, strict=True):
        draw_lines(axes, where(summary, panel=panel), Axis("total reward", whole=True), markers=True)
        axes.set_title(f"({letter}) {panel}", loc="left", fontsize=11)
    add_legend(figure, summary)
    return figure


FIG_INCENTIVE = Figure(
    name="fig-incentive",
    title="Incentive mechanisms: utility of contract items, accuracy against total reward",
    place="Fig. 8",
    runs=runs,
    tables=tables,
    draw=draw_incentive,
    claims=(
        Claim("every device's own contract item is its best", _own_item, panels=(DEFAULT,)),
        Claim("no device's utility is negative", _willing, panels=(DEFAULT,)),
        Claim("contract beats Stackelberg at equal reward", higher(CONTRACT, STACKELBERG)),
        Claim("with a total reward of 100 or more SCFL beats FedAvg", higher(CONTRACT, NONE, among=lambda x: x >= 100)),
        Claim(
            "with a small reward (70) the coded data is so noisy that SCFL is far worse (a point) than FedAvg",
            higher(NONE, CONTRACT, least=0.01, among=lambda x: x <= 70),
        ),
        Claim("with 50% stragglers SCFL gains more over FedAvg", _gains_more, panels=(HALF,)),
    ),
)
