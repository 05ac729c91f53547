"""Coded rows: what devices of SCFL upload, and the server adds up (Sec. III-A)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from codedfl.coding import CodedData, Rows, encode, encode_all
from codedfl.errors import InputError
from codedfl.privacy import Noise, rounding_delta
from codedfl.setting import Setting
from codedfl.typing import FloatArray
from codedfl.uploads._coded import NORMAL_ERROR, Coded, encoded_samples, noise_of_coded, uncovered
from codedfl.uploads._upload import (
    LARGEST_ENTRY,
    SINGLE,
    UNIT_ROUNDOFF,
    Array,
    ArrayLayout,
    Coverage,
    Layout,
    Received,
    Terms,
    UploadCost,
)


@dataclass(frozen=True)
class CodedRows(Coded[tuple[CodedData, ...]]):
    """``c`` coded rows ``G_i [X_i Y_i] + N_i`` of every device, which the server adds up: one dataset for every coded batch.

    Args:
        noise: whether the setting's noise is added.
        budget_share: share of the privacy target, if there is one, that the upload may use.

    Example:
        >>> from codedfl.experiment import build_experiment, load_config
        >>> from codedfl.schemes import make_scheme
        >>> setting = build_experiment(load_config()).setting
        >>> (coded,) = CodedRows().simulated(setting, make_scheme("scfl").plan(setting))
        >>> coded.features.shape == (setting.code.coded_samples, setting.federation.dimension)
        True
    """

    name = "rows"
    purpose = "coding"
    message = "coded rows"
    has_rows = True

    def layout(self, terms: Terms) -> Layout:
        """Return ``features`` (c, d) and ``labels`` (c, o)."""
        return {
            "features": ArrayLayout(SINGLE, (terms.coded_samples, terms.dimension), LARGEST_ENTRY),
            "labels": ArrayLayout(SINGLE, (terms.coded_samples, terms.outputs), LARGEST_ENTRY),
        }

    def draw(self, terms: Terms, rows: Rows, noise: Noise) -> dict[str, Array]:
        """Project the clipped rows, block by block, and add the noise last."""
        features: FloatArray = np.zeros((terms.coded_samples, terms.dimension))
        labels: FloatArray = np.zeros((terms.coded_samples, terms.outputs))
        for place, block in enumerate(terms.clipped(rows, noise)):
            part = encode(block, terms.coded_samples, noise_variance=0.0, rng=noise.rng)
            features, labels = (
                (part.features, part.labels) if place == 0 else (features + part.features, labels + part.labels)
            )
        dtype = rows.features.dtype
        return {
            "features": noise.added(features, noise.deviation).astype(dtype, copy=False),
            "labels": noise.added(labels, noise.label_deviation).astype(dtype, copy=False),
        }

    def collect(
        self,
        terms: Terms,  # noqa: ARG002 (rows say it all)
        samples: FloatArray,
        received: Iterable[tuple[int, Received]],
    ) -> tuple[CodedData, ...]:
        """Return the global coded dataset ``(sum_i X~_i, sum_i Y~_i)``, (2) in the paper."""
        features: FloatArray | None = None
        labels: FloatArray | None = None
        variances = np.zeros(len(samples))
        for i, upload in received:
            variances[i], arrays = upload.noise_variance, upload.arrays
            features = arrays["features"].copy() if features is None else np.add(features, arrays["features"], features)
            labels = arrays["labels"].copy() if labels is None else np.add(labels, arrays["labels"], labels)
        if features is None or labels is None:
            raise InputError(
                "no device uploaded coded data: let at least one take part, or use a scheme without an upload."
            )
        return (CodedData(features, labels, float(variances.sum())),)

    def simulated(self, setting: Setting, coverage: Coverage) -> tuple[CodedData, ...]:
        """Return the sum of all devices' rows for every coded batch: drawn at once from its law where that is cheaper."""
        code = setting.code
        noise, label_noise = self.noise_levels(setting, coverage)
        # The Gram matrix is that of the rows as they are.
        as_they_are = coverage.coded_for_all and code.clip_norm is None and code.uploading.all()
        return tuple(
            encode_all(
                uncovered(setting, coverage, batch),
                rows,
                noise_variance=noise,
                label_noise_variance=label_noise,
                streams=code.streams(setting.streams),
                batch=batch,
                encoder=code.encoder,
                clip_norm=code.clip_norm,
                gram=setting.known_gram if as_they_are and code.encoder != "direct" else None,
                workers=setting.workers,
            )
            for batch, rows in enumerate(coverage.coded_rows(code.coded_samples))
        )

    def rows_held(self, setting: Setting, coverage: Coverage) -> int:
        """Return the coded rows of all batches."""
        return sum(coverage.coded_rows(setting.code.coded_samples))

    def noise_in(self, held: tuple[CodedData, ...]) -> float:
        """Return ``sum_i sigma_i^2``."""
        return noise_of_coded(held)

    def cost(self, setting: Setting, coverage: Coverage) -> UploadCost:
        """Charge for the rows that devices encode in every coded batch, and for what they send."""
        batches = coverage.coded_rows(setting.code.coded_samples)
        encoded = np.array(batches, np.float64) @ encoded_samples(setting, coverage, len(batches))
        return self.cost_of(setting, sum(batches), encoded)

    @staticmethod
    def cost_of(setting: Setting, coded_rows: int, samples_coded_with: FloatArray) -> UploadCost:
        """Charge an upload of ``coded_rows`` rows.

        Args:
            setting: the fleet and the channel.
            coded_rows: rows that each device sends, if it sends any.
            samples_coded_with: for each device, the sum over its samples of the rows they are projected to, (N,).
        """
        width = setting.federation.dimension + setting.federation.outputs
        numbers = setting.code.uploading * float(coded_rows * width)
        return UploadCost.charged(setting, numbers, samples_coded_with * width, float(numbers.sum()))

    def rounding_delta(
        self, terms: Terms, *, samples: int, noise_variance: float, label_noise_variance: float, epsilon: float
    ) -> float:
        """Return what the arithmetic of a device adds to delta.

        The error is ``(l + d + 10) u sqrt(c l) sqrt(l r)`` of clipping and of the product ``G X``, by
        ``|fl(G X) - G X| <= l u |G| |X|`` with ``r = B^2 / sigma^2 + B_Y^2 / sigma_Y^2``, and ``c l w sqrt(r)`` with the error
        ``w`` of numpy's normal numbers.
        """
        mechanism = self.mechanism(terms, noise_variance, label_noise_variance, samples)
        if mechanism is None:
            return 1.0
        ratio, coded = mechanism.signal_to_noise, terms.coded_samples
        roundings = (samples + terms.dimension + 10) * UNIT_ROUNDOFF
        product = roundings * math.sqrt(coded * samples) * math.sqrt(samples * ratio)
        draws = coded * samples * NORMAL_ERROR * math.sqrt(ratio)
        return rounding_delta(coded * (terms.dimension + terms.outputs), product + draws, epsilon)

    def describe(self) -> str:
        """Return ``projection + noise``, or ``weighted projection`` without noise."""
        return self._projection

    @property
    def can_be_summed(self) -> bool:
        """True: the server adds rows up."""
        return True
