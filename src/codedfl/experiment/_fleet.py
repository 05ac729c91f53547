"""From a configuration to its fleet, its channel and the arrivals that it replays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from codedfl._messages import did_you_mean, shown
from codedfl.config import Config
from codedfl.errors import InputError
from codedfl.fleet import (
    AnyFleet,
    Channel,
    Fleet,
    MeasuredFleet,
    MeasuredTiming,
    RoundTiming,
    TraceArrivals,
    Workload,
    bandwidth_for_straggler_ratio,
    draw_fleet,
    is_recording,
    read_fleet,
    read_trace,
)
from codedfl.plugins import find_plugin, plugin_names
from codedfl.schemes import SCHEMES
from codedfl.streams import Streams

HARDLY_ANYBODY = 0.01
"""If every device arrives less often than this, the deadline is surely not meant."""


def build_fleet(config: Config, names: tuple[str, ...], streams: Streams) -> AnyFleet:
    """Return the fleet that a configuration draws, reads or takes from a plug-in.

    Args:
        config: the configuration.
        names: the devices of the data.
        streams: the source of draws.

    Raises:
        InputError: it cannot be read, or does not fit the devices.
    """
    fleet = config.fleet
    if is_recording(fleet.trace):
        if fleet.file:
            raise InputError(
                f"fleet.file = {shown(fleet.file)} and fleet.trace = {shown(fleet.trace)} both say when devices answer: leave "
                "one out."
            )
        return read_fleet(fleet.trace, names, name_column=config.data.device_column, field="fleet.trace")
    if not fleet.file:
        return draw_fleet(
            names,
            streams.at("fleet"),
            mac_rate=fleet.mac_rate,
            mac_rate_factor=fleet.mac_rate_factor,
            transmit_power_dbm=fleet.transmit_power_dbm,
        )
    if names_plugin(fleet.file):
        return _from_plugin(fleet.file, names, streams.at("fleet"))
    return read_fleet(fleet.file, names, name_column=config.data.device_column)


def names_plugin(file: str) -> bool:
    """Return whether ``fleet.file`` means the fleet of a plug-in; a file of that name takes precedence."""
    return bool(file) and "." not in file and not Path(file).exists()


def _from_plugin(name: str, names: tuple[str, ...], rng: np.random.Generator) -> AnyFleet:
    plugin = find_plugin("fleet", name)
    if plugin is None:
        known = plugin_names("fleet")
        offered = f"installed packages offer {', '.join(known)}" if known else "no installed package offers any"
        raise InputError(
            f"fleet.file = {shown(name)} is not a file, nor a fleet of an installed package ({offered}): give the path of a .csv "
            f"or .parquet file.{did_you_mean(name, known)}"
        )
    fleet: AnyFleet = plugin.call(plugin.load(), (Fleet, MeasuredFleet), names, rng)
    if fleet.names != names:
        raise plugin.refusal("returned a fleet of other devices than it was given the names of")
    return fleet


def build_channel(config: Config, fleet: AnyFleet, workload: Workload) -> Channel:
    """Return the channel of a configuration, with the bandwidth that its share of stragglers needs.

    Raises:
        InputError: the share is not attainable, or answers were measured and the deadline is far too short for them.
    """
    radio = config.fleet
    channel = Channel(radio.bandwidth_hz, radio.noise_power_dbm, radio.mean_gain, radio.download_rate_bps)
    if not fleet.radio:
        _require_sense(config, fleet, workload)
        return channel
    if radio.straggler_ratio == 0:
        return channel
    timing = RoundTiming(fleet, channel, workload, config.training.deadline_s)
    return replace(channel, bandwidth_hz=bandwidth_for_straggler_ratio(timing, 1, radio.straggler_ratio))


def _require_sense(config: Config, fleet: MeasuredFleet, workload: Workload) -> None:
    ratio, deadline = config.fleet.straggler_ratio, config.training.deadline_s
    if ratio not in (0, type(config.fleet).model_fields["straggler_ratio"].default):
        raise InputError(
            f"fleet.straggler_ratio = {ratio:g} sets the bandwidth of a radio channel, but this fleet says itself when its "
            "devices answer: leave it out, and change training.deadline_s to have more or fewer of them in time."
        )
    mean = fleet.answers.mean_s
    if mean is not None and (MeasuredTiming(fleet, workload, deadline).arrival_probability(1) < HARDLY_ANYBODY).all():
        raise InputError(
            f"training.deadline_s = {deadline:g} is too short for this fleet, whose devices take {mean.min():.3g} to "
            f"{mean.max():.3g} s on average: set the seconds that a round may last, such as {np.median(mean):.2g}."
        )


def read_traces(config: Config, names: tuple[str, ...]) -> dict[str, TraceArrivals]:
    """Read the trace that each scheme replays.

    It is a file for all schemes, or a folder with one file per scheme; schemes without one use the model of the fleet. A file
    that says who answered when is a fleet, not a trace.

    Raises:
        InputError: if the file or folder does not exist, or a trace does not fit the devices.
    """
    path, schemes = config.fleet.trace, tuple(dict.fromkeys((*SCHEMES, *config.schemes)))
    if not path or is_recording(path):
        return {}
    if Path(path).is_dir():
        files = {scheme: Path(path) / f"{scheme}.csv" for scheme in schemes}
        traces = {scheme: read_trace(file, names) for scheme, file in files.items() if file.is_file()}
        if not traces:
            raise InputError(
                f"fleet.trace = {path!r} is a folder without a trace of any of the schemes {', '.join(schemes)}: give a "
                "folder that a run has recorded, or a file."
            )
        return traces
    return dict.fromkeys(schemes, read_trace(path, names))
