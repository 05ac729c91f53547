"""The simulator's answer to a real federation: the same data, code and arrivals, with its own draws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from codedfl.coding import Rows, clipped_labels
from codedfl.data import Federation
from codedfl.federation._federation_config import FederationConfig
from codedfl.federation._remote import network_setting
from codedfl.fleet import TraceArrivals
from codedfl.setting import Code, Setting
from codedfl.streams import Streams
from codedfl.training import LearningRate, RunResult, train


def pooled_setting(config: FederationConfig, rows: Mapping[str, Rows], test: Rows, seed: int = 0) -> Setting:
    """Return the setting of a simulation of a federation whose rows are all at hand.

    Args:
        config: the federation.
        rows: the mapped rows of each device, in the order of the federation.
        test: the mapped test rows.
        seed: seed of all draws.
    """
    names, devices = tuple(rows), len(rows)
    federation = Federation(
        np.concatenate([own.features for own in rows.values()]),
        np.concatenate([own.labels for own in rows.values()]),
        np.append(0, np.cumsum([len(own) for own in rows.values()])),
        np.asarray(test.features),
        np.asarray(test.labels),
        config.data.task,
        config.data.classes or config.data.target,
        names,
    )
    if config.privacy.label_bound > 0:
        federation = replace(federation, labels=clipped_labels(federation.labels, config.privacy.label_bound))
    coding = config.coding
    code = Code(
        coding.coded_samples,
        np.full(devices, coding.noise_variance),
        np.full(devices, coding.label_noise_variance),
        encoder="direct",
        clip_norm=config.clip_norm,
        label_bound=config.label_norm,
    )
    return network_setting(config, federation, code, Streams(seed))


def replay(config: FederationConfig, setting: Setting, trace: TraceArrivals | None) -> RunResult:
    """Train in the simulator with the arrivals of a real federation; None if it had no rounds."""
    scheme = config.algorithm
    rate = LearningRate(1.0)
    if not scheme.tunes_itself:
        smoothness = scheme.loss_for(setting.federation.task).smoothness(setting.gram)
        rate = LearningRate.relative(config.training.learning_rate, smoothness)
    rounds = 0 if trace is None else trace.rounds
    return train(scheme.prepare(setting, arrivals=trace), rate, rounds, evaluate_every=max(rounds, 1))
