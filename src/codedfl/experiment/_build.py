"""From a configuration to data, fleet, channel and code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from codedfl.config import Config, IncentiveConfig
from codedfl.data import (
    Dataset,
    FeatureMap,
    Federation,
    Preprocessing,
    build_federation,
    fit_feature_map,
    is_federation_folder,
    is_file_name,
    is_plugin_dataset,
    load_dataset,
    open_federation,
    partition,
)
from codedfl.errors import InputError
from codedfl.experiment._fleet import build_channel, build_fleet, read_traces
from codedfl.experiment._target import clip_labels, label_bound_of, privacy_target
from codedfl.fleet import TraceArrivals, Workload
from codedfl.identity import identity
from codedfl.incentive import (
    Contract,
    DeviceTraits,
    StackelbergOutcome,
    contract_for_reward,
    printed_sensitivities,
    stackelberg_for_reward,
    table_sensitivities,
)
from codedfl.parallel import Workers, available_cores
from codedfl.setting import Code, Setting
from codedfl.streams import Streams
from codedfl.typing import BoolArray, FloatArray

LARGE_DIMENSION = 1000
"""Number of features from which on threads pay off in the round loop."""

FEATURE_DATASETS = ("cifar10-vgg",)
"""Named datasets whose columns are already features."""


@dataclass(frozen=True)
class Experiment:
    """A configuration with its data loaded, ready to train.

    Args:
        config: the configuration.
        setting: data, fleet, channel and code.
        feature_map: from raw inputs to features, kept so that models can be used later.
        traces: recorded arrivals to replay, by scheme; other schemes use the channel model.
        preprocessing: from the columns of a table to raw inputs; None for data that was numeric from the start.
        remarks: what the user should know about the data, one sentence each.
    """

    config: Config
    setting: Setting
    feature_map: FeatureMap
    traces: Mapping[str, TraceArrivals] = field(default_factory=dict)
    preprocessing: Preprocessing | None = None
    remarks: tuple[str, ...] = ()

    def __repr__(self) -> str:
        schemes = ", ".join(self.config.schemes)
        return f"Experiment({self.config.data.dataset!r}, schemes {schemes}, {self.setting.federation!r})"

    def with_code_of(self, config: Config) -> Experiment:
        """Return the experiment of another configuration in the same family (see `family_key`): only its code is rebuilt."""
        federation, streams = self.setting.federation, self.setting.streams
        target, clip_norm = privacy_target(config, federation, self.feature_map, streams)
        setting = replace(
            self.setting,
            code=_code(config, federation, clip_norm),
            server_batch=config.training.server_batch or None,
            privacy=target,
        )
        return replace(self, config=config, setting=setting)


def family_key(config: Config) -> str:
    """Return an identity of all fields that data, fleet, channel and clock depend on.

    Every field of a configuration counts except those blanked out here, so a new field separates families until it is
    listed.
    """
    default = Config()
    of_a_run = ("rounds", "total_time_s", "server_batch", "evaluations", "initial_std", "model_norm_bound")
    training = config.training.model_copy(update={name: getattr(default.training, name) for name in of_a_run})
    of_the_data = ("label_bound", "label_center")
    privacy = default.privacy.model_copy(update={name: getattr(config.privacy, name) for name in of_the_data})
    blanked = ("schemes", "coding", "incentive", "learning_rate", "options")
    of_a_family = {"training": training, "privacy": privacy}
    shared = config.model_copy(update={name: getattr(default, name) for name in blanked} | of_a_family)
    return identity((shared, config.training.workers, config.data.data_dir))


def build_experiment(config: Config, *, like: Experiment | None = None, dataset: Dataset | None = None) -> Experiment:
    """Load the data and build the setting of a configuration.

    Args:
        config: the configuration.
        like: an experiment with the same ``seed``, ``data``, ``features``, ``privacy.label_bound`` and
            ``privacy.label_center``, whose rows are reused.
        dataset: raw data to use in place of ``data.dataset``.

    Raises:
        InputError: if data or fleet cannot be read or do not fit together.

    Example:
        >>> setting = build_experiment(Config()).setting
        >>> setting.federation.devices, setting.federation.dimension
        (20, 100)
    """
    streams = Streams(config.seed)
    preprocessing: Preprocessing | None = None
    remarks: tuple[str, ...] = ()
    if like is not None:
        federation, feature_map = like.setting.federation, like.feature_map
        preprocessing, remarks = like.preprocessing, like.remarks
    elif dataset is None and is_federation_folder(config.data.dataset):
        federation, feature_map = _open(config)
    else:
        dataset = dataset or _require_test_rows(config, _load(config, streams))
        federation, feature_map = _build(config, streams, dataset)
        preprocessing, remarks = dataset.preprocessing, dataset.remarks
    if like is None:
        federation = clip_labels(config, federation)
    target, clip_norm = privacy_target(config, federation, feature_map, streams)
    fleet = build_fleet(config, federation.device_names, streams)
    large = federation.dimension >= LARGE_DIMENSION
    setting = Setting(
        federation=federation,
        fleet=fleet,
        channel=build_channel(
            config,
            fleet,
            Workload.for_linear_model(federation.dimension, federation.outputs, config.training.local_steps),
        ),
        code=_code(config, federation, clip_norm),
        local_steps=config.training.local_steps,
        deadline_s=config.training.deadline_s,
        server_mac_rate=config.fleet.server_mac_rate,
        server_batch=config.training.server_batch or None,
        streams=streams,
        cohort=config.training.cohort or None,
        privacy=target,
        workers=Workers(config.training.workers or (available_cores() if large else 1)),
    )
    traces = read_traces(config, federation.device_names)
    return Experiment(config, setting, feature_map, traces, preprocessing, remarks)


def _open(config: Config) -> tuple[Federation, FeatureMap]:
    """Map the federation of a folder, whose rows are already features assigned to devices."""
    data, features = config.data, config.features
    # For each option: the values that have no effect here, and what decides instead.
    options: tuple[tuple[str, object, tuple[object, ...], str], ...] = (
        ("data.target", data.target, ((),), "its labels.npy holds the targets"),
        ("data.device_column", data.device_column, ("",), "its offsets.npy says which device has which rows"),
        ("data.drop", data.drop, ((),), "all columns of its features.npy are used"),
        ("data.bounds", data.bounds, ({},), "its features.npy is used as it is"),
        ("data.categories", data.categories, ({},), "its features.npy is used as it is"),
        ("data.test_file", data.test_file, ("",), "its test_features.npy holds the test rows"),
        ("data.partition", data.partition, ("auto",), "its offsets.npy says which device has which rows"),
        ("features.map", features.map, ("auto", "none"), "its features.npy is used as it is"),
        ("features.scaling", features.scaling, ("auto", "none"), "its features.npy is used as it is"),
        ("features.standardize", features.standardize, ("auto", False), "its features.npy is used as it is"),
        ("features.intercept", features.intercept, ("auto", False), "its features.npy is used as it is"),
    )
    for name, value, possible, reason in options:
        if value not in possible:
            shown = list(value) if isinstance(value, tuple) else value
            raise InputError(
                f"{name} = {shown!r} does not apply to the folder data.dataset = {data.dataset!r}, as {reason}: leave it out."
            )
    federation = open_federation(data.dataset)
    if data.task not in ("auto", federation.task):
        raise InputError(
            f"data.task = {data.task!r} contradicts the {federation.task} in {data.dataset!r}: leave it out, or correct its "
            "federation.json."
        )
    one = np.ones(1, np.float32)
    return federation, FeatureMap(None, None, None, None, one, False, federation.dimension)


def _build(config: Config, streams: Streams, dataset: Dataset) -> tuple[Federation, FeatureMap]:
    """Fit a feature map to raw data, and spread it over devices."""
    feature_map = _fit(config, dataset, streams)
    kind = config.data.partition
    if kind == "auto":
        kind = "shards" if dataset.devices is None else "column"
    parts = partition(dataset, kind, config.data.devices, config.data.dirichlet_alpha, streams.at("partition"))
    return build_federation(dataset, feature_map, parts), feature_map


def _load(config: Config, streams: Streams) -> Dataset:
    data = config.data
    return load_dataset(
        data.dataset,
        data_dir=Path(data.data_dir) if data.data_dir else None,
        target=data.target,
        device_column=data.device_column,
        drop=data.drop,
        bounds=data.bounds,
        categories=data.categories,
        task=data.task,
        test_fraction=data.test_fraction,
        test_file=data.test_file,
        rng=streams.at("split"),
    )


def _require_test_rows(config: Config, dataset: Dataset) -> Dataset:
    """Refuse a regression whose score, a share of the variance of the test rows, is not defined."""
    if dataset.task == "regression" and len(dataset.test_targets) < 2:
        raise InputError(
            f"data.dataset = {config.data.dataset!r} has a single test row, and the score of a regression needs 2 or more: give"
            " more rows, a larger data.test_fraction or another data.test_file."
        )
    return dataset


def _fit(config: Config, dataset: Dataset, streams: Streams) -> FeatureMap:
    features = config.features
    own_file = is_file_name(config.data.dataset) or is_plugin_dataset(config.data.dataset)
    kind = features.map
    if kind == "auto":
        kind = "none" if own_file or dataset.name in FEATURE_DATASETS else "rff"
    # With bounds and categories for all columns, entries are within [-1, 1] and nothing needs to be learnt from the data.
    all_given = dataset.preprocessing is not None and not dataset.preprocessing.learnt
    return fit_feature_map(
        dataset.features,
        kind=kind,
        dimension=features.dimension,
        gamma=features.gamma,
        standardize=own_file and not all_given if features.standardize == "auto" else features.standardize,
        scaling="none" if features.scaling == "auto" and all_given else features.scaling,
        intercept=own_file and kind == "none" if features.intercept == "auto" else features.intercept,
        rng=streams.at("features"),
    )


def _code(config: Config, federation: Federation, clip_norm: float | None) -> Code:
    coding, devices = config.coding, federation.devices
    noise = _per_device("coding.noise_variance", coding.noise_variance, devices)
    participants: BoolArray | None = None
    if config.incentive.mechanism != "none":
        noise, participants = noise_from_incentive(config.incentive, devices, coding.coded_samples)
    return Code(
        coding.coded_samples,
        noise,
        _per_device("coding.label_noise_variance", coding.label_noise_variance, devices),
        coding.encoder,
        clip_norm,
        participants,
        coding.draw,
        label_bound_of(config, federation),
    )


def noise_from_incentive(
    incentive: IncentiveConfig, devices: int, coded_samples: int
) -> tuple[FloatArray, BoolArray | None]:
    """Return the noise variances that result from a mechanism, and the devices that upload; None for all."""
    outcome = incentive_outcome(incentive, devices, coded_samples)
    if outcome.participants is None:
        return outcome.noise_variance, None
    return np.where(outcome.participants, outcome.noise_variance, 0.0), outcome.participants


def incentive_outcome(incentive: IncentiveConfig, devices: int, coded_samples: int) -> Contract | StackelbergOutcome:
    """Return the items of all devices under a mechanism.

    Budgets use the bound that holds for all data (``h = 0``).
    """
    if incentive.sensitivity == "table":
        sensitivity = table_sensitivities(devices)
    elif incentive.sensitivity == "printed":
        sensitivity = printed_sensitivities(devices)
    else:
        sensitivity = _per_device("incentive.sensitivity", incentive.sensitivity, devices)
    solve = contract_for_reward if incentive.mechanism == "contract" else stackelberg_for_reward
    return solve(DeviceTraits(sensitivity), incentive.total_reward, coded_samples)


def _per_device(name: str, value: float | tuple[float, ...], devices: int) -> FloatArray:
    if isinstance(value, tuple):
        if len(value) != devices:
            raise InputError(
                f"{name} has {len(value)} value(s) for {devices} device(s): give one, or one for each device."
            )
        return np.array(value)
    return np.full(devices, float(value))
