"""The two configuration files: what a whole federation agrees on, and what is private to one device."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar, get_type_hints

import numpy as np
from pydantic import AfterValidator, BaseModel, Field, ValidationError, ValidationInfo, field_validator, model_validator

from codedfl._messages import did_you_mean, listing, shown
from codedfl.config import Section, parse_config
from codedfl.data import FeatureMap, fit_feature_map, is_file_name
from codedfl.errors import InputError
from codedfl.identity import identity
from codedfl.schemes import SCHEMES
from codedfl.streams import MAX_SEED, Streams

SUPPORTED_SCHEMES = ("fedavg", "momentum", "scfl", "scfl-fixed", "dp-cfl", "ccfl", "one-shot")
"""The schemes that run over a network."""

MASKABLE_SCHEMES = ("scfl", "scfl-fixed", "dp-cfl")
"""The schemes whose server needs no more than the sum of all uploads, if these are rows."""

MAX_COUNT = 10**9
"""The largest count: larger ones are typing errors, or overflow."""

_DEVICE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9.-]*[A-Za-z0-9]):([0-9]{1,5})")
_SectionT = TypeVar("_SectionT", bound=Section)


def _writable(text: str) -> str:
    if re.search("[\0\ud800-\udfff]", text):  # the latter stand for bytes that are not UTF-8
        raise ValueError("it must be UTF-8 text without NUL characters")
    return text


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


def _table_file(text: str) -> str:
    if not is_file_name(text):
        raise ValueError("it must be a file whose name ends in .csv, .npz or .parquet")
    return text


Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
CountOrZero = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Text = Annotated[str, AfterValidator(_writable)]
Name = Annotated[str, Field(min_length=1), AfterValidator(_writable)]
DeviceName = Annotated[str, AfterValidator(_device_name)]
Address = Annotated[str, AfterValidator(_address)]
TableFile = Annotated[str, AfterValidator(_writable), AfterValidator(_table_file)]
Seconds = Annotated[float, Field(gt=0, le=MAX_COUNT, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Variance = Annotated[float, Field(ge=0, le=1e30, allow_inf_nan=False)]
"""Bounded so that draws and their squares stay within single precision."""
Constant = Annotated[float, Field(ge=-1e30, le=1e30, allow_inf_nan=False)]
Scale = Annotated[float, Field(ge=1e-30, le=1e30, allow_inf_nan=False)]


class FederationData(Section):
    """The columns of every device's table, and what is predicted."""

    columns: tuple[Name, ...] = Field(min_length=1, description="raw input columns, in the order of the model's inputs")
    target: tuple[Name, ...] = Field(
        min_length=1, description="column(s) to predict: one for a classification, one or more for a regression"
    )
    task: Literal["classification", "regression"] = Field(description="what the target means")
    classes: tuple[Name, ...] = Field(
        (), description="classification: all classes, in the order of the model's outputs; regression: none"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        _refuse_repeated("data.columns", self.columns)
        _refuse_repeated("data.target", self.target)
        _refuse_repeated("data.classes", self.classes)
        for name in self.target:
            if name in self.columns:
                raise InputError(f"data.target = {_shown(name)} is also one of data.columns: name it in one of them.")
        if self.task == "regression" and self.classes:
            raise InputError(f"data.classes = {_shown(self.classes)} is not possible for a regression: leave it out.")
        if self.task == "classification" and len(self.target) > 1:
            raise InputError(
                f"data.target = {_shown(self.target)} is not possible for a classification: name a single column."
            )
        if self.task == "classification" and len(self.classes) < 2:
            raise InputError(
                f"data.classes = {_shown(self.classes)} is not possible: name all classes of the classification, 2 or more."
            )
        return self


class FederationFeatures(Section):
    """The feature map, a function of public constants alone: nothing in it may be fitted to private data."""

    map: Literal["none", "rff"] = Field(
        "none", description="rff: random Fourier features; none: the columns themselves"
    )
    dimension: Count = Field(100, description="rff: number of random Fourier features")
    gamma: Annotated[float, Field(gt=0, le=1e30, allow_inf_nan=False)] = Field(
        1.0, description="rff: width of the RBF kernel, on the standardised columns"
    )
    seed: int = Field(
        0, ge=0, le=MAX_SEED, description="public seed of the random features and of the sketch's test matrix"
    )
    mean: tuple[Constant, ...] = Field(
        (), description="public constant to subtract from each column; empty, with scale, for columns as they are"
    )
    scale: tuple[Scale, ...] = Field((), description="public constant to divide each column by, after the mean")
    intercept: bool = Field(True, description="append a constant feature")
    output_scale: Scale = Field(1.0, description="public constant to divide all features by, except the intercept")


class FederationCoding(Section):
    """The coded upload, once before training."""

    coded_samples: Count = Field(1000, description="number of coded samples of each device")
    noise_variance: Variance = Field(
        0.1, description="noise variance that a device adds, unless its client.toml says otherwise"
    )
    label_noise_variance: Variance = Field(
        0.0, description="noise variance on the coded labels, unless the device's client.toml says otherwise"
    )
    clip_norm: NonNegative = Field(
        0.0,
        le=1e15,
        description="clip the norm of every sample to this value before encoding; 0 for no clipping and no worst-case guarantee",
    )
    sums_only: bool = Field(
        False, description="mask uploads in pairs, so that the server learns nothing but their sum (scfl and dp-cfl)"
    )


class FederationIncentive(Section):
    """Rewards for less noise: a contract that every device may accept or refuse."""

    total_reward: NonNegative = Field(0.0, description="total reward paid to all devices; 0 for no contract")
    sensitivity: tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], ...] = Field(
        (), description="the server's guess of each device's privacy sensitivity; empty for 1 + 0.02 (i - 1)"
    )


