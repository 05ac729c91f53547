"""Table I of the paper, generated from the code."""

from __future__ import annotations

from codedfl.schemes._registry import SCHEMES, make_scheme
from codedfl.training import AllocatedGradient, CodedSGD, Idle, InverseProbability, LocalSGD, Scheme

COLUMNS = (
    "scheme",
    "coded upload",
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
        "none" if scheme.upload is None else "projection + noise" if scheme.upload.noise else "weighted projection",
        _devices(scheme),
        _server(scheme),
        "1" if isinstance(scheme.device, AllocatedGradient) else "tau",
        "weights 1/p" if isinstance(scheme.aggregation, InverseProbability) else "sum",
        "step-weighted average" if scheme.final == "average" else "last iterate",
    )


def markdown_table() -> str:
    """Return the table of all schemes in Markdown.

    Example:
        >>> print(markdown_table().splitlines()[0])
        | scheme | coded upload | devices, each round | server, each round | steps a round | combined by | returns |
    """
    rows = [COLUMNS, ("---",) * len(COLUMNS), *(describe(make_scheme(name)) for name in SCHEMES)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _devices(scheme: Scheme) -> str:
    match scheme.device:
        case Idle():
            return "nothing"
        case LocalSGD(batch="adaptive"):
            return "mini-batch SGD, adaptive batch"
        case LocalSGD(batch=batch):
            return f"mini-batch SGD, batch {batch}"
        case AllocatedGradient(mini_batches=1):
            return "full-batch gradient, allocated load"
        case AllocatedGradient():
            return "mini-batch gradient, allocated load"
        case other:
            return type(other).__name__


def _server(scheme: Scheme) -> str:
    match scheme.server:
        case None:
            return "nothing"
        case CodedSGD(make_up=True):
            return "SGD on coded data, make-up term"
        case CodedSGD():
            return "SGD on coded data"
        case _:
            return "gradient on parity data"
