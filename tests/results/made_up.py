"""Evidence that no run produced, to see what a verdict makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from codedfl.results import Evidence, SchemeEvidence
from codedfl.training import Evaluation
from codedfl.typing import FloatArray

ROWS = 1000


def curve(scores: Sequence[float] | FloatArray, preparation_s: float = 0.0) -> tuple[Evaluation, ...]:
    """Return a learning curve with an evaluation every two seconds."""
    return tuple(
        Evaluation(k, 2.0 * k, 2.0 * k + preparation_s, 0.1, 0.1, float(score), float(score), 0.1, 0.1, 3.0, 1e6)
        for k, score in enumerate(scores)
    )


def right(accuracy: float) -> FloatArray:
    """Return the scores of rows of which the first are right."""
    return (np.arange(ROWS) < round(ROWS * accuracy)).astype(np.float64)


def scheme(
    name: str, scores: Sequence[float] | FloatArray, *, preparation_s: float = 0.0, **others: Any
) -> SchemeEvidence:
    """Return a scheme that is right on the first of the test rows, as many as its last score says."""
    given: dict[str, Any] = {
        "title": {"fedavg": "FedAvg", "scfl": "SCFL", "ccfl": "CCFL", "fed3r": "Fed3R"}.get(name, name.upper()),
        "coded": name in ("scfl", "ccfl"),
        "status": "completed",
        "rows": right(float(scores[-1])),
        "upload_bytes": 0.0,
        "private": True,
    }
    return SchemeEvidence(name=name, curve=curve(scores, preparation_s), **(given | others))


def evidence(*schemes: SchemeEvidence, **others: Any) -> Evidence:
    """Return a comparison of these schemes."""
    given: dict[str, Any] = {
        "seed": 0,
        "task": "classification",
        "test_rows": ROWS,
        "centralised": 0.9,
        "centralised_rows": right(0.9),
        "constant": "always answering 'no'",
        "constant_rows": right(0.1),
        "data_bytes": 1e6,
        "epsilon": None,
        "delta": 1e-5,
        "sums_only": False,
        "interrupted": False,
    }
    return Evidence(schemes=schemes, **(given | others))