class FederationTraining(Section):
    """Rounds and clock."""

    rounds: Count = Field(50, description="number of rounds")
    deadline_s: Seconds = Field(30.0, description="duration of a round, seconds; updates that arrive later are lost")
    join_s: Seconds = Field(600.0, description="how long the server waits for devices to join, seconds")
    upload_s: Seconds = Field(600.0, description="how long the server waits for coded uploads, seconds")
    least_devices: CountOrZero = Field(
        0, description="train with at least this many devices once join_s is over; 0 for all, else no training"
    )
    local_steps: Count = Field(5, description="local steps of a device per round")
    first_batch: CountOrZero = Field(0, description="rows asked of a device before its speed is known; 0 for all")
    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        0.25, description="step size in units of 1/L; schemes that tune themselves ignore it"
    )
    server_batch: Count = Field(512, description="coded samples per step of the server")
    evaluate_every: Count = Field(1, description="rounds from one evaluation to the next")
    norm_bound: NonNegative = Field(
        0.0, description="shrink updates of a larger norm to this norm, which biases the model; 0 for no bound"
    )
    most_refusals: CountOrZero = Field(3, description="exclude a device of which more messages than this were refused")
    model_norm_bound: NonNegative = Field(
        0.0, description="project the model to at most this Frobenius norm after every round; 0 for no projection"
    )


class FederationServer(Section):
    """The server; devices need not agree on it."""

    address: Address = Field("127.0.0.1:9092", description="host:port that devices connect to")
    test_file: Text = Field(
        "", description="a .csv, .npz or .parquet table to evaluate on, relative to this file; empty for none"
    )

    @field_validator("test_file")
    @classmethod
    def _is_a_table(cls, path: str) -> str:
        return _table_file(path) if path else path


