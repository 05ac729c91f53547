"""What a whole federation agrees on: ``federation.toml``, the same file on the server and on every device."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, ValidationInfo, field_validator, model_validator

from codedfl._messages import did_you_mean, shown_json
from codedfl.config import Count, CountOrZero, NonNegative, Positive, Section, Text, Variance, parse_config
from codedfl.data import FeatureMap, fit_feature_map, precision_for
from codedfl.errors import InputError
from codedfl.federation._client_config import Address, Constant, DeviceName, Name, Scale, Seconds, table_file
from codedfl.federation._private_rules import PRIVATE_SCHEMES, SUPPORTED_SCHEMES, require_maskable, require_private
from codedfl.identity import identity
from codedfl.privacy import PrivacyTarget
from codedfl.schemes import SCHEMES, make_scheme, scheme_names
from codedfl.streams import MAX_SEED, Streams
from codedfl.training import Scheme
from codedfl.uploads import Terms

PROTOCOL = 2
"""Version of what devices and server say to each other; both must have the same."""


class FederationData(Section):
    """The columns of every device's table, and what is predicted."""

    identity_name: ClassVar[str] = "codedfl.flower._federation_config.FederationData"

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
                raise InputError(
                    f"data.target = {shown_json(name)} is also one of data.columns: name it in one of them."
                )
        if self.task == "regression" and self.classes:
            raise InputError(
                f"data.classes = {shown_json(self.classes)} is not possible for a regression: leave it out."
            )
        if self.task == "classification" and len(self.target) > 1:
            raise InputError(
                f"data.target = {shown_json(self.target)} is not possible for a classification: name a single column."
            )
        if self.task == "classification" and len(self.classes) < 2:
            raise InputError(
                f"data.classes = {shown_json(self.classes)} is not possible: name all classes of the classification, 2 or more."
            )
        return self


class FederationFeatures(Section):
    """The feature map, a function of public constants alone: nothing in it may be fitted to private data."""

    identity_name: ClassVar[str] = "codedfl.flower._federation_config.FederationFeatures"

    map: Literal["none", "rff"] = Field(
        "none", description="rff: random Fourier features; none: the columns themselves"
    )
    dimension: Count = Field(100, description="rff: number of random Fourier features")
    gamma: Positive = Field(1.0, le=1e30, description="rff: width of the RBF kernel, on the standardised columns")
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
        False, description="mask coded rows in pairs, so that the server learns nothing but their sum (scfl and dp-cfl)"
    )


class FederationPrivacy(Section):
    """One guarantee for everything that a device sends, updates included: for private schemes, which set their noise by it."""

    epsilon: NonNegative = Field(
        0.0,
        description=f"{', '.join(PRIVATE_SCHEMES)}: epsilon of all that a device sends, against a server that sees each message",
    )
    delta: float = Field(1e-5, gt=0, lt=1, description="private schemes: delta of that guarantee")
    label_bound: NonNegative = Field(
        0.0,
        le=1e15,
        description="private schemes, regression: clip the norm of a sample's targets to this, a bound known without the data",
    )
    label_center: float = Field(
        0.0,
        ge=-1e15,
        le=1e15,
        allow_inf_nan=False,
        description="private schemes, regression: a typical target, known without the data, subtracted before clipping",
    )


class FederationIncentive(Section):
    """Rewards for less noise: a contract that every device may accept or refuse."""

    total_reward: NonNegative = Field(0.0, description="total reward paid to all devices; 0 for no contract")
    sensitivity: tuple[Positive, ...] = Field(
        (), description="the server's guess of each device's privacy sensitivity; empty for 1 + 0.02 (i - 1)"
    )


