"""Table I of the paper, generated from the code."""

from __future__ import annotations

from codedfl.curvature import CurvatureCoded, SubspaceUpload
from codedfl.private import (
    CodedDescent,
    CurvatureUpload,
    HessianMixing,
    PrivateDescent,
    PrivateGradient,
    SketchUpload,
    StatisticsUpload,
)
from codedfl.schemes._momentum import Momentum
from codedfl.schemes._registry import SCHEMES, make_scheme
from codedfl.training import (
    AllocatedGradient,
    CodedSGD,
    CodedUpload,
    ExactStatistics,
    Idle,
    InverseProbability,
    LocalSGD,
    Scheme,
)

COLUMNS = (
    "scheme",
    "upload",
    "devices, each round",
    "server, each round",
    "steps a round",
    "combined by",
    "returns",
)


def describe(scheme: Scheme) -> tuple[str, ...]:
    """Return the row of a scheme, derived from its components."""
    return (
        f"`{scheme.name}`",
        _upload(scheme),
        _devices(scheme),
        _server(scheme),
        _steps(scheme),
        _combined_by(scheme),
        _returns(scheme),
    )


def markdown_table() -> str:
    """Return the table of all schemes in Markdown.

    Example:
        >>> print(markdown_table().splitlines()[0])
        | scheme | upload | devices, each round | server, each round | steps a round | combined by | returns |
    """
    rows = [COLUMNS, ("---",) * len(COLUMNS), *(describe(make_scheme(name)) for name in SCHEMES)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _upload(scheme: Scheme) -> str:
    match scheme.upload:
        case None:
            return "none"
        case ExactStatistics():
            return "exact second moments"
        case SubspaceUpload(noise=noise):
            return "subspace sketch + noise" if noise else "subspace sketch"
        case CodedUpload(noise=noise, kind=kind):
            what = "projection + noise" if noise else "weighted projection"
            return what if kind == "rows" else f"factor of {what}"
        case StatisticsUpload():
            return "second moments + noise"
        case SketchUpload():
            return "projection + noise, for each round"
        case CurvatureUpload(curvature="none"):
            return "none"
        case CurvatureUpload(curvature="mean"):
            return "mean + noise"
        case CurvatureUpload():
            return "mean, second moments + noise"
        case other:
            return type(other).__name__


def _steps(scheme: Scheme) -> str:
    if scheme.one_shot:
        return "none"
    match scheme.device:
        case AllocatedGradient():
            return "1"
        case PrivateGradient():
            return "1"
        case LocalSGD(steps=int() as steps):
            return str(steps)
        case _:
            return "tau"


def _devices(scheme: Scheme) -> str:
    match scheme.device:
        case Idle():
            return "nothing"
        case LocalSGD(batch="adaptive", steps=1, deadline="auto"):
            return "one gradient, adaptive batch and deadline"
        case LocalSGD(batch="adaptive", steps=1):
            return "mini-batch gradient, adaptive batch"
        case LocalSGD(batch="adaptive"):
            return "mini-batch SGD, adaptive batch"
        case LocalSGD(batch=batch):
            return f"mini-batch SGD, batch {batch}"
        case PrivateGradient(sampling_rate=1):
            return "full-batch gradient, clipped + noise"
        case PrivateGradient():
            return "mini-batch gradient, clipped + noise"
        case AllocatedGradient(mini_batches=1):
            return "full-batch gradient, allocated load"
        case AllocatedGradient():
            return "mini-batch gradient, allocated load"
        case other:
            return type(other).__name__


def _server(scheme: Scheme) -> str:
    if scheme.one_shot:
        return "nothing (solves once before)"
    match scheme.server:
        case None if isinstance(scheme, CurvatureCoded):
            return "curvature step, " + ("momentum" if scheme.memory == "none" else "memory of every device")
        case None if isinstance(scheme, Momentum) and scheme.momentum:
            return f"momentum {scheme.momentum:g}"
        case None if isinstance(scheme, PrivateDescent):
            return "curvature step, momentum"
        case None if isinstance(scheme, HessianMixing):
            return "Newton step"
        case None:
            return "nothing"
        case CodedSGD() if isinstance(scheme, CodedDescent):
            return "gradient on coded data, make-up term, momentum"
        case CodedSGD(make_up=True):
            return "SGD on coded data, make-up term"
        case CodedSGD():
            return "SGD on coded data"
        case _:
            return "gradient on parity data"


def _combined_by(scheme: Scheme) -> str:
    if scheme.one_shot:
        return "-"
    if isinstance(scheme, CurvatureCoded) and scheme.memory != "none":
        return "memory"
    if isinstance(scheme, PrivateDescent | HessianMixing | CodedDescent):
        return "sum, scaled to all rows"
    return "weights 1/p" if isinstance(scheme.aggregation, InverseProbability) else "sum"


def _returns(scheme: Scheme) -> str:
    if scheme.one_shot:
        return "solution"
    if isinstance(scheme, CurvatureCoded | PrivateDescent | CodedDescent):
        return "average of recent iterates"
    return "step-weighted average" if scheme.final == "average" else "last iterate"
