"""The upload of exact statistics, which least squares needs nothing besides."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codedfl.coding import CodedData
from codedfl.errors import InputError
from codedfl.training._devices import DevicePlan
from codedfl.training._privacy import Release
from codedfl.training._setting import LARGEST_GRAM, Code, Setting
from codedfl.training._uploads import UploadCost, without_code


@dataclass(frozen=True)
class ExactStatistics:
    """``X_i^T X_i`` and ``X_i^T Y_i`` of every device, without projection, noise or clipping, so without any privacy guarantee.

    Their sum is that of all data, which a simulation knows as ``Setting.gram``.

    Example:
        >>> from codedfl.experiment import build_experiment, load_config
        >>> setting = build_experiment(load_config()).setting
        >>> cost = ExactStatistics().cost(setting, None)
        >>> int(cost.bits[0])  # 32 (d (d + 1) / 2 + d o), with d = 100 and o = 10
        193600
    """

    @property
    def noise(self) -> bool:
        """False: nothing protects them."""
        return False

    def prepare(self, setting: Setting, plan: DevicePlan | None) -> tuple[tuple[CodedData, ...], UploadCost]:
        """Return nothing that is coded, and the cost."""
        return (), self.cost(setting, plan)

    def cost(self, setting: Setting, plan: DevicePlan | None) -> UploadCost:  # noqa: ARG002
        """Charge each device ``d (d + 1) / 2 + d o`` numbers and ``l`` times as many MACs, and the server the additions."""
        d, o, devices = setting.federation.dimension, setting.federation.outputs, setting.federation.devices
        numbers = d * (d + 1) / 2 + d * o
        return UploadCost.charged(
            setting, np.full(devices, numbers), setting.federation.samples * numbers, devices * numbers
        )

    def require_possible(self, setting: Setting, plan: DevicePlan) -> None:  # noqa: ARG002
        """Refuse a Gram matrix that is too large to hold."""
        width = setting.federation.dimension + setting.federation.outputs
        if width > LARGEST_GRAM:
            raise InputError(
                f"features.dimension = {setting.federation.dimension} is too large to hold X^T X (at most {LARGEST_GRAM} columns)"
                ": use fewer features, or leave this scheme out."
            )

    def releases(self, setting: Setting, plan: DevicePlan, device: int) -> tuple[Release, ...]:  # noqa: ARG002
        """Return the statistics, which nothing protects."""
        return (Release("exact second moments", None),)

    def depends_on(self, code: Code) -> Code:
        """Return a blank code: nothing is coded."""
        return without_code(code)