class FederationTraining(Section):
    """Rounds and clock."""

    rounds: Count = Field(50, description="number of rounds; private schemes have their own, or options.rounds")
    deadline_s: Seconds = Field(30.0, description="duration of a round, seconds; updates that arrive later are lost")
    join_s: Seconds = Field(600.0, description="how long the server waits for devices to join, seconds")
    upload_s: Seconds = Field(600.0, description="how long the server waits for coded uploads, seconds")
    least_devices: CountOrZero = Field(
        0, description="train with at least this many devices once join_s is over; 0 for all, else no training"
    )
    local_steps: Count = Field(5, description="local steps of a device per round")
    first_batch: CountOrZero = Field(0, description="rows asked of a device before its speed is known; 0 for all")
    learning_rate: Positive = Field(
        0.25, description="step size in units of 1/L; schemes that tune themselves ignore it"
    )
    server_batch: Count = Field(512, description="coded samples per step of the server")
    evaluate_every: Count = Field(1, description="rounds from one evaluation to the next")
    norm_bound: NonNegative = Field(
        0.0,
        description="shrink an update to this many times the median norm (per row) of the other devices' last updates, which "
        "biases the model; 0 for no bound",
    )
    most_refusals: Count = Field(3, description="exclude a device after this many refused messages in a row")
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
        return table_file(path) if path else path


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
    privacy: FederationPrivacy = FederationPrivacy()
    incentive: FederationIncentive = FederationIncentive()
    training: FederationTraining = FederationTraining()
    server: FederationServer = FederationServer()

    @field_validator("scheme")
    @classmethod
    def _runs_over_a_network(cls, name: str) -> str:
        if name not in scheme_names():
            raise InputError(
                f"scheme = {shown_json(name)} is not possible: it must be one of {', '.join(SUPPORTED_SCHEMES)}."
                + did_you_mean(name, SUPPORTED_SCHEMES)
            )
        if name not in SUPPORTED_SCHEMES and (name in SCHEMES or not make_scheme(name).over_network):
            raise ValueError(
                "what its devices send is not offered over a network; choose "
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
                f"features.mean = {shown_json(self.features.mean)} and features.scale = {shown_json(self.features.scale)} belong "
                "together: give both or neither."
            )
        self._require_one_each("incentive.sensitivity", self.incentive.sensitivity, "device", len(self.devices))
        if self.training.least_devices > len(self.devices):
            raise InputError(
                f"training.least_devices = {self.training.least_devices} is not possible: there are {len(self.devices)} "
                "device(s), give at most that many."
            )
        require_maskable(self)
        require_private(self)
        return self

    @staticmethod
    def _require_one_each(field: str, values: tuple[float, ...], of: str, count: int) -> None:
        if len(values) not in (0, count):
            raise InputError(
                f"{field} has {len(values)} value(s) for {count} {of}(s): give one for each {of}, or none."
            )

    @property
    def algorithm(self) -> Scheme:
        """The scheme with its options."""
        return make_scheme(self.scheme, self.options)

    @property
    def clip_norm(self) -> float | None:
        """The norm ``B`` to which samples are clipped; None for no clipping.

        Random Fourier features have a mean square norm of 1 whatever the data, so a private scheme needs no other bound for them.
        """
        if self.coding.clip_norm > 0:
            return self.coding.clip_norm
        known = self.features.map == "rff" and self.features.output_scale == 1
        return math.sqrt(1.0 + self.features.intercept) if known and self.algorithm.private else None

    @property
    def label_norm(self) -> float | None:
        """The largest norm ``B_Y`` of a sample's labels: 1 for classes, the bound that a regression was given or None."""
        return 1.0 if self.data.task == "classification" else self.privacy.label_bound or None

    @property
    def target(self) -> PrivacyTarget | None:
        """What everything that a device sends is to keep; None if each device protects its own upload."""
        asked = self.privacy
        if asked.epsilon == 0:
            return None
        return PrivacyTarget(asked.epsilon, asked.delta, label_bound=self.label_norm or 1.0)

    @property
    def terms(self) -> Terms:
        """What everybody knows of an upload."""
        return Terms(
            dimension=self.dimension,
            outputs=self.outputs,
            coded_samples=self.coding.coded_samples,
            clip_norm=self.clip_norm,
            label_bound=self.label_norm,
            public=Streams(self.features.seed),
            target=self.target,
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
        precision = precision_for(features.mean, features.scale)
        return replace(
            drawn,
            input_mean=np.array(features.mean, precision) if features.mean else None,
            input_scale=np.array(features.scale, precision) if features.scale else None,
            output_scale=np.array([features.output_scale], np.float32),
        )

    def prescription(self) -> str:
        """Return a fingerprint of everything that a device must agree on: all that shapes what it computes or releases."""
        agreed = {"name", "scheme", "options", "devices", "data", "features", "coding", "privacy"}
        # Plain values, so that the fingerprint does not depend on how classes are called in a version of the code.
        values = self.model_dump(mode="json", include=agreed)
        return identity((PROTOCOL, json.dumps(values, sort_keys=True), self.training.local_steps))


def _refuse_repeated(field: str, names: list[str] | tuple[str, ...]) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InputError(f"{field} names {shown_json(repeated[0])} more than once: name each once.")


def _resolved_options(scheme: str, given: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in given.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"options.{name} = {value} is not possible: it must be a finite number.")
    if given.get("deadline", "fixed") != "fixed":
        raise InputError(
            f"options.deadline = {shown_json(given['deadline'])} is not possible over a network, where a round lasts "
            "training.deadline_s: leave it out."
        )
    try:
        resolved = parse_config({"options": {scheme: dict(given)}}).options.get(scheme, {})
    except InputError as error:  # a file of a federation has one scheme, so its options need not name it
        raise InputError(str(error).replace(f"options.{scheme}.", "options.")) from error
    decided = make_scheme(scheme, resolved).network_options()
    return {**resolved, **decided, **({"deadline": "fixed"} if "deadline" in resolved else {})}
