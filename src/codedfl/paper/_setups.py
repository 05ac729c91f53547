"""The learning tasks of Sec. VI-A with the parameters printed there, and a small task for the quick version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from codedfl.errors import InputError
from codedfl.experiment import Config, load_config

Quirk = Literal["model-server-batch", "mnist-deadline", "printed-sensitivities", "stable-steps"]
"""Names of alternative readings where the sections and tables of the paper disagree."""

QUIRKS: Mapping[Quirk, str] = {
    "model-server-batch": "b_s as large as the server's MAC rate allows (768 on MNIST) instead of the printed 499 and 562",
    "mnist-deadline": "T = 6.5 s on MNIST, behind the printed b_s = 499 and 123 MB, instead of the printed 10 s",
    "printed-sensitivities": "mu_i = 1 + 0.02 i, printed in Sec. VI, instead of 1 + 0.02 (i - 1), which is behind Table lambda",
    "stable-steps": "leave out step sizes that cannot converge, as `codedfl run` does, instead of trying all of the grid",
}

STEP_SIZES = (0.125, 0.25, 0.35, 0.5, 0.7, 1.0, 1.4)
"""The grid of eta_0 * L, the same for all schemes and settings."""


@dataclass(frozen=True)
class Setup:
    """A task to reproduce figures on.

    Args:
        name: its name in files and tables.
        title: its name in pictures.
        config: its parameters, with SCFL as the only scheme.
    """

    name: str
    title: str
    config: Config

    def changed(self, **changes: Any) -> Config:
        """Return the configuration with some fields changed; ``coding__coded_samples`` is ``coding.coded_samples``.

        Example:
            >>> DIGITS.changed(coding__coded_samples=50).coding.coded_samples
            50
        """
        return changed(self.config, {name.replace("__", "."): value for name, value in changes.items()})


def changed(config: Config, changes: Mapping[str, Any]) -> Config:
    """Return a validated configuration with some fields (``section.key``) changed."""
    return load_config(overrides=[*_flat(config.model_dump()), *changes.items()])


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    pairs = []
    for name, value in values.items():
        pairs += _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else [(f"{prefix}{name}", value)]
    return pairs


_SHARED: dict[str, Any] = {
    "schemes": ["scfl"],
    "data.devices": 20,
    "data.partition": "shards",
    "training.local_steps": 5,
    "training.evaluations": 50,
    "training.workers": 1,
    "learning_rate.grid": STEP_SIZES,
    "learning_rate.only_stable": False,  # so that the committed results can be reproduced
}

_PAPER: dict[str, Any] = {
    **_SHARED,
    "fleet.transmit_power_dbm": (15.0, 25.0),
    "fleet.bandwidth_hz": 180e3,
    "fleet.noise_power_dbm": -70.0,
    "fleet.mean_gain": 1e-8,
    "fleet.download_rate_bps": 1e6,
    "fleet.mac_rate": 1_536e3,
    "fleet.mac_rate_factor": (0.8, 1.0),
    "fleet.server_mac_rate": 15_360e3,
    "fleet.straggler_ratio": 0.0,
    "coding.coded_samples": 10_000,
    "coding.noise_variance": 0.25,
    "training.total_time_s": 20_000.0,
    "learning_rate.tuning_share": 0.15,
}


def _setup(name: str, title: str, parameters: Mapping[str, Any]) -> Setup:
    return Setup(name, title, load_config(overrides=list(parameters.items())))


MNIST = _setup(
    "mnist",
    "MNIST",
    {
        **_PAPER,
        "data.dataset": "mnist",
        "features.map": "rff",
        "features.dimension": 2000,
        "features.gamma": 0.02,
        "training.deadline_s": 10.0,
        "training.server_batch": 499,
    },
)

CIFAR10 = _setup(
    "cifar10",
    "CIFAR-10",
    {
        **_PAPER,
        "data.dataset": "cifar10-vgg",
        "features.map": "none",
        "features.scaling": "column",
        "training.deadline_s": 15.0,
        "training.server_batch": 562,
    },
)

DIGITS = _setup(
    "digits",
    "digits",
    {
        **_SHARED,
        "data.dataset": "digits",
        "fleet.straggler_ratio": 0.3,
        "coding.coded_samples": 1000,
        "coding.noise_variance": 0.1,
        "training.deadline_s": 1.0,
        "training.total_time_s": 100.0,
        "training.evaluations": 20,
        "learning_rate.tuning_share": 0.5,
    },
)


@dataclass(frozen=True)
class Scope:
    """How much to reproduce.

    Args:
        quick: whether to use the embedded ``digits`` instead of MNIST and CIFAR-10.
        seeds: seeds of the repetitions.
        quirks: alternative readings to use where the paper contradicts itself.

    Example:
        >>> [setup.name for setup in Scope(quick=True).setups], [setup.name for setup in Scope().setups]
        (['digits'], ['mnist', 'cifar10'])
    """

    quick: bool = False
    seeds: tuple[int, ...] = (0, 1, 2)
    quirks: frozenset[Quirk] = frozenset()

    def __post_init__(self) -> None:
        if not self.seeds:
            raise InputError("seeds = () must have one seed or more.")

    @property
    def setups(self) -> tuple[Setup, ...]:
        """The tasks, with quirks applied."""
        return (self._quirky(DIGITS),) if self.quick else (self._quirky(MNIST), self._quirky(CIFAR10))

    def only(self, setup: Setup) -> Setup:
        """Return the task of a figure that has only one."""
        return self._quirky(DIGITS if self.quick else setup)

    def _quirky(self, setup: Setup) -> Setup:
        changes: dict[str, Any] = {}
        if "stable-steps" in self.quirks:
            changes["learning_rate__only_stable"] = True
        if "model-server-batch" in self.quirks and setup is not DIGITS:
            changes["training__server_batch"] = 0
        if "mnist-deadline" in self.quirks and setup is MNIST:
            changes["training__deadline_s"] = 6.5
        return replace(setup, config=setup.changed(**changes)) if changes else setup
