"""Table I of the paper, generated from the code."""

from __future__ import annotations

from codedfl.training import Scheme

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
    """Return the row of a scheme, as it and its components describe themselves."""
    return (
        f"`{scheme.name}`",
        "none" if scheme.upload is None else scheme.upload.describe(),
        scheme.describe_devices(),
        scheme.describe_server(),
        scheme.describe_steps(),
        scheme.describe_combination(),
        scheme.describe_result(),
    )
