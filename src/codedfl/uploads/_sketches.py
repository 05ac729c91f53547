"""Private sketches: fresh Gaussian projections of the features with noise, one for each round, uploaded before the first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from codedfl._validation import require_at_least
from codedfl.coding import CodedData, Rows, add_factors, compute_gram, encode_all, sample_factors
from codedfl.errors import InputError
from codedfl.privacy import CodedMechanism, Noise, PrivacyAccountant, PrivacyTarget, Release
from codedfl.setting import LARGEST_GRAM, Code, Setting
from codedfl.typing import FloatArray
from codedfl.uploads._coded import noise_of_coded
from codedfl.uploads._factor import CodedFactor, draw_factors
from codedfl.uploads._rows import CodedRows
from codedfl.uploads._upload import (
    AgreedNoise,
    Array,
    Coverage,
    Layout,
    Received,
    Terms,
    Upload,
    UploadCost,
    clip_norm_of,
    require_target,
)


@dataclass(frozen=True)
class Sketches(Upload[tuple[CodedData, ...]]):
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

    name = "sketches"
    purpose = "private-sketches"
    message = "sketches of the features"
    is_coded = True
    tells_of_labels = False

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

    @property
    def can_be_summed(self) -> bool:
        """True: if the server sees sums only, devices send rows."""
        return True

    @staticmethod
    def sends_rows(terms: Terms) -> bool:
        """Return whether devices send rows: a factor unless rows are added up in secret, or are too few for a factor."""
        return terms.sums_only or terms.coded_samples < terms.dimension

    def _part(self, terms: Terms) -> CodedRows | CodedFactor:
        """Return one of the sketches, as an upload without labels."""
        return CodedRows() if self.sends_rows(terms) else CodedFactor()

    def _array(self, terms: Terms) -> str:
        """Return the array of that upload in which the sketch is."""
        return "features" if self.sends_rows(terms) else "factor"

    def layout(self, terms: Terms) -> Layout:
        """Return ``sketch-1`` to ``sketch-T``, each (c, d) or a triangle (d, d)."""
        inner = _without_labels(terms)
        part = self._part(terms).layout(inner)[self._array(terms)]
        return {f"sketch-{t + 1}": part for t in range(self.sketches)}

    def draw(self, terms: Terms, rows: Rows, noise: Noise) -> dict[str, Array]:
        """Draw one after the other from the features."""
        inner, features = _without_labels(terms), _features(rows)
        if self.sends_rows(terms):
            drawn = [CodedRows().draw(inner, features, noise)["features"] for _ in range(self.sketches)]
        else:
            factors = draw_factors(inner, features, noise, self.sketches)
            drawn = [factor.astype(rows.features.dtype) for factor in factors]
        return {f"sketch-{t + 1}": sketch for t, sketch in enumerate(drawn)}

    def collect(
        self, terms: Terms, samples: FloatArray, received: Iterable[tuple[int, Received]]
    ) -> tuple[CodedData, ...]:
        """Return the sum of each sketch over devices."""
        inner, part, name, uploads = _without_labels(terms), self._part(terms), self._array(terms), list(received)
        no_labels = np.zeros((terms.coded_samples, 0), np.float32)

        def one(arrays: Mapping[str, Array], t: int) -> dict[str, Array]:
            return {name: arrays[f"sketch-{t + 1}"], "labels": no_labels}

        held: tuple[CodedData, ...] = ()
        for t in range(self.sketches):
            each = ((i, replace(upload, arrays=one(upload.arrays, t))) for i, upload in uploads)
            held += part.collect(inner, samples, each)
        return held

    def simulated(self, setting: Setting, coverage: Coverage) -> tuple[CodedData, ...]:
        """Return the sum of each sketch over devices, each with streams of its own; sums of rows are drawn at once if cheaper."""
        code, bound = self.code(setting, coverage), clip_norm_of(setting)
        devices = [_features(rows).clipped(bound) for rows in setting.uploading_rows]
        streams = code.streams(setting.streams).child(self.purpose)
        if not self.sends_rows(Terms.of(setting)):
            received: list[list[FloatArray]] = [[] for _ in range(self.sketches)]
            sending = np.flatnonzero(code.uploading)
            for i in sending:
                gram = compute_gram([devices[i]], setting.workers)
                rngs = (streams.at("coding-factor", device=int(i), round=sketch) for sketch in range(self.sketches))
                drawn = sample_factors(
                    gram, code.coded_samples, noise_variance=float(code.noise_variance[i]), rngs=rngs
                )
                for factors, factor in zip(received, drawn, strict=True):
                    factors.append(factor)
            dimension, total = setting.federation.dimension, float(code.noise_variance[sending].sum())
            dtype = setting.federation.features.dtype
            return tuple(add_factors(factors, code.coded_samples, dimension, total, dtype) for factors in received)
        gram_of_sum = compute_gram(devices, setting.workers) if code.encoder != "direct" else None
        return tuple(
            encode_all(
                devices,
                code.coded_samples,
                noise_variance=code.uploading * code.noise_variance,
                label_noise_variance=code.label_noise_variance,
                streams=streams,
                batch=sketch,
                encoder=code.encoder,
                gram=gram_of_sum,
                workers=setting.workers,
            )
            for sketch in range(self.sketches)
        )

    def rows_held(self, setting: Setting, coverage: Coverage) -> int:  # noqa: ARG002
        """Return the rows of all sketches."""
        terms = Terms.of(setting)
        return self.sketches * (terms.coded_samples if self.sends_rows(terms) else terms.dimension)

    def noise_in(self, held: tuple[CodedData, ...]) -> float:
        """Return ``sum_i sigma_i^2``."""
        return noise_of_coded(held)

    def mechanism_in(self, setting: Setting) -> CodedMechanism:
        """Return the mechanism of all sketches of a device to whoever sees them."""
        return self._mechanism(require_target(setting, "private sketches"), setting.code.coded_samples)

    def _mechanism(self, target: PrivacyTarget, coded_samples: int) -> CodedMechanism:
        rows = self.sketches * coded_samples
        return CodedMechanism(rows, _ratio(target, rows, self.budget_share))

    def agreed_noise(self, terms: Terms) -> AgreedNoise | None:
        """Return the noise at which all sketches of a device use their share of the target."""
        if terms.target is None or terms.clip_norm is None:
            return None
        mechanism = self._mechanism(terms.target, terms.coded_samples)
        return AgreedNoise(terms.clip_norm**2 / mechanism.signal_to_noise, 0.0, mechanism)

    def code(self, setting: Setting, coverage: Coverage) -> Code:  # noqa: ARG002 (as for coded data)
        """Return the code with the noise of each device; there are no labels to add noise to."""
        uploading = setting.code.uploading
        noise = clip_norm_of(setting) ** 2 / self.mechanism_in(setting).signal_to_noise
        if require_target(setting, "private sketches").sums_only:
            noise /= int(np.count_nonzero(uploading))
        each = np.full(len(uploading), noise)
        return replace(setting.code, noise_variance=each, label_noise_variance=0 * each)

    def noise_levels(self, setting: Setting, coverage: Coverage) -> tuple[FloatArray, FloatArray]:
        """Return the variances that each device adds."""
        code = self.code(setting, coverage)
        return code.uploading * code.noise_variance, code.label_noise_variance

    def releases(self, setting: Setting, coverage: Coverage, device: int) -> tuple[Release, ...]:  # noqa: ARG002
        """Return all sketches of a device as one mechanism."""
        if not setting.code.uploading[device]:
            return ()
        return (Release(self.message, self.mechanism_in(setting)),)

    def mechanism(
        self, terms: Terms, noise_variance: float, label_noise_variance: float, samples: int
    ) -> CodedMechanism | None:
        """Return one upload of ``T c`` rows without labels."""
        inner = replace(_without_labels(terms), coded_samples=self.coded_rows(terms))
        return CodedRows().mechanism(inner, noise_variance, label_noise_variance, samples)

    def sensitivities(self, terms: Terms, samples: int) -> tuple[float, float]:  # noqa: ARG002 (of no account)
        """Return the bound on the norm of a sample, and 0 about labels."""
        return (math.inf if terms.clip_norm is None else terms.clip_norm), 0.0

    def largest_ratio(self, terms: Terms, epsilon: float, delta: float) -> float:
        """Return the signal-to-noise ratio of a budget for ``T c`` rows."""
        return CodedRows().largest_ratio(replace(terms, coded_samples=self.coded_rows(terms)), epsilon, delta)

    def rounding_delta(
        self, terms: Terms, *, samples: int, noise_variance: float, label_noise_variance: float, epsilon: float
    ) -> float:
        """Return the sum of what the sketches add, one by one."""
        each = self._part(terms).rounding_delta(
            _without_labels(terms),
            samples=samples,
            noise_variance=noise_variance,
            label_noise_variance=label_noise_variance,
            epsilon=epsilon,
        )
        return min(1.0, self.sketches * each)

    def coded_rows(self, terms: Terms) -> int:
        """Return ``T c``."""
        return self.sketches * terms.coded_samples

    def cost(self, setting: Setting, coverage: Coverage) -> UploadCost:  # noqa: ARG002
        """Charge each sketch as coded data without labels; factors of one device share their ``X_i^T X_i``."""
        d, c = float(setting.federation.dimension), float(setting.code.coded_samples)
        uploading, samples = setting.code.uploading.astype(np.float64), setting.federation.samples
        if self.sends_rows(Terms.of(setting)):
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

    def require_possible(self, setting: Setting, coverage: Coverage) -> None:  # noqa: ARG002
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

    def describe(self) -> str:
        """Return ``projection + noise, for each round``."""
        return "projection + noise, for each round"


def _without_labels(terms: Terms) -> Terms:
    return replace(terms, outputs=0)


def _features(rows: Rows) -> Rows:
    """Return rows without labels."""
    return Rows(rows.features, rows.labels[:, :0], rows.weights, rows.chosen)


@lru_cache(maxsize=256)
def _ratio(target: PrivacyTarget, rows: int, share: float) -> float:
    """Return the signal-to-noise ratio at which coded rows use a share of a target."""
    accountant = PrivacyAccountant(coded_samples=rows, epsilon=share * target.epsilon, delta=share * target.delta)
    return accountant.signal_to_noise
