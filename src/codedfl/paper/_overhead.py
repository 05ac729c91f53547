"""Sec. VI-B: the communication cost of the coded upload and of training."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from codedfl.paper._claims import Claim, Evidence, exactly
from codedfl.paper._executor import Outcomes
from codedfl.paper._figure import Figure
from codedfl.paper._runs import FigureRun, run_of
from codedfl.paper._setups import Scope
from codedfl.paper._tables import Row, Tables, where

MIB = 2**20
BYTES_PER_NUMBER = 4
PRINTED_MB = {"mnist": (76, 123), "cifar10": (156, 208)}
"""Coded upload and training, as printed in Sec. VI-B."""


def runs(scope: Scope) -> Sequence[FigureRun]:
    """Train SCFL in the setting of Sec. VI-A, for its ledger."""
    return [run_of(setup, "SCFL") for setup in scope.setups]


def tables(scope: Scope, outcomes: Outcomes) -> Tables:
    """Return bytes by purpose: for one device by formula, and for all devices as charged in the run."""
    rows: list[Row] = []
    for setup in scope.setups:
        record = outcomes.records[run_of(setup, "SCFL")][0]
        coding, training = setup.config.coding, setup.config.training
        devices, rounds = setup.config.data.devices, record.at().round
        update = BYTES_PER_NUMBER * record.dimension * record.outputs
        features, labels = (BYTES_PER_NUMBER * coding.coded_samples * n for n in (record.dimension, record.outputs))
        printed = PRINTED_MB.get(setup.name, (0, 0))
        for what, count, said in (
            ("coded features of one device", features, printed[0]),
            ("coded labels of one device", labels, 0),
            ("updates of one device that always arrives", update * rounds, printed[1]),
            ("coded upload of all devices, as charged", record.coded_bytes, 0),
            ("updates of all devices that arrived, as charged", record.training_bytes, 0),
            ("updates of one device in 10,000 s of rounds of 6.5 s", update * (10_000 // 6.5), 0),
        ):
            rows.append(
                {
                    "panel": setup.name,
                    "what": what,
                    "bytes": float(count),
                    "mib": float(count) / MIB,
                    "mb": float(count) / 1e6,
                    "printed_mb": said,
                    "devices": devices,
                    "rounds": rounds,
                    "deadline_s": training.deadline_s,
                }
            )
    return {"points": pd.DataFrame(rows)}


def _agrees(what: str, place: int) -> Claim:
    def judge(tables: Tables, panel: str) -> list[Evidence]:
        (row,) = where(tables["points"], panel=panel, what=what).to_dict("records")
        mib, printed = float(row["mib"]), float(row["printed_mb"])
        return [exactly(f"{what}: {mib:.1f} MiB, printed {printed:g} MB", int(mib) == int(printed))]

    text = ("76 MB (MNIST) and 156 MB (CIFAR-10)", "123 MB and 208 MB")[place]
    subject = ("uploading c = 10,000 coded samples costs", "the training stage costs")[place]
    return Claim(f"{subject} {text}", judge, panels=tuple(PRINTED_MB))


OVERHEAD = Figure(
    name="overhead",
    title="Communication of the coded upload and of training",
    place="Sec. VI-B",
    runs=runs,
    tables=tables,
    claims=(
        _agrees("coded features of one device", 0),
        _agrees("updates of one device that always arrives", 1),
    ),
)
