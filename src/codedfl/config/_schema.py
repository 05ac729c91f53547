"""The configuration of a comparison: every field with its default, its range and one line of explanation."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from codedfl._messages import no_such_key
from codedfl.config._options import MAX_COUNT, check_bounds, check_categories, check_options, option_defaults
from codedfl.errors import InputError
from codedfl.identity import NOT_IDENTITY
from codedfl.schemes import DEFAULT_SCHEMES, PRIVATE_SCHEMES, SCHEMES, make_scheme, scheme_names
from codedfl.streams import MAX_SEED


def _writable(text: str) -> str:
    if re.search("[\0\ud800-\udfff]", text):  # the latter stand for bytes that are not UTF-8
        raise ValueError("it must be UTF-8 text without NUL characters")
    return text


def _one_is_a_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
CountOrZero = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Text = Annotated[str, AfterValidator(_writable)]
Texts = Annotated[tuple[Text, ...], BeforeValidator(_one_is_a_list)]
"""A list of strings; a single one may be written without brackets."""
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Variance = Annotated[float, Field(ge=0, le=1e30, allow_inf_nan=False)]
"""Bounded so that draws and their squares stay within single precision."""
Finite = Annotated[float, Field(allow_inf_nan=False)]
Auto = Literal["auto"]


class Section(BaseModel):
    """A section of the configuration: unknown keys are refused, and values are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _truth_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse true and false in place of a number, which Python would take for 1 and 0."""
        annotation = cls.model_fields[str(info.field_name)].annotation
        items = value if isinstance(value, list | tuple) else [value]
        if any(isinstance(item, bool) for item in items) and bool not in (annotation, *get_args(annotation)):
            raise PydanticCustomError("bool", "true or false where it is not possible")
        return value

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Yield the fields that differ from their defaults, for ``repr``; `to_toml` writes all."""
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if field.is_required() or value != field.get_default(call_default_factory=True):
                yield name, value


class DataConfig(Section):
    """The data, and its partition over devices."""

    dataset: Text = Field(
        "digits",
        description="a named dataset (`codedfl datasets` lists them), a .npz, .csv or .parquet file, or a folder of .npy files",
    )
    data_dir: Text = Field(
        "",
        description="folder that holds the named datasets; empty for CODEDFL_DATA, else ./data",
        json_schema_extra=NOT_IDENTITY,
    )
    target: Texts = Field((), description="own files: target column(s), or the name of the target array in an .npz")
    device_column: Text = Field("", description="own files: column that names the device of each row")
    drop: Texts = Field((), description="own files: columns to leave out")
    bounds: Annotated[dict[Text, tuple[Finite | Text, Finite | Text]], BeforeValidator(check_bounds)] = Field(
        {},
        description="own tables: columns of numbers or dates to clip to [low, high] and scale to [-1, 1]; bounds known without"
        " the data make sure that nothing about the column is learnt from it",
    )
    categories: Annotated[dict[Text, tuple[Text, ...]], BeforeValidator(check_categories)] = Field(
        {},
        description="own tables: columns of categories, with a list of them known without the data, or [] to learn them from it",
    )
    task: Literal["auto", "classification", "regression"] = Field(
        "auto", description="own files: auto infers it from the target (numbers: regression, words: classification)"
    )
    test_file: Text = Field("", description="own files: a second file with test data")
    test_fraction: float = Field(0.3, gt=0, lt=1, description="share of rows to test on, if the data has no test set")
    partition: Literal["auto", "shards", "dirichlet", "iid", "column"] = Field(
        "auto",
        description="shards sorts by label as the paper does; auto is column if data.device_column is set, else shards",
    )
    dirichlet_alpha: Positive = Field(
        0.5, description="concentration of the dirichlet partition; smaller is more uneven"
    )
    devices: Count = Field(20, description="number of devices N (a partition by column sets it itself)")

    @model_validator(mode="after")
    def _one_kind(self) -> DataConfig:
        for name in self.bounds:
            if name in self.categories:
                raise InputError(
                    f"the column {name!r} is in data.bounds and in data.categories: name it in one of them."
                )
        return self


class FeaturesConfig(Section):
    """Feature map from raw inputs to the linear model."""

    map: Literal["auto", "rff", "none"] = Field(
        "auto",
        description="rff: random Fourier features; auto is rff for images, and none for ready-made features and own files",
    )
    dimension: Count = Field(100, description="number d of random Fourier features")
    gamma: Positive | Literal["scale"] = Field(
        "scale", description="width of the RBF kernel; scale is 1 / (columns * variance)"
    )
    standardize: bool | Auto = Field(
        "auto", description="centre and scale raw columns first; auto does so for own files"
    )
    scaling: Literal["auto", "none", "global", "column"] = Field(
        "auto",
        description="bring every entry within [-1, 1] by one scale overall or per column; auto is none for rff, else column",
    )
    intercept: bool | Auto = Field("auto", description="add a constant feature; auto does so for own files without rff")


