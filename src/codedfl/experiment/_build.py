"""From a configuration to data, fleet, channel and code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from codedfl.config import Config, IncentiveConfig
from codedfl.data import (
    Dataset,
    FeatureMap,
    Federation,
    build_federation,
    fit_feature_map,
    is_federation_folder,
    is_file_name,
    load_dataset,
    open_federation,
    partition,
)
from codedfl.errors import InputError
from codedfl.experiment._target import clip_labels, label_bound_of, privacy_target
from codedfl.fleet import (
    Channel,
    Fleet,
    RoundTiming,
    TraceArrivals,
    Workload,
    bandwidth_for_straggler_ratio,
    draw_fleet,
    read_fleet,
    read_trace,
)
from codedfl.identity import identity
from codedfl.incentive import (
    DeviceTraits,
    contract_for_reward,
    printed_sensitivities,
    stackelberg_for_reward,
    table_sensitivities,
)
from codedfl.parallel import Workers, available_cores
from codedfl.schemes import SCHEMES
from codedfl.streams import Streams
from codedfl.training import Code, Setting
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
    """

    config: Config
    setting: Setting
    feature_map: FeatureMap
    traces: Mapping[str, TraceArrivals] = field(default_factory=dict)

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
    privacy = default.privacy.model_copy(update={"label_bound": config.privacy.label_bound})  # it changes the data
    blanked = ("schemes", "coding", "incentive", "learning_rate", "options")
    of_a_family = {"training": training, "privacy": privacy}
    shared = config.model_copy(update={name: getattr(default, name) for name in blanked} | of_a_family)
    return identity((shared, config.training.workers, config.data.data_dir))


def build_experiment(config: Config, *, like: Experiment | None = None) -> Experiment:
    """Load the data and build the setting of a configuration.

    Args:
        config: the configuration.
        like: an experiment with the same ``seed``, ``data``, ``features`` and ``privacy.label_bound``, whose rows are reused.

    Raises:
        InputError: if data or fleet cannot be read or do not fit together.

    Example:
        >>> setting = build_experiment(Config()).setting
        >>> setting.federation.devices, setting.federation.dimension
        (20, 100)
    """
    streams = Streams(config.seed)
    if like is not None:
        federation, feature_map = like.setting.federation, like.feature_map
    elif is_federation_folder(config.data.dataset):
        federation, feature_map = _open(config)
    else:
        federation, feature_map = _build(config, streams)
    if like is None:
        federation = clip_labels(config, federation)
    target, clip_norm = privacy_target(config, federation, feature_map, streams)
    fleet = _fleet(config, federation.device_names, streams)
    large = federation.dimension >= LARGE_DIMENSION
    setting = Setting(
        federation=federation,
        fleet=fleet,
        channel=_channel(
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
    traces = _read_traces(config.fleet.trace, tuple(SCHEMES), federation.device_names)
    return Experiment(config, setting, feature_map, traces)


def _open(config: Config) -> tuple[Federation, FeatureMap]:
    """Map the federation of a folder, whose rows are already features assigned to devices."""
    data, features = config.data, config.features
    # For each option: the values that have no effect here, and what decides instead.
    options: tuple[tuple[str, object, tuple[object, ...], str], ...] = (
        ("data.target", data.target, ((),), "its labels.npy holds the targets"),
        ("data.device_column", data.device_column, ("",), "its offsets.npy says which device has which rows"),
        ("data.drop", data.drop, ((),), "all columns of its features.npy are used"),
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


def _build(config: Config, streams: Streams) -> tuple[Federation, FeatureMap]:
    """Load raw data, fit a feature map to it, and spread it over devices."""
    dataset = _load(config, streams)
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
        task=data.task,
        test_fraction=data.test_fraction,
        test_file=data.test_file,
        rng=streams.at("split"),
    )


def _fit(config: Config, dataset: Dataset, streams: Streams) -> FeatureMap:
    features = config.features
    own_file = is_file_name(config.data.dataset)
    kind = features.map
    if kind == "auto":
        kind = "none" if own_file or dataset.name in FEATURE_DATASETS else "rff"
    return fit_feature_map(
        dataset.features,
        kind=kind,
        dimension=features.dimension,
        gamma=features.gamma,
        standardize=own_file if features.standardize == "auto" else features.standardize,
        scaling=features.scaling,
        intercept=own_file and kind == "none" if features.intercept == "auto" else features.intercept,
        rng=streams.at("features"),
    )


def _fleet(config: Config, names: tuple[str, ...], streams: Streams) -> Fleet:
    fleet = config.fleet
    if fleet.file:
        return read_fleet(Path(fleet.file), names)
    return draw_fleet(
        names,
        streams.at("fleet"),
        mac_rate=fleet.mac_rate,
        mac_rate_factor=fleet.mac_rate_factor,
        transmit_power_dbm=fleet.transmit_power_dbm,
    )


def _channel(config: Config, fleet: Fleet, workload: Workload) -> Channel:
    given = config.fleet
    channel = Channel(given.bandwidth_hz, given.noise_power_dbm, given.mean_gain, given.download_rate_bps)
    if given.straggler_ratio == 0:
        return channel
    timing = RoundTiming(fleet, channel, workload, config.training.deadline_s)
    return replace(channel, bandwidth_hz=bandwidth_for_straggler_ratio(timing, 1, given.straggler_ratio))


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
    """Return the noise variances that result from a mechanism, and the devices that upload; None for all.

    Budgets use the bound that holds for all data (``h = 0``).
    """
    if incentive.sensitivity == "table":
        sensitivity = table_sensitivities(devices)
    elif incentive.sensitivity == "printed":
        sensitivity = printed_sensitivities(devices)
    else:
        sensitivity = _per_device("incentive.sensitivity", incentive.sensitivity, devices)
    if incentive.mechanism == "contract":
        return contract_for_reward(
            DeviceTraits(sensitivity), incentive.total_reward, coded_samples
        ).noise_variance, None
    outcome = stackelberg_for_reward(DeviceTraits(sensitivity), incentive.total_reward, coded_samples)
    return np.where(outcome.participants, outcome.noise_variance, 0.0), outcome.participants


def _per_device(name: str, value: float | tuple[float, ...], devices: int) -> FloatArray:
    if isinstance(value, tuple):
        if len(value) != devices:
            raise InputError(
                f"{name} has {len(value)} value(s) for {devices} device(s): give one, or one for each device."
            )
        return np.array(value)
    return np.full(devices, float(value))


def _read_traces(path: str, schemes: Sequence[str], names: Sequence[str]) -> dict[str, TraceArrivals]:
    """Read the trace that each scheme replays.

    Args:
        path: a file for all schemes, or a folder with one file per scheme; schemes without one use the channel model.
        schemes: their names.
        names: the names of the devices.

    Raises:
        InputError: if the file or folder does not exist, or a trace does not fit the devices.
    """
    if not path:
        return {}
    if Path(path).is_dir():
        files = {scheme: Path(path) / f"{scheme}.csv" for scheme in schemes}
        found = {scheme: read_trace(file, names) for scheme, file in files.items() if file.is_file()}
        if not found:
            raise InputError(
                f"fleet.trace = {path!r} is a folder without a trace of any of the schemes {', '.join(schemes)}: give a "
                "folder that a run has recorded, or a file."
            )
        return found
    trace = read_trace(path, names)
    return dict.fromkeys(schemes, trace)
