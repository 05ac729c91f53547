"""The mean of the features and, in simulations, their second moments, with noise: the geometry of private descent."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import scipy.linalg
import scipy.sparse.linalg

from codedfl.coding import Geometry, Rows, clip_weights, clipped_total, compute_gram
from codedfl.data import Task
from codedfl.errors import InputError
from codedfl.losses import Loss, make_loss
from codedfl.parallel import one_blas_thread
from codedfl.privacy import GaussianMechanism, Noise, Release
from codedfl.setting import LARGEST_GRAM, Code, Setting
from codedfl.typing import FloatArray
from codedfl.uploads._budget import MEAN_SHARE, Budget, CurvatureDetail, divide
from codedfl.uploads._upload import (
    DOUBLE,
    LARGEST_PRODUCT,
    SINGLE,
    UNIT_ROUNDOFF,
    AgreedNoise,
    Array,
    ArrayLayout,
    Coverage,
    GaussianUpload,
    Layout,
    Received,
    Terms,
    UploadCost,
    clip_norm_of,
    noise_of_sum,
    require_target,
    sending,
)

MOST_DIRECTIONS = 64
"""Largest number of directions that the server tells devices to shrink, besides the mean."""

MEAN_FACTOR = 0.3
"""Factor by which the direction of the mean shrinks."""


@dataclass(frozen=True, eq=False)
class PrivateCurvature:
    """What the server knows about the features.

    Args:
        geometry: ``D``, the coordinates for clipping and noise.
        smoothness: a bound ``L`` on the curvature of the loss in these coordinates.
        row_norm: the typical ``||D x||``.
    """

    geometry: Geometry
    smoothness: float
    row_norm: float

    @classmethod
    def unknown(cls, samples: int, bound: float) -> PrivateCurvature:
        """Return what is known of rows of norm ``B`` that nobody told anything about."""
        return cls(Geometry(), samples * bound**2, bound)

    @classmethod
    def from_mean(
        cls, total: FloatArray, deviation: float, summed: int, samples: int, bound: float, dtype: np.dtype[Any]
    ) -> PrivateCurvature:
        """Return what the sum of the features says, with its direction shrunk to `MEAN_FACTOR`.

        Args:
            total: ``sum x + noise``, (d,).
            deviation: standard deviation of that noise.
            summed: rows in the sum.
            samples: rows of all devices.
            bound: ``B``, to which rows were clipped.
            dtype: that of the direction.

        Example:
            >>> total = np.array([100.0, 0.0])
            >>> held = PrivateCurvature.from_mean(total, 0.0, summed=100, samples=200, bound=1.0, dtype=total.dtype)
            >>> round(held.row_norm, 3), round(held.smoothness, 3)
            (0.5, 50.0)
        """
        length = float(np.linalg.norm(total))
        if length == 0:
            return cls.unknown(samples, bound)
        direction = (total / length)[:, None].astype(dtype)
        squared = max(length**2 - len(total) * deviation**2, 0.0) / summed**2
        row_norm = math.sqrt(max(bound**2 - (1 - MEAN_FACTOR**2) * squared, 0.25 * bound**2))
        return cls(Geometry((direction,), (np.array([MEAN_FACTOR]),)), samples * row_norm**2, row_norm)


@dataclass(frozen=True)
class Mean(GaussianUpload[PrivateCurvature]):
    """Noisy sums of features and of their second moments, by the Gaussian mechanism.

    First ``sum x + noise``: its direction shrinks to `MEAN_FACTOR`. Then ``sum x' x'^T + noise`` of the shrunk rows, clipped
    to their typical norm ``B'``: one sample changes it by at most ``B'^2``. Symmetrised noise of standard deviation ``s`` has the
    operator norm ``tau = sqrt(2 d) s``, so eigenvalues above it are real. Those directions shrink by ``sqrt(tau / (e + tau))``,
    and no curvature is left above ``tau``.

    Second moments are a message of their own, which waits for the server's answer to the first: only simulations have it.

    Args:
        loss: the name of what is minimised; see `codedfl.losses.make_loss`.
        curvature: what to send; see `codedfl.uploads.divide`.
        sampling_rate: that of the updates, which share the budget.
        rounds: those of the updates; 0 for the number that `codedfl.uploads.divide` chooses.
    """

    loss: str = "auto"
    curvature: CurvatureDetail = "auto"
    sampling_rate: float = 1.0
    rounds: int = 0

    name = "mean"
    purpose = "private-mean"
    message = "mean of the features"
    is_coded = False
    tells_of_labels = False

    @property
    def noise(self) -> bool:
        """True: it is private."""
        return True

    @property
    def can_be_summed(self) -> bool:
        """True: the server adds the features up."""
        return True

    def budget(self, setting: Setting) -> Budget:
        """Return the division of the budget."""
        target, loss = require_target(setting, "private descent"), self.loss_for(setting.federation.task)
        return divide(setting, target, loss, self.curvature, self.sampling_rate, self.rounds)

    def settled(self, setting: Setting) -> Self:
        """Return the upload that says what is sent and how many rounds follow, which depends on the sizes of all devices."""
        budget = self.budget(setting)
        return replace(self, curvature=budget.curvature, rounds=budget.rounds)

    def loss_for(self, task: Task) -> Loss:
        """Return the loss that is minimised for a task, or refuse one that is not for it."""
        return make_loss(self.loss, task, field="options.dp-gd.loss")

    def layout(self, terms: Terms) -> Layout:
        """Return ``total`` (d,), in double precision."""
        return {} if self.curvature == "none" else {"total": ArrayLayout(DOUBLE, (terms.dimension,), LARGEST_PRODUCT)}

    def sends(self, samples: int, noise_variance: float) -> bool:  # noqa: ARG002
        """Return whether there is anything to add up."""
        return samples > 0 and self.curvature != "none"

    def draw(self, terms: Terms, rows: Rows, noise: Noise) -> dict[str, Array]:
        """Add the clipped features up, in double precision, and add noise."""
        assert terms.clip_norm is not None
        bound, d, l = terms.clip_norm, terms.dimension, len(rows)  # noqa: E741 (as in the paper)
        total = np.zeros(d)
        for block in noise.blocks(rows):
            total += clipped_total(block.features.astype(np.float64), bound)
        # Norms are clipped up to (d + 10) roundings, and the sum errs by a rounding of all norms together for every row.
        error = (l + d + 10) * UNIT_ROUNDOFF * l * bound
        return {"total": noise.added(total, noise.deviation, sensitivity=bound, error=error)}

    def collect(self, terms: Terms, samples: FloatArray, received: Iterable[tuple[int, Received]]) -> PrivateCurvature:
        """Return what the sum says, with its direction shrunk."""
        assert terms.clip_norm is not None
        variances, total, summed = np.zeros(len(samples)), np.zeros(terms.dimension), 0.0
        for i, upload in received:
            variances[i], summed = upload.noise_variance, summed + float(samples[i])
            total = total + upload.arrays["total"]
        if not summed:
            return PrivateCurvature.unknown(int(samples.sum()), terms.clip_norm)
        return PrivateCurvature.from_mean(
            total,
            math.sqrt(float(variances.sum())),
            summed=int(summed),
            samples=int(samples.sum()),
            bound=terms.clip_norm,
            dtype=SINGLE,
        )

    @one_blas_thread()
    def simulated(self, setting: Setting, coverage: Coverage) -> PrivateCurvature:  # noqa: ARG002 (of all samples)
        """Return what the noisy sums over all devices say."""
        budget, bound = self.budget(setting), clip_norm_of(setting)
        samples, dimension = setting.federation.total_samples, setting.federation.dimension
        held, features = PrivateCurvature.unknown(samples, bound), _uploaded(setting).features
        if math.isfinite(budget.mean_multiplier):
            deviation = budget.mean_multiplier * noise_of_sum(setting) * bound
            noise = setting.streams.at(self.purpose).standard_normal(dimension)
            total = clipped_total(features, bound) + deviation * noise
            held = PrivateCurvature.from_mean(total, deviation, len(features), samples, bound, features.dtype)
        if math.isfinite(budget.moments_multiplier) and dimension > 1:
            held = _with_moments(setting, held, budget.moments_multiplier * noise_of_sum(setting))
        return held

    def noise_levels(self, setting: Setting, coverage: Coverage) -> tuple[FloatArray, FloatArray]:  # noqa: ARG002
        """Return the noise of each device on its sum of features: all of it, or its share if the server sees sums only."""
        multiplier, adding = self.budget(setting).mean_multiplier, sending(setting)
        if math.isinf(multiplier):
            return 0.0 * adding, 0.0 * adding
        deviation = multiplier * noise_of_sum(setting) * clip_norm_of(setting)
        return adding * deviation**2 / np.count_nonzero(adding), 0.0 * adding

    def cost(self, setting: Setting, coverage: Coverage) -> UploadCost:  # noqa: ARG002
        """Charge ``d`` and ``d (d + 1) / 2`` numbers, ``l`` times as many MACs, the eigenvectors, and their download."""
        budget, federation = self.budget(setting), setting.federation
        d, uploading = federation.dimension, setting.code.uploading.astype(np.float64)
        moments = math.isfinite(budget.moments_multiplier)
        numbers = d * math.isfinite(budget.mean_multiplier) + moments * d * (d + 1) / 2
        directions = math.isfinite(budget.mean_multiplier) + moments * min(MOST_DIRECTIONS, d)
        cost = UploadCost.charged(
            setting,
            uploading * numbers,
            federation.samples * (uploading * numbers + 2.0 * d * directions),
            float(uploading.sum()) * numbers + moments * 20.0 * MOST_DIRECTIONS * float(d) ** 2,
        )
        return replace(cost, upload_s=cost.upload_s + setting.timing().receiving_s(32 * d * directions))

    def releases(self, setting: Setting, coverage: Coverage, device: int) -> tuple[Release, ...]:  # noqa: ARG002
        """Return the mechanisms of what a device sends, if it takes part."""
        if not setting.code.uploading[device]:
            return ()
        return tuple(Release(name, mechanism) for name, mechanism in self.budget(setting).uploads)

    def mechanism(
        self,
        terms: Terms,
        noise_variance: float,
        label_noise_variance: float,  # noqa: ARG002 (it says nothing about labels)
        samples: int,  # noqa: ARG002 (of all of them)
    ) -> GaussianMechanism | None:
        """Return the sum of the features: one sample changes it by ``B`` at most."""
        if terms.clip_norm is None or noise_variance == 0:
            return None
        return GaussianMechanism(math.sqrt(noise_variance) / terms.clip_norm)

    def agreed_noise(self, terms: Terms) -> AgreedNoise | None:
        """Return the noise of the sum of the features with its share of the budget."""
        if terms.target is None or terms.clip_norm is None:
            return None
        multiplier = terms.target.multiplier_for_share(MEAN_SHARE)
        return AgreedNoise((multiplier * terms.clip_norm) ** 2, 0.0, GaussianMechanism(multiplier))

    def sensitivities(self, terms: Terms, samples: int) -> tuple[float, float]:  # noqa: ARG002 (of all of them)
        """Return ``B``, and 0 about labels."""
        return (math.inf if terms.clip_norm is None else terms.clip_norm), 0.0

    def require_possible(self, setting: Setting, coverage: Coverage) -> None:  # noqa: ARG002
        """Refuse a setting without a target or a clip norm, and second moments that are too large to hold."""
        budget = self.budget(setting)
        clip_norm_of(setting)
        if budget.curvature == "second-moments" and setting.federation.dimension > LARGEST_GRAM:
            raise InputError(
                f"features.dimension = {setting.federation.dimension} is too large to hold second moments (at most "
                f'{LARGEST_GRAM}): use fewer features, or curvature = "mean".'
            )

    def depends_on(self, code: Code) -> Code:
        """Return a blank code with the clip norm: nothing is coded."""
        return replace(code.uncoded(), clip_norm=code.clip_norm)

    def describe(self) -> str:
        """Return what is sent."""
        return {"none": "none", "mean": "mean + noise"}.get(self.curvature, "mean, second moments + noise")


def _uploaded(setting: Setting) -> Rows:
    """Return the rows of all devices that take part; those of the others are taken to be like them."""
    federation, uploading = setting.federation, setting.code.uploading
    if uploading.all():
        return Rows(federation.features, federation.labels)
    chosen = np.repeat(uploading, federation.samples)
    return Rows(federation.features[chosen], federation.labels[chosen])


def _with_moments(setting: Setting, held: PrivateCurvature, multiplier: float) -> PrivateCurvature:
    """Return the curvature with the directions of the leading eigenvectors shrunk as well."""
    rows, bound = _uploaded(setting), held.row_norm
    weights = clip_weights(held.geometry.norms(rows.features), bound)
    gram = compute_gram([replace(rows, weights=weights)], setting.workers).features
    moments = held.geometry.forward(held.geometry.forward(gram).T)
    deviation = multiplier * bound**2
    draws = setting.streams.at("private-moments").standard_normal(moments.shape)
    moments = moments + deviation * (draws + draws.T) / 2
    edge = math.sqrt(2 * len(moments)) * deviation
    values, vectors = _leading(moments)
    real = values > edge
    values, vectors = values[real], vectors[:, real]
    # Noise pushes an eigenvalue e out to e + edge^2 / (4 e).
    values = (values + np.sqrt(values**2 - edge**2)) / 2
    shrunk = edge / (values + edge)
    energy = (float(np.trace(moments)) - float(np.sum((1 - shrunk) * values))) / len(rows)
    row_norm = math.sqrt(min(max(energy, 0.1 * bound**2), bound**2))
    geometry = Geometry(
        (*held.geometry.directions, vectors.astype(rows.features.dtype)),
        (*held.geometry.factors, np.sqrt(shrunk)),
    )
    return PrivateCurvature(geometry, edge * (setting.federation.total_samples / len(rows)), row_norm)


def _leading(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the largest eigenvalues, at most `MOST_DIRECTIONS`, and their vectors."""
    size = len(matrix)
    if size <= 4 * MOST_DIRECTIONS:
        values, vectors = scipy.linalg.eigh(matrix)
        return values[-MOST_DIRECTIONS:], vectors[:, -MOST_DIRECTIONS:]
    start = np.ones(size)  # a fixed start makes the result reproducible
    values, vectors = scipy.sparse.linalg.eigsh(matrix, k=MOST_DIRECTIONS, which="LA", v0=start)
    return values, vectors
