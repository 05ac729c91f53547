"""Uploads that serve as curvature, and their cost: subspace sketches, and factors of coded rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from codedfl._validation import require_at_least
from codedfl.coding import SubspaceSketch, device_factors, require_rows_for_factor, sketch_all, sketch_factors
from codedfl.curvature._model import CurvatureModel
from codedfl.errors import InputError
from codedfl.privacy import GaussianMechanism, sketch_sensitivity
from codedfl.training import Code, CodedUpload, DevicePlan, Release, Setting, UploadCost, without_code

Rank = int | Literal["auto"]
"""Number of sketched directions ``r``; ``auto`` for a quarter of the columns, within `USUAL_RANKS`."""

USUAL_RANKS = 16, 60

LARGEST_SKETCH = 2**28
"""Numbers of all sketches together that the server holds (2 GiB)."""

LARGEST_FACTORS = 2**29
"""Numbers of all factors together that the server holds (2 GiB)."""


def rank_within(dimension: int, rank: Rank) -> int:
    """Return ``r`` for a number of columns, at most as many.

    By itself it is a quarter of them, within limits: with more, exact second moments would be no dearer than the sketch.
    """
    least, most = USUAL_RANKS
    return min(min(max(least, dimension // 4), most) if rank == "auto" else rank, dimension)


def require_rank(rank: Rank) -> None:
    """Refuse a rank below two: one direction is kept, the next tells the damping."""
    if rank != "auto":
        require_at_least("rank", rank, 2)


@dataclass(frozen=True)
class SubspaceUpload:
    """Sketches ``X_S^T [X_S Omega, Y_S]`` of every device that takes part.

    Args:
        rank: ``r``, no more than the data has columns.
        rows: ``|S|``, at most; no more than a device has.
        noise: whether the setting's noise variances are added to what is sent.
    """

    rank: Rank = "auto"
    rows: int = 100
    noise: bool = False

    def __post_init__(self) -> None:
        require_rank(self.rank)
        require_at_least("sketch_rows", self.rows, 1)

    def rank_in(self, setting: Setting) -> int:
        """Return ``r`` in a setting."""
        return rank_within(setting.federation.dimension, self.rank)

    def prepare(self, setting: Setting, plan: DevicePlan) -> tuple[tuple[SubspaceSketch, ...], UploadCost]:
        """Sketch on all devices."""
        code = setting.code
        on, rank = code.uploading * float(self.noise), self.rank_in(setting)
        sketch = sketch_all(
            setting.uploading_rows,
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

    def releases(self, setting: Setting, plan: DevicePlan, device: int) -> tuple[Release, ...]:  # noqa: ARG002
        """Return the sketch, a Gaussian mechanism; see `codedfl.privacy.sketch_sensitivity`."""
        code, samples = setting.code, setting.federation.samples
        if not code.uploading[device] or samples[device] == 0:
            return ()
        label_bound = setting.label_bound
        noise = float(code.noise_variance[device]), float(code.label_noise_variance[device])
        if not self.noise or code.clip_norm is None or label_bound is None or min(noise) == 0:
            return (Release("subspace sketch", None),)
        some_rows = bool(self.rows < samples[device])
        changes = sketch_sensitivity(code.clip_norm, label_bound, some_rows=some_rows)
        squared = sum(change**2 / variance for change, variance in zip(changes, noise, strict=True))
        return (Release("subspace sketch", GaussianMechanism(1 / math.sqrt(squared))),)

    def depends_on(self, code: Code) -> Code:
        """Return the code with everything blanked out but who takes part, clipping, the draw and, if it is added, the noise."""
        used = replace(without_code(code), clip_norm=code.clip_norm, draw=code.draw)
        if not self.noise:
            return used
        return replace(used, noise_variance=code.noise_variance, label_noise_variance=code.label_noise_variance)


@dataclass(frozen=True)
class FactorUpload:
    """Factors of noisy coded rows, as in `codedfl.training.CodedUpload`, sketched by the server instead of by the devices.

    They cost far more to make and to send than sketches, and have the privacy of the coded rows.

    Args:
        rank: ``r``, no more than the data has columns.
        noise: whether the setting's noise is added to the coded rows.
    """

    rank: Rank = "auto"
    noise: bool = True

    def __post_init__(self) -> None:
        require_rank(self.rank)

    def rank_in(self, setting: Setting) -> int:
        """Return ``r`` in a setting."""
        return rank_within(setting.federation.dimension, self.rank)

    def prepare(self, setting: Setting, plan: DevicePlan) -> tuple[tuple[SubspaceSketch, ...], UploadCost]:
        """Draw the factor of every device, and sketch them."""
        code, federation = self._as_coded.code(setting, plan), setting.federation
        on, rank, d = code.uploading * float(self.noise), self.rank_in(setting), federation.dimension
        factors = dict(
            device_factors(
                setting.uploading_rows,
                code.coded_samples,
                noise_variance=on * code.noise_variance,
                label_noise_variance=on * code.label_noise_variance,
                streams=code.streams(setting.streams),
                clip_norm=code.clip_norm,
                workers=setting.workers,
            )
        )
        sketch = sketch_factors(
            factors,
            code.coded_samples,
            rank,
            noise_variance=on * code.noise_variance,
            samples=np.where(code.uploading, federation.samples, 0).astype(np.float64),
            dimension=d,
        )
        return (sketch,), self.cost(setting, plan)

    def cost(self, setting: Setting, plan: DevicePlan) -> UploadCost:  # noqa: ARG002
        """Charge factors as `UploadCost.of_factors` does, and the server ``d^2 (d / 3 + 20 r)`` more for eigenvectors."""
        federation, uploading, rank = setting.federation, setting.code.uploading, self.rank_in(setting)
        d = federation.dimension
        macs = CurvatureModel.server_macs(int(np.count_nonzero(uploading)), d, federation.outputs, rank)
        eigenvectors = float(d) ** 2 * (d / 3 + 20 * rank)
        sizes = np.where(uploading, federation.samples, 0).astype(np.float64)
        return UploadCost.of_factors(setting, sizes).with_server_macs(setting, macs + eigenvectors)

    def require_possible(self, setting: Setting, plan: DevicePlan) -> None:  # noqa: ARG002
        """Refuse factors of fewer coded rows than columns, and more than the server can hold."""
        federation = setting.federation
        width = federation.dimension + federation.outputs
        require_rows_for_factor(setting.code.coded_samples, width)
        numbers = federation.devices * width**2
        if numbers > LARGEST_FACTORS:
            raise InputError(
                f"{federation.devices} factors of {width} columns take {numbers:.3g} numbers, at most {LARGEST_FACTORS} fit: set"
                " options.ccfl.upload to 'subspace'."
            )

    @property
    def _as_coded(self) -> CodedUpload:
        return CodedUpload(noise=self.noise, kind="factor")

    def releases(self, setting: Setting, plan: DevicePlan, device: int) -> tuple[Release, ...]:
        """Return the factor, which tells as much as the coded rows."""
        return self._as_coded.releases(setting, plan, device)

    def depends_on(self, code: Code) -> Code:
        """Return the code, without noise if none is added."""
        return code if self.noise else code.without_noise()
