"""What there is to train: a scheme in an experiment, with its rounds and its learning rates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from codedfl.config import Config
from codedfl.experiment._build import Experiment
from codedfl.identity import identity
from codedfl.setting import Setting
from codedfl.training import DevicePlan, LearningRate, PreparedScheme, Scheme, StepSizeChoice, rounds_within

OWN_STEP_MULTIPLES = tuple(2.0**-halvings for halvings in range(7))
"""Multiples of the step of a scheme that tunes itself: 1, and those to back off to if the run diverges."""


@dataclass(frozen=True, eq=False)
class Job:
    """A scheme to train in an experiment.

    Args:
        scheme: the scheme.
        experiment: that of the first configuration that asked for it.
        plan: the work of the devices, planned once.
        rounds: ``K``.
    """

    scheme: Scheme
    experiment: Experiment
    plan: DevicePlan
    rounds: int

    @property
    def config(self) -> Config:
        return self.experiment.config

    @property
    def tuned(self) -> bool:
        """Whether the step size comes from a grid."""
        return self.config.learning_rate.scale == "grid" and not self.scheme.tunes_itself and not self.covered_by_upload

    @property
    def covered_by_upload(self) -> bool:
        """Whether devices send nothing but an upload with an epsilon, so that the step may depend on that alone."""
        own_step = self.scheme.device.idle and self.scheme.server is not None
        return self.experiment.setting.privacy is not None and own_step

    def scale(self, choice: StepSizeChoice | None) -> float | None:
        """Return the step size in units of ``1 / L``: chosen, or given; None for a scheme that tunes itself."""
        if self.scheme.tunes_itself:
            return None
        if choice:
            return choice.scale
        return 1.0 if self.config.learning_rate.scale == "grid" else float(self.config.learning_rate.scale)

    def rates(self, choice: StepSizeChoice | None, prepared: PreparedScheme) -> tuple[LearningRate, ...]:
        """Return the learning rate, followed by smaller ones to back off to if the run diverges.

        A step that may depend on the upload alone is relative to the curvature of the coded data instead of ``L``.
        """
        scale = self.scale(choice)
        if scale is None:
            # To back off would be to look at the loss, which is not part of what a private scheme releases.
            multiples = (1.0,) if self.scheme.private else OWN_STEP_MULTIPLES
            return tuple(LearningRate(multiple) for multiple in multiples)
        smaller = sorted((t.scale for t in choice.trials if t.scale < scale), reverse=True) if choice else []
        decay_rounds = self.config.learning_rate.decay_rounds
        own_step = prepared.server if self.covered_by_upload else None
        smoothness = prepared.smoothness if own_step is None else own_step.curvature()
        return tuple(LearningRate.relative(each, smoothness, decay_rounds) for each in (scale, *smaller))


def rounds_of(config: Config, scheme: Scheme, setting: Setting, plan: DevicePlan) -> int:
    """Return the number of rounds of a scheme in a configuration; a one-shot scheme has none."""
    if scheme.one_shot:
        return 0
    own = scheme.rounds(setting)
    if own is not None:
        return own
    return config.training.rounds or rounds_within(scheme.name, plan, config.training.total_time_s)


def run_identity(scheme: Scheme, experiment: Experiment) -> str:
    """Return an identity of everything that the result of a run depends on."""
    config = experiment.config
    rate = config.learning_rate
    own_step = scheme.tunes_itself
    return identity(
        (
            scheme,
            scheme.depends_on(experiment.setting),
            experiment.traces.get(scheme.name),
            config.training.model_copy(update={"server_batch": 0}),  # part of the setting, where it matters
            None if own_step else rate if rate.scale == "grid" else (rate.scale, rate.decay_rounds),
        )
    )


class SharedUploads:
    """A cache of what servers hold, so that schemes with the same upload share it."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def prepare(self, scheme: Scheme, setting: Setting, plan: DevicePlan) -> PreparedScheme:
        """Prepare a scheme; reuse an upload that stands for all rows under the same code."""
        if scheme.upload is None or not plan.coded_for_all:
            return scheme.prepare(setting, plan=plan)
        code = scheme.depends_on(setting).code
        key = identity((scheme.upload, setting.federation, setting.streams, code, setting.privacy))
        if key not in self._known:
            self._known[key] = scheme.held_in(setting, plan)
        return scheme.prepared(setting, plan, self._known[key], scheme.upload_cost(setting, plan))
