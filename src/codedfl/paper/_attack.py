"""Fig. 2: how well coded data can be reconstructed by someone who knows some of the samples, with and without noise."""

from __future__ import annotations

from collections.abc import Sequence

from codedfl.experiment import Config
from codedfl.paper._claims import Claim, Evidence, above
from codedfl.paper._drawing import draw_attack
from codedfl.paper._executor import Outcomes
from codedfl.paper._figure import Item
from codedfl.paper._measures import KNOWN_RATIOS, WITH_NOISE, WITHOUT_NOISE
from codedfl.paper._setups import MNIST, Scope
from codedfl.paper._tables import Table, Tables, summary_table

ATTACKS = ("feasible", "oracle")


def configs(scope: Scope) -> Sequence[Config]:
    """Attack the upload of one device, with the noise of Sec. VI-B and without."""
    setup = scope.only(MNIST)
    return [setup.config, setup.changed(coding__noise_variance=0.0)]


def tables(scope: Scope, outcomes: Outcomes) -> Tables:  # noqa: ARG001
    """Return the errors of each attack, and their means."""
    points = Table(outcomes.measured)
    summaries = []
    for attack in (*ATTACKS, "baseline", "oracle_control", "feasible_control"):
        summaries += [{"attack": attack, **row} for row in summary_table(points, attack)]
    return {"points": points, "summary": Table(summaries)}


def _noise_protects(tables: Tables, panel: str) -> list[Evidence]:
    points = tables["points"].where(panel=panel)
    return [
        above(
            f"{attack} attack, {ratio:.0%} known: error {WITH_NOISE} over {WITHOUT_NOISE}",
            points.column(attack, series=WITH_NOISE, x=ratio),
            points.column(attack, series=WITHOUT_NOISE, x=ratio),
        )
        for attack in ATTACKS
        for ratio in KNOWN_RATIOS
    ]


ATTACK = Item(
    name="attack",
    title="Reconstruction error of coded data against the share of samples that an attacker knows",
    place="Fig. 2",
    measured=configs,
    tables=tables,
    draw=draw_attack,
    claims=(Claim("coded data with additive noise preserve privacy better than coded data without", _noise_protects),),
)
