"""Fig. 2: reconstruction of coded data by an attacker who knows some of the samples, with and without noise."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure as MplFigure

from codedfl.experiment import Config, Experiment
from codedfl.paper._claims import Claim, Evidence, above
from codedfl.paper._drawing import HEIGHT, PANEL_WIDTH, Axis, add_legend, draw_lines, row_of_panels
from codedfl.paper._executor import Outcomes
from codedfl.paper._figure import Figure
from codedfl.paper._jobs import measurement
from codedfl.paper._setups import MNIST, Scope
from codedfl.paper._tables import Row, Tables, column, summary_table, where
from codedfl.plotting import new_figure
from codedfl.privacy import attack_error

ATTACKS = ("feasible", "oracle")
KNOWN_RATIOS = (0.05, 0.25, 0.5, 0.75, 0.95)
WITH_NOISE, WITHOUT_NOISE = "with noise", "no noise"


def measure_attack(experiment: Experiment) -> list[Row]:
    """Attack the coded data of the first device for several shares of known samples; errors as in `AttackResult`."""
    setting, config = experiment.setting, experiment.config
    features, noise = setting.rows(0).features, float(setting.code.noise_variance[0])
    rows: list[Row] = []
    for ratio in KNOWN_RATIOS:
        found = attack_error(features, ratio, setting.code.coded_samples, noise, setting.streams.at("attack"))
        rows.append(
            {
                "panel": config.data.dataset,
                "series": WITH_NOISE if noise else WITHOUT_NOISE,
                "x": ratio,
                "seed": config.seed,
                "feasible": found.feasible_error,
                "oracle": found.oracle_error,
                "baseline": found.baseline_error,
                "feasible_control": found.feasible_control_error,
                "oracle_control": found.oracle_control_error,
            }
        )
    return rows


MEASUREMENT = measurement("attack", "attacking coded data", measure_attack, unit=1.2e-3)


def configs(scope: Scope) -> Sequence[Config]:
    """Attack the upload of one device, with the noise of Sec. VI-B and without."""
    setup = scope.only(MNIST)
    return [setup.config, setup.changed(coding__noise_variance=0.0)]


def tables(scope: Scope, outcomes: Outcomes) -> Tables:  # noqa: ARG001
    """Return the errors of each attack and their means."""
    points = pd.DataFrame(outcomes.measured)
    errors = (*ATTACKS, "baseline", "oracle_control", "feasible_control")
    summaries = pd.concat([summary_table(points, error) for error in errors], keys=errors, names=["attack"])
    return {"points": points, "summary": summaries.reset_index("attack")}


def _noise_protects(tables: Tables, panel: str) -> list[Evidence]:
    points = where(tables["points"], panel=panel)
    return [
        above(
            f"{attack} attack, {ratio:.0%} known: error {WITH_NOISE} over {WITHOUT_NOISE}",
            column(points, attack, series=WITH_NOISE, x=ratio),
            column(points, attack, series=WITHOUT_NOISE, x=ratio),
        )
        for attack in ATTACKS
        for ratio in KNOWN_RATIOS
    ]


def draw_attack(tables: Tables) -> MplFigure:
    """Draw reconstruction errors, one panel per attack; the error of guessing the mean is dashed."""
    summary = tables["summary"]
    figure = new_figure(PANEL_WIDTH * 2 + 0.4, HEIGHT)
    titles = {"feasible": "an attack that can be carried out", "oracle": "rotated by an oracle: the most that leaks"}
    for axes, (attack, title) in zip(row_of_panels(figure, 2), titles.items(), strict=True):
        axis = Axis("share of samples that the attacker knows", percent=True)
        draw_lines(axes, where(summary, attack=attack), axis, markers=True, title="relative reconstruction error")
        for name, style, label in (("baseline", "--", "mean of the known"), (f"{attack}_control", ":", "control")):
            own = where(summary, attack=name, series=WITHOUT_NOISE)
            axes.plot(own["x"], own["mean"], style, color="#333333", linewidth=1, label=label)
        axes.set_ylim(0, 1.15)
        axes.set_title(title, loc="left", fontsize=11)
    add_legend(figure, summary)
    return figure


ATTACK = Figure(
    name="attack",
    title="Reconstruction error of coded data against the share of samples that an attacker knows",
    place="Fig. 2",
    measurement=MEASUREMENT,
    measured=configs,
    tables=tables,
    draw=draw_attack,
    claims=(Claim("coded data with additive noise preserve privacy better than coded data without", _noise_protects),),
)
