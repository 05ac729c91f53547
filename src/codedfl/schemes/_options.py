"""Options that several schemes share, with the descriptions that configuration files show."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from codedfl.uploads import CodedFactor, CodedRows

Batch = Annotated[
    int | Literal["adaptive"], Field(description="batch of every device, or adaptive: as much as the deadline allows")
]
DeviceWeight = Annotated[float, Field(description="share of the devices in the update; the paper has 1/2")]
WeightCap = Annotated[
    float,
    Field(description="largest weight 1 / p of an update; devices that arrive less often than 1 in so many count less"),
]
UploadKind = Annotated[
    Literal["rows", "factor"],
    Field(
        description="rows: the coded rows, added up; factor: their triangular factor, with devices kept apart at the server"
    ),
]
RoundDeadline = Annotated[
    Literal["auto", "fixed"],
    Field(description="auto: the round that is predicted to train fastest; fixed: training.deadline_s"),
]
Deadline = Annotated[
    Literal["fixed", "free"],
    Field(description="fixed: the deadline T of the setting; free: the shortest that the load allocation allows"),
]
ParityNoise = Annotated[
    bool,
    Field(description="add noise to the parity data; without a make-up term the gradient gains sigma^2 W"),
]


def coded_upload(kind: Literal["rows", "factor"], budget_share: float = 1.0) -> CodedRows | CodedFactor:
    """Return the upload of coded data that an option names, with noise."""
    uploads: dict[str, type[CodedRows | CodedFactor]] = {"rows": CodedRows, "factor": CodedFactor}
    return uploads[kind](budget_share=budget_share)