class FederationConfig(Section):
    """Everything about a federation but its secrets: the same file on the server and on every device.

    Example:
        >>> data = FederationData(columns=("age", "dose"), target=("effect",), task="regression")
        >>> config = FederationConfig(devices=("ward-1", "ward-2"), data=data)
        >>> config.dimension, config.outputs
        (3, 1)
    """

    name: Name = Field("federation", max_length=200, description="name of the federation")
    scheme: str = Field("ccfl", description=f"scheme to train with: {', '.join(SUPPORTED_SCHEMES)}")
    devices: tuple[DeviceName, ...] = Field(min_length=1, description="names of all devices, in order")
    options: dict[str, Any] = Field(
        {}, validate_default=True, description="options of the scheme; omitted ones have their defaults"
    )
    data: FederationData
    features: FederationFeatures = FederationFeatures()
    coding: FederationCoding = FederationCoding()
    incentive: FederationIncentive = FederationIncentive()
    training: FederationTraining = FederationTraining()
    server: FederationServer = FederationServer()

    @field_validator("scheme")
    @classmethod
    def _runs_over_a_network(cls, name: str) -> str:
        if name not in SCHEMES:
            raise InputError(
                f"scheme = {_shown(name)} is not possible: it must be one of {', '.join(SUPPORTED_SCHEMES)}."
                + did_you_mean(name, SUPPORTED_SCHEMES)
            )
        if name not in SUPPORTED_SCHEMES:
            raise ValueError(
                "it needs exact or weighted uploads, which are not offered over a network; choose "
                f"{', '.join(SUPPORTED_SCHEMES[:-1])} or {SUPPORTED_SCHEMES[-1]}"
            )
        return name

    @field_validator("devices")
    @classmethod
    def _are_told_apart(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        # Two folders whose names differ in case alone are one on some file systems.
        _refuse_repeated("devices", [name.lower() for name in names])
        return names

    @field_validator("options")
    @classmethod
    def _resolve_options(cls, given: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        """Check the options and fill in defaults, so that devices agree on all of them."""
        scheme = info.data.get("scheme")
        return given if scheme is None else _resolved_options(scheme, given)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        self._require_one_each("features.mean", self.features.mean, "column", len(self.data.columns))
        self._require_one_each("features.scale", self.features.scale, "column", len(self.data.columns))
        if bool(self.features.mean) != bool(self.features.scale):
            raise InputError(
                f"features.mean = {_shown(self.features.mean)} and features.scale = {_shown(self.features.scale)} belong "
                "together: give both or neither."
            )
        self._require_one_each("incentive.sensitivity", self.incentive.sensitivity, "device", len(self.devices))
        if self.training.least_devices > len(self.devices):
            raise InputError(
                f"training.least_devices = {self.training.least_devices} is not possible: there are {len(self.devices)} "
                "device(s), give at most that many."
            )
        self._require_maskable()
        return self

    @staticmethod
    def _require_one_each(field: str, values: tuple[float, ...], of: str, count: int) -> None:
        if len(values) not in (0, count):
            raise InputError(
                f"{field} has {len(values)} value(s) for {count} {of}(s): give one for each {of}, or none."
            )

    def _require_maskable(self) -> None:
        if not self.coding.sums_only:
            return
        if self.scheme not in MASKABLE_SCHEMES:
            raise InputError(
                f"coding.sums_only = true is not possible with scheme = {_shown(self.scheme)}, whose server needs more than "
                f"the sum of the uploads: choose {' or '.join(MASKABLE_SCHEMES)}, or coding.sums_only = false."
            )
        if self.options.get("upload", "rows") != "rows":
            raise InputError(
                f"coding.sums_only = true is not possible with options.upload = {_shown(self.options['upload'])}, which "
                'cannot be added up: choose options.upload = "rows", or coding.sums_only = false.'
            )
        if len(self.devices) < 2:
            raise InputError(
                f"coding.sums_only = true is not possible with devices = {_shown(self.devices)}, as the sum over one device is "
                "its own data: name 2 or more, or choose coding.sums_only = false."
            )

    @property
    def dimension(self) -> int:
        """Number of features d after the map, the intercept included."""
        mapped = self.features.dimension if self.features.map == "rff" else len(self.data.columns)
        return mapped + int(self.features.intercept)

    @property
    def outputs(self) -> int:
        """Number of outputs o of the model."""
        return len(self.data.classes) if self.data.task == "classification" else len(self.data.target)

    def map(self) -> FeatureMap:
        """Return the feature map: the same numbers on every machine, since it depends on nothing but this file."""
        features = self.features
        drawn = fit_feature_map(
            # Nothing is fitted to these zeros: they carry the number of columns.
            np.zeros((1, len(self.data.columns)), np.float32),
            kind=features.map,
            dimension=features.dimension,
            gamma=features.gamma,
            scaling="none",
            intercept=features.intercept,
            rng=Streams(features.seed).at("features"),
        )
        return replace(
            drawn,
            input_mean=np.array(features.mean, np.float32) if features.mean else None,
            input_scale=np.array(features.scale, np.float32) if features.scale else None,
            output_scale=np.array([features.output_scale], np.float32),
        )

    def prescription(self) -> str:
        """Return a fingerprint of everything that a device must agree on: all that shapes what it computes or releases."""
        return identity(
            (
                *(self.name, self.scheme, self.options, self.devices),
                *(self.data, self.features, self.coding, self.training.local_steps),
            )
        )


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
    features: tuple[Name, ...] = Field(
        (), description="raw input columns that may be used; empty for all that federation.toml names"
    )
    labels: tuple[Name, ...] = Field(
        (), description="target columns that may be used; empty for all that federation.toml names"
    )
    largest_epsilon: NonNegative = Field(
        0.0, description="above 0: refuse an upload whose worst-case epsilon is larger or unknown"
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


def read_federation(path: str | Path) -> FederationConfig:
    """Read ``federation.toml``.

    Raises:
        InputError: naming the file and the first key that is wrong, its value and what is allowed.
    """
    return _read(FederationConfig, Path(path))


def read_client(path: str | Path) -> ClientConfig:
    """Read ``client.toml``.

    Raises:
        InputError: naming the file and the first key that is wrong, its value and what is allowed.
    """
    return _read(ClientConfig, Path(path))


def parse_federation(values: Mapping[str, Any]) -> FederationConfig:
    """Validate the nested values of a federation.

    Raises:
        InputError: naming the first key that is wrong, its value and what is allowed.

    Example:
        >>> parse_federation({"devices": ["a"], "training": {"rounds": 0}, "data": {
        ...     "columns": ["x"], "target": ["y"], "task": "regression"}})
        Traceback (most recent call last):
        codedfl.errors.InputError: training.rounds = 0 is not possible: it must be greater than or equal to 1.
    """
    return _parse(FederationConfig, values)


def parse_client(values: Mapping[str, Any]) -> ClientConfig:
    """Validate the nested values of a device.

    Raises:
        InputError: naming the first key that is wrong, its value and what is allowed.
    """
    return _parse(ClientConfig, values)


def federation_toml(config: FederationConfig) -> str:
    """Write a federation as TOML, with one line of explanation before every field."""
    return _to_toml(config)


def client_toml(config: ClientConfig) -> str:
    """Write the configuration of a device as TOML, with one line of explanation before every field."""
    return _to_toml(config)


def _read(kind: type[_SectionT], path: Path) -> _SectionT:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"{shown(path)} cannot be read ({error.strerror}): give the path of a TOML file.") from error
    except (ValueError, RecursionError) as error:  # not UTF-8, not TOML, too many digits, too deep
        raise InputError(f"{shown(path)} is not valid TOML ({error}): correct it there.") from error
    try:
        return _parse(kind, values)
    except InputError as error:
        raise InputError(f"{shown(path)}: {error}") from error


def _parse(kind: type[_SectionT], values: Mapping[str, Any]) -> _SectionT:
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise InputError(_refusal(kind, error)) from error


def _refusal(kind: type[Section], error: ValidationError) -> str:
    """Turn the first of pydantic's errors into one sentence that names the key, the value and what is allowed."""
    first = error.errors()[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, InputError):  # raised by one of our own checks, already a full sentence
        return str(cause)
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).removeprefix(".")
    key = key if key.isprintable() else json.dumps(key)
    if first["type"] == "extra_forbidden":
        known = list(_section_at(kind, first["loc"]).model_fields)
        return f"{key}: there is no such key, only {listing(known, 30)}.{did_you_mean(str(first['loc'][-1]), known)}"
    if first["type"] == "missing":
        section = _section_at(kind, first["loc"])
        wanted = section.model_fields[str(first["loc"][-1])].description
        return f"{key} is missing: give it ({wanted})." if wanted else f"the section [{key}] is missing: write it."
    wanted = str(cause) if cause else _wanted(first["type"], first["msg"])
    return f"{key} = {_shown(first['input'])} is not possible: {wanted}."


def _wanted(problem: str, message: str) -> str:
    if problem in ("model_type", "dict_type"):
        return "it must be a section with keys and values"
    if problem == "tuple_type":
        return "it must be a list"
    if problem == "bool":
        return "it must be a number or a word, not true or false"
    if problem == "too_short":
        return "it must have at least one item"
    if problem == "string_too_short":
        return "it must not be empty"
    return re.sub("^(Input|String) should ", "it must ", message)


def _section_at(kind: type[Section], location: tuple[int | str, ...]) -> type[Section]:
    """Return the section that holds the key at a location."""
    for part in location[:-1]:
        annotation = kind.model_fields[str(part)].annotation
        if isinstance(annotation, type) and issubclass(annotation, Section):
            kind = annotation
    return kind


def _refuse_repeated(field: str, names: list[str] | tuple[str, ...]) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InputError(f"{field} names {_shown(repeated[0])} more than once: name each once.")


def _resolved_options(scheme: str, given: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in given.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"options.{name} = {value} is not possible: it must be a finite number.")
    if given.get("deadline", "fixed") != "fixed":
        raise InputError(
            f"options.deadline = {_shown(given['deadline'])} is not possible over a network, where a round lasts "
            "training.deadline_s: leave it out."
        )
    try:
        resolved = parse_config({"options": {scheme: dict(given)}}).options.get(scheme, {})
    except InputError as error:  # a file of a federation has one scheme, so its options need not name it
        raise InputError(str(error).replace(f"options.{scheme}.", "options.")) from error
    return resolved | ({"deadline": "fixed"} if "deadline" in resolved else {})


def _option_descriptions(scheme: str) -> dict[str, str]:
    hints = get_type_hints(SCHEMES[scheme], include_extras=True)
    return {name: hint.__metadata__[0].description for name, hint in hints.items() if name != "return"}


def _to_toml(config: Section) -> str:
    fields = type(config).model_fields
    sections = [name for name in fields if isinstance(getattr(config, name), BaseModel | dict)]
    lines = [f"# {_first_line(config)}", ""]
    _write_fields(config, [name for name in fields if name not in sections], lines)
    for name in sections:
        section = getattr(config, name)
        if isinstance(section, Section):
            lines += ["", f"# {_first_line(section)}", f"[{name}]"]
            _write_fields(section, list(type(section).model_fields), lines)
        elif section and isinstance(config, FederationConfig):
            lines += ["", f"# Options of {config.scheme}.", f"[{name}]"]
            descriptions = _option_descriptions(config.scheme)
            for option, value in section.items():
                lines += [f"# {descriptions[option]}", f"{option} = {_toml(value)}"]
    return "\n".join(lines) + "\n"


def _first_line(section: Section) -> str:
    return (type(section).__doc__ or "").splitlines()[0]


def _write_fields(section: Section, names: list[str], lines: list[str]) -> None:
    plain = section.model_dump(mode="json", include=set(names))
    for name in names:
        value = plain[name]
        lines.append(f"# {type(section).model_fields[name].description}")
        lines.append(f"# {name} =" if value is None else f"{name} = {_toml(value)}")


def _toml(value: object) -> str:
    """Write a value as JSON, which is TOML except for one character that TOML wants escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _shown(value: object) -> str:
    try:
        text = json.dumps(value, default=str)
    except (TypeError, ValueError, RecursionError):  # odd keys, thousands of digits, nested without end
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."