class FleetConfig(Section):
    """Devices and channel (Sec. II-B, VI-A)."""

    file: Text = Field(
        "",
        description="CSV or Parquet file that describes the devices, instead of a draw: mac_rate and transmit_power_dbm, or"
        " arrival_probability, or mean_s and p95_s, or a recording of round, device, seconds; or a fleet of a plug-in",
    )
    trace: Text = Field(
        "",
        description="file with the arrivals of an earlier run, to replay them instead of drawing new ones; or a recording of"
        " round, device, seconds",
    )
    mac_rate: Positive = Field(1_536_000.0, description="MAC per second of each device, before its factor")
    mac_rate_factor: tuple[Positive, Positive] = Field((0.8, 1.0), description="range of that factor, drawn uniformly")
    transmit_power_dbm: tuple[Finite, Finite] = Field(
        (-5.0, 25.0), description="range of transmit powers, drawn uniformly; 15 to 25 in the paper"
    )
    server_mac_rate: Positive = Field(15_360_000.0, description="MAC per second of the server")
    straggler_ratio: float = Field(
        0.3,
        ge=0,
        lt=1,
        description="set the bandwidth so that this share of devices misses the deadline on average; 0 uses bandwidth_hz",
    )
    bandwidth_hz: Positive = Field(180_000.0, description="uplink bandwidth B per device")
    noise_power_dbm: Finite = Field(-70.0, description="receiver noise N0")
    mean_gain: Positive = Field(1e-8, description="mean channel gain (Rayleigh fading)")
    download_rate_bps: Positive = Field(1e6, description="downlink rate")


class CodingConfig(Section):
    """The coded upload (Sec. III-A)."""

    coded_samples: Count = Field(1000, description="number of coded samples c per device")
    noise_variance: Variance | tuple[Variance, ...] = Field(
        0.1, description="noise variance sigma_i^2, one number for all devices or one per device"
    )
    label_noise_variance: Variance | tuple[Variance, ...] = Field(
        0.0, description="noise variance on the coded labels; none in the paper"
    )
    encoder: Literal["auto", "direct", "gram"] = Field(
        "auto",
        description="direct draws the projection as a device does; gram draws from the same law; auto picks the cheaper one",
    )
    draw: CountOrZero = Field(
        0,
        description="index of the draw of the coded data: another index changes the coded data alone",
    )
    clip_norm: Annotated[NonNegative, Field(le=1e15)] | Auto = Field(
        0.0,
        description="clip the norm of every sample to this value before encoding; 0 for no clipping and no worst-case guarantee;"
        " auto, and 0 with privacy.epsilon, is 1 for random Fourier features, else a quantile of the norms, found privately",
    )


class IncentiveConfig(Section):
    """Rewards for less noise (Sec. V); sets the noise variances instead of coding.noise_variance."""

    mechanism: Literal["none", "contract", "stackelberg"] = Field(
        "none",
        description="contract: one item per device; stackelberg: one total reward, shared in proportion to privacy given up",
    )
    total_reward: Positive = Field(100.0, description="total reward paid to all devices")
    sensitivity: Literal["table", "printed"] | tuple[Positive, ...] = Field(
        "table", description="privacy sensitivity mu_i of each device; table is 1 + 0.02 (i - 1), printed 1 + 0.02 i"
    )


class PrivacyConfig(Section):
    """Privacy guarantees (Sec. IV-B)."""

    epsilon: NonNegative = Field(
        0.0,
        le=1e4,
        description="epsilon that everything a device sends is to keep; sets the noise of every scheme; 0 for no such demand",
    )
    delta: float = Field(1e-5, gt=0, lt=1, description="delta of the worst-case (epsilon, delta) guarantees")
    threat_model: Literal["each-message", "sums-only"] = Field(
        "each-message", description="whether the server sees every message of a device, or only sums over devices"
    )
    label_bound: NonNegative = Field(
        0.0,
        le=1e15,
        description="regression: clip the norm of a sample's targets to this value, a bound known without the data; 0 for none",
    )
    label_center: float = Field(
        0.0,
        ge=-1e15,
        le=1e15,
        allow_inf_nan=False,
        description="regression: a typical target, known without the data: subtracted before clipping, and added to predictions",
    )


