"""The upload of subspace sketches, and its cost."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from codedfl._validation import require_at_least
from codedfl.coding import SubspaceSketch, sketch_all
from codedfl.curvature._model import CurvatureModel
from codedfl.errors import InputError
from codedfl.training import Code, DevicePlan, Setting, UploadCost
from codedfl.training import without_code as blank_code

LARGEST_SKETCH = 2**28
"""Numbers of all sketches together that the server holds (2 GiB)."""


@dataclass(frozen=True)
class SubspaceUpload:
    """Sketches ``X_S^T [X_S Omega, Y_S]`` of every device that takes part.

    Args:
        rank: ``r``, at most; no more than the data has columns.
        rows: ``|S|``, at most; no more than a device has.
        noise: whether the setting's noise variances are added to what is sent.
    """

    rank: int = 60
    rows: int = 100
    noise: bool = False

    def __post_init__(self) -> None:
        require_at_least("rank", self.rank, 2)
        require_at_least("sketch_rows", self.rows, 1)

    def rank_in(self, setting: Setting) -> int:
        """Return ``r`` in a setting."""
        return min(self.rank, setting.federation.dimension)

    def prepare(self, setting: Setting, plan: DevicePlan) -> tuple[tuple[SubspaceSketch, ...], UploadCost]:
        """Sketch on all devices."""
        code, federation = setting.code, setting.federation
        on, rank = code.uploading * float(self.noise), self.rank_in(setting)
        devices = [setting.rows(i) if code.uploading[i] else setting.no_rows for i in range(federation.devices)]
        sketch = sketch_all(
            devices,
            rank,
            self.rows,
            noise_variance=on * code.noise_variance,
            label_noise_variance=on * code.label_noise_variance,
            streams=code.streams(setting.streams),
            clip_norm=code.clip_norm,
        )
        return (sketch,), self.cost(setting, plan)

    def cost(self, setting: Setting, plan: DevicePlan) -> UploadCost:  # noqa: ARG002
        """Charge a device that takes part ``d (r + o) + 1`` numbers and ``|S| d (2 r + o + 1)`` MACs."""
        d, o, rank = setting.federation.dimension, setting.federation.outputs, self.rank_in(setting)
        uploading = setting.code.uploading
        return UploadCost.charged(
            setting,
            uploading * float(d * (rank + o) + 1),
            uploading * np.minimum(self.rows, setting.federation.samples) * float(d * (2 * rank + o + 1)),
            CurvatureModel.server_macs(int(np.count_nonzero(uploading)), d, o, rank),
        )

    def require_possible(self, setting: Setting, plan: DevicePlan) -> None:  # noqa: ARG002
        """Refuse sketches that are too large to hold."""
        federation = setting.federation
        numbers = federation.devices * federation.dimension * (self.rank_in(setting) + 2 * federation.outputs)
        if numbers > LARGEST_SKETCH:
            raise InputError(
                f"{federation.devices} devices with {federation.dimension} features are too many to keep apart: their sketches"
                f" take {numbers:.3g} numbers, at most {LARGEST_SKETCH} fit; lower options.ccfl.rank, or leave this scheme out."
            )

    def depends_on(self, code: Code) -> Code:
        """Return the code with everything blanked out but who takes part, clipping, the draw and, if it is added, the noise."""
        used = replace(blank_code(code), clip_norm=code.clip_norm, draw=code.draw)
        if not self.noise:
            return used
        return replace(used, noise_variance=code.noise_variance, label_noise_variance=code.label_noise_variance)
