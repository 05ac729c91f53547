"""Private sketches: fresh Gaussian projections of the features with noise, one for each round, uploaded before the first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np

from codedfl._validation import require_at_least
from codedfl.coding import CodedData, Rows, add_factors, compute_gram, encode_all, sample_factors
from codedfl.errors import InputError
from codedfl.privacy import CodedMechanism, PrivacyAccountant
from codedfl.private._curvature import clip_norm_of
from codedfl.private._devices import require_target
from codedfl.training import LARGEST_GRAM, Code, DevicePlan, PrivacyTarget, Release, Setting, UploadCost
from codedfl.typing import FloatArray


@dataclass(frozen=True)
class SketchUpload:
    """``T`` sketches ``G_t X_i + N_t`` of ``c`` rows from every device, of features clipped to ``B`` and without labels.

    They do not depend on any model, so all are sent at once. Together they are as private as one upload of ``T c`` rows
    with the ratio ``r = B^2 / sigma^2``.

    Sketches of all devices are added up row by row if the server sees sums only: their noise then adds up to one
    mechanism's. If it sees each message, devices send triangular factors and second moments are added up instead, which
    err less by ``sqrt(N)``.

    Args:
        sketches: ``T``.
        budget_share: share of the target's epsilon and delta that they may use.
    """

    sketches: int = 3
    budget_share: float = 0.3

    def __post_init__(self) -> None:
        require_at_least("rounds", self.sketches, 1)
        if not 0 < self.budget_share < 1:
            raise InputError(
                f"budget_share = {self.budget_share} must lie between 0 and 1, both excluded: updates need a share as well."
            )

    @property
    def noise(self) -> bool:
        """True: it is private."""
        return True

    def kind(self, setting: Setting) -> Literal["rows", "factor"]:
        """Return what devices send: a factor unless rows are added up in secret, or are too few for a factor."""
        too_few = setting.code.coded_samples < setting.federation.dimension
        return "rows" if too_few or require_target(setting, "private sketches").sums_only else "factor"

    def mechanism(self, setting: Setting) -> CodedMechanism:
        """Return the mechanism of all sketches of a device to whoever sees them."""
        rows = self.sketches * setting.code.coded_samples
        return CodedMechanism(rows, _ratio(require_target(setting, "private sketches"), rows, self.budget_share))

    def code(self, setting: Setting, plan: DevicePlan | None = None) -> Code:  # noqa: ARG002 (as for coded data)
        """Return the code with the noise of each device; there are no labels to add noise to."""
        uploading = setting.code.uploading
        noise = clip_norm_of(setting) ** 2 / self.mechanism(setting).signal_to_noise
        if require_target(setting, "private sketches").sums_only:
            noise /= int(np.count_nonzero(uploading))
        each = np.full(len(uploading), noise)
        return replace(setting.code, noise_variance=each, label_noise_variance=0 * each)

    def prepare(self, setting: Setting, plan: DevicePlan) -> tuple[tuple[CodedData, ...], UploadCost]:
        """Return the sum of each sketch over devices, and the cost."""
        drawn = self._rows(setting) if self.kind(setting) == "rows" else self._factors(setting)
        return drawn, self.cost(setting, plan)

    def _rows(self, setting: Setting) -> tuple[CodedData, ...]:
        code, devices = self.code(setting), _features(setting)
        gram = compute_gram(devices, setting.workers) if code.encoder != "direct" else None
        return tuple(
            encode_all(
                devices,
                code.coded_samples,
                noise_variance=code.uploading * code.noise_variance,
                label_noise_variance=code.label_noise_variance,
                streams=code.streams(setting.streams).child("private-sketches"),
                batch=sketch,
                encoder=code.encoder,
                gram=gram,
                workers=setting.workers,
            )
            for sketch in range(self.sketches)
        )

    def _factors(self, setting: Setting) -> tuple[CodedData, ...]:
        code, devices = self.code(setting), _features(setting)
        streams = code.streams(setting.streams).child("private-sketches")
        received: list[list[FloatArray]] = [[] for _ in range(self.sketches)]
        sending = np.flatnonzero(code.uploading)
        for i in sending:
            gram = compute_gram([devices[i]], setting.workers)
            rngs = (streams.at("coding-factor", device=int(i), round=sketch) for sketch in range(self.sketches))
            drawn = sample_factors(gram, code.coded_samples, noise_variance=float(code.noise_variance[i]), rngs=rngs)
            for factors, factor in zip(received, drawn, strict=True):
                factors.append(factor)
        dimension, total = setting.federation.dimension, float(code.noise_variance[sending].sum())
        dtype = setting.federation.features.dtype
        return tuple(add_factors(factors, code.coded_samples, dimension, total, dtype) for factors in received)

    def cost(self, setting: Setting, plan: DevicePlan) -> UploadCost:  # noqa: ARG002
        """Charge each sketch as coded data without labels; factors of one device share their ``X_i^T X_i``."""
        d, c = float(setting.federation.dimension), float(setting.code.coded_samples)
        uploading, samples = setting.code.uploading.astype(np.float64), setting.federation.samples
        if self.kind(setting) == "rows":
            numbers, macs, server = c * d, samples * self.sketches * c * d, c * d
        else:
            numbers, server = d * (d + 1) / 2, d**3 / 3
            macs = samples * d**2 / 2 + self.sketches * 2 * d**3 / 3
        return UploadCost.charged(
            setting,
            uploading * self.sketches * numbers,
            uploading * macs,
            float(uploading.sum()) * self.sketches * server,
        )

    def require_possible(self, setting: Setting, plan: DevicePlan) -> None:  # noqa: ARG002
        """Refuse a setting without a target or a clip norm, and second moments that are too large to hold."""
        require_target(setting, "private sketches")
        clip_norm_of(setting)
        if setting.federation.dimension > LARGEST_GRAM:
            raise InputError(
                f"features.dimension = {setting.federation.dimension} is too large to hold X^T X (at most {LARGEST_GRAM} columns)"
                ": use fewer features, or leave this scheme out."
            )

    def depends_on(self, code: Code) -> Code:
        """Return the code without its noise, which the target sets."""
        return code.without_noise()

    def releases(self, setting: Setting, plan: DevicePlan, device: int) -> tuple[Release, ...]:  # noqa: ARG002
        """Return all sketches of a device as one mechanism."""
        if not setting.code.uploading[device]:
            return ()
        return (Release("sketches of the features", self.mechanism(setting)),)


def _features(setting: Setting) -> list[Rows]:
    """Return the clipped features of each device, without labels; none of those that upload nothing."""
    bound = clip_norm_of(setting)
    return [Rows(rows.features, rows.labels[:, :0]).clipped(bound) for rows in setting.uploading_rows]


@lru_cache(maxsize=256)
def _ratio(target: PrivacyTarget, rows: int, share: float) -> float:
    """Return the signal-to-noise ratio at which coded rows use a share of a target."""
    accountant = PrivacyAccountant(coded_samples=rows, epsilon=share * target.epsilon, delta=share * target.delta)
    return accountant.signal_to_noise