class TrainingConfig(Section):
    """Rounds and clock (Sec. III-B to III-D)."""

    local_steps: Count = Field(5, description="local SGD steps tau per round")
    deadline_s: Positive = Field(1.0, description="duration T of a round, seconds")
    total_time_s: Positive = Field(400.0, le=MAX_COUNT, description="simulated training time of every scheme, seconds")
    rounds: CountOrZero = Field(0, description="rounds of every scheme; 0 for as many as fit in total_time_s")
    cohort: CountOrZero = Field(0, description="devices asked per round, drawn at random; 0 for all")
    server_batch: CountOrZero = Field(
        0, description="coded samples b_s per server step; 0 for as many as the server has time for"
    )
    evaluations: Count = Field(100, description="approximate number of evaluations per run")
    evaluation_samples: CountOrZero = Field(
        0, description="score models on at most this many random test rows; 0 for all"
    )
    initial_std: NonNegative = Field(
        0.0, le=1e6, description="standard deviation of the entries of the initial model; 0 for zeros"
    )
    model_norm_bound: NonNegative = Field(
        0.0, description="project the model to at most this Frobenius norm after every round; 0 for no projection"
    )
    workers: CountOrZero = Field(
        0,
        description="number of threads, which never changes a result; 0 for one per core on large problems",
        json_schema_extra=NOT_IDENTITY,
    )


class LearningRateConfig(Section):
    """Step sizes eta_k, in units of 1 / L with L the largest eigenvalue of X^T X."""

    scale: Positive | Literal["grid"] = Field(
        "grid",
        description="eta_0 * L; grid picks the best for each scheme from the grid below, on held-out training data",
    )
    grid: tuple[Positive, ...] = Field(
        (0.125, 0.25, 0.5, 1.0, 2.0), min_length=1, description="candidates for eta_0 * L"
    )
    only_stable: bool = Field(
        True,
        description="skip candidates for which the mean error would grow by a factor of 100 or more within a run",
    )
    tuning_share: float = Field(0.5, gt=0, le=1, description="length of a tuning run, as a share of the whole run")
    validation_fraction: float = Field(
        0.15, gt=0, lt=1, description="share of training rows held out for the choice from the grid"
    )
    decay_rounds: NonNegative = Field(0.0, description="beta in eta_0 / (1 + k / beta); 0 for a constant step size")


class Config(Section):
    """Everything that determines a comparison and its numbers.

    Example:
        >>> Config().training.local_steps
        5
        >>> Config(seed=1, coding={"coded_samples": 50})
        Config(seed=1, coding=CodingConfig(coded_samples=50))
        >>> Config(seed=1, training={"local_steps": 3}).training.local_steps
        3
    """

    seed: int = Field(0, ge=0, le=MAX_SEED, description="seed of all randomness")
    schemes: Texts = Field(DEFAULT_SCHEMES, min_length=1, description="schemes to compare")
    data: DataConfig = DataConfig()
    features: FeaturesConfig = FeaturesConfig()
    fleet: FleetConfig = FleetConfig()
    coding: CodingConfig = CodingConfig()
    privacy: PrivacyConfig = PrivacyConfig()
    incentive: IncentiveConfig = IncentiveConfig()
    training: TrainingConfig = TrainingConfig()
    learning_rate: LearningRateConfig = LearningRateConfig()
    options: dict[str, dict[str, Any]] = Field(
        {}, validate_default=True, description="options of individual schemes; omitted ones have their defaults"
    )

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Yield the fields that differ from their defaults, and of the options those that do."""
        yield from ((name, value) for name, value in super().__repr_args__() if name != "options")
        options = {
            scheme: {name: value for name, value in own.items() if value != option_defaults(scheme)[name]}
            for scheme, own in self.options.items()
        }
        if changed := {scheme: own for scheme, own in options.items() if own}:
            yield "options", changed

    @model_validator(mode="before")
    @classmethod
    def _private_schemes_by_default(cls, values: Any) -> Any:
        """Compare private schemes, if there is an epsilon to keep and no schemes are named."""
        privacy = values.get("privacy") if isinstance(values, dict) else None
        epsilon = privacy.get("epsilon") if isinstance(privacy, dict) else getattr(privacy, "epsilon", 0)
        if isinstance(values, dict) and "schemes" not in values and isinstance(epsilon, int | float) and epsilon > 0:
            return {**values, "schemes": PRIVATE_SCHEMES}
        return values

    @field_validator("schemes")
    @classmethod
    def _schemes_exist(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            make_scheme(name)
            if names.count(name) > 1:
                raise InputError(
                    f"schemes = {json.dumps(names)} is not possible: {name} is named twice, name each once."
                )
        return names

    @field_validator("options")
    @classmethod
    def _resolve_options(cls, options: dict[str, dict[str, Any]], info: ValidationInfo) -> dict[str, dict[str, Any]]:
        """Check the options of each scheme and fill in defaults, so that a configuration holds all that determines a run."""
        for scheme in options:
            if scheme not in SCHEMES and scheme not in scheme_names():
                raise InputError(no_such_key("options.", scheme, scheme_names()))
            check_options(scheme, options[scheme])
        of_plugins = (*info.data.get("schemes", ()), *options)
        known = dict.fromkeys((*SCHEMES, *of_plugins))
        resolved = {scheme: option_defaults(scheme) | options.get(scheme, {}) for scheme in known}
        return {scheme: own for scheme, own in resolved.items() if own}
