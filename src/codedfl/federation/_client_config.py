"""``client.toml``, and the types of fields that it has in common with ``federation.toml``."""

from __future__ import annotations

import re
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from codedfl.config import MAX_COUNT, CountOrZero, NonNegative, Positive, Section, Text, Variance
from codedfl.data import is_file_name
from codedfl.errors import InputError

_DEVICE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9.-]*[A-Za-z0-9]):([0-9]{1,5})")


def _device_name(text: str) -> str:
    # The name becomes that of a folder and a file, so it must not hide them or lead out of theirs.
    if not _DEVICE_NAME.fullmatch(text):
        raise ValueError(
            "it must have 1 to 64 characters out of A-Z, a-z, 0-9, dot, dash and underscore, the first not a dot"
        )
    return text


def _address(text: str) -> str:
    match = _ADDRESS.fullmatch(text)
    if not match or not 1 <= int(match[1]) <= 65535:
        raise ValueError(
            'it must be a host and a port from 1 to 65535, such as "192.0.2.7:9092" or "[2001:db8::7]:9092"'
        )
    return text


def table_file(text: str) -> str:
    """Refuse a name that is not that of a table."""
    if not is_file_name(text):
        raise ValueError("it must be a file whose name ends in .csv, .tsv, .npz or .parquet")
    return text


Name = Annotated[Text, Field(min_length=1)]
DeviceName = Annotated[str, AfterValidator(_device_name)]
Address = Annotated[str, AfterValidator(_address)]
TableFile = Annotated[Text, AfterValidator(table_file)]
Seconds = Annotated[Positive, Field(le=MAX_COUNT)]
Constant = Annotated[float, Field(ge=-1e30, le=1e30, allow_inf_nan=False)]
Scale = Annotated[float, Field(ge=1e-30, le=1e30, allow_inf_nan=False)]


class ClientPrivacy(Section):
    """The noise of this device's upload: given, solved for a privacy budget, or picked from a contract."""

    noise_variance: Variance | None = Field(
        None, description="noise variance of the coded samples; leave it out for that of federation.toml"
    )
    label_noise_variance: Variance | None = Field(
        None, description="noise variance of the coded labels; leave it out for that of federation.toml"
    )
    epsilon: NonNegative = Field(
        0.0, description="above 0: add the least noise that makes the upload (epsilon, delta) differentially private"
    )
    delta: float = Field(1e-5, gt=0, lt=1, description="delta of that guarantee, and of policy.largest_epsilon")
    sensitivity: NonNegative = Field(
        0.0,
        description="above 0: the reward wanted for one bit of privacy, by which a contract item is picked; never sent",
    )

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if self.epsilon > 0 and self.noise_variance is not None:
            raise InputError(
                f"privacy.epsilon = {self.epsilon} is not possible beside privacy.noise_variance = {self.noise_variance}, as "
                "both decide the noise: leave one of them out."
            )
        return self


class ClientPolicy(Section):
    """What this device refuses, whatever the server asks for."""

    least_noise_variance: Variance = Field(0.0, description="upload no coded samples with less noise than this")
    least_label_noise_variance: Variance = Field(0.0, description="upload no coded labels with less noise than this")
    most_coded_rows: CountOrZero = Field(100_000, description="upload no more coded samples than this")
    most_uploads: CountOrZero = Field(1, description="uploads over the lifetime of the ledger")
    most_rounds: CountOrZero = Field(10_000, description="updates over the lifetime of the ledger")
    least_batch: CountOrZero = Field(
        1,
        description="compute no update on fewer rows than this (or all, if there are fewer): that of one row shows the row",
    )
    features: tuple[Name, ...] = Field(
        (), description="raw input columns that may be used; empty for all that federation.toml names"
    )
    labels: tuple[Name, ...] = Field(
        (), description="target columns that may be used; empty for all that federation.toml names"
    )
    largest_epsilon: NonNegative = Field(
        0.0,
        description="above 0: refuse an upload, or a private update, that makes the worst-case epsilon larger or unknown",
    )


class ClientConfig(Section):
    """The configuration of one device, private to it; paths are relative to its file.

    Example:
        >>> ClientConfig(name="ward-1", server="192.0.2.7:9092", data="ward.csv").policy.most_uploads
        1
    """

    name: DeviceName = Field(description="name of this device, one of those in federation.toml")
    server: Address = Field(description="host:port of the server")
    data: TableFile = Field(description="this device's table, a .csv, .npz or .parquet file")
    insecure: bool = Field(
        False, description="connect without encryption and authentication; never over a real network"
    )
    certificate: Name = Field("ca.crt", description="certificate of the authority that signed the server's certificate")
    key: Name = Field("device.key", description="private key of this device")
    federation: Name = Field("federation.toml", description="configuration of the federation")
    state: Name = Field("state", description="folder for the ledger and for released data; keep it")
    privacy: ClientPrivacy = ClientPrivacy()
    policy: ClientPolicy = ClientPolicy()
