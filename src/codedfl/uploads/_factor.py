"""The triangular factor of coded rows: as much information in fewer numbers, and a server that keeps devices apart."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from codedfl.coding import (
    CodedData,
    Gram,
    Rows,
    SubspaceSketch,
    add_factors,
    compute_gram,
    require_rows_for_factor,
    sample_factors,
    sketch_factors,
)
from codedfl.errors import InputError
from codedfl.privacy import Noise, rounding_delta
from codedfl.setting import Setting
from codedfl.typing import FloatArray
from codedfl.uploads._coded import NORMAL_ERROR, Coded, encoded_samples, noise_of_coded, uncovered
from codedfl.uploads._subspace import Rank, rank_within, require_rank
from codedfl.uploads._upload import (
    LARGEST_ENTRY,
    SINGLE,
    UNIT_ROUNDOFF,
    Array,
    ArrayLayout,
    Coverage,
    HeldT,
    Layout,
    Received,
    Terms,
    UploadCost,
)

BLUR = 1 / 16
"""Standard deviation of the blur on a factor, relative to the noise of the same column."""

CHI_ERROR = 2.0**-48
"""Mean distance of the root of a chi-square number of numpy from an ideal one, relative to the root of its degrees of freedom:
an assumption."""

LARGEST_FACTORS = 2**29
"""Numbers of all factors together that the server holds (2 GiB)."""


@dataclass(frozen=True)
class _Factor(Coded[HeldT]):
    """The device's half: the factor, drawn from its own law.

    A factor reveals as much as its rows, takes ``(d + o)(d + o + 1) / 2`` numbers whatever ``c``, and allows full-batch steps
    only.
    """

    name = "factor"
    purpose = "coding-factor"
    message = "factor of coded rows"

    def layout(self, terms: Terms) -> Layout:
        """Return ``factor`` (d + o, d + o)."""
        return {"factor": ArrayLayout(SINGLE, (terms.dimension + terms.outputs,) * 2, LARGEST_ENTRY, upper=True)}

    def draw(self, terms: Terms, rows: Rows, noise: Noise) -> dict[str, Array]:
        """Draw the factor from the second moments of the clipped rows; see `draw_factors`."""
        (factor,) = draw_factors(terms, rows, noise, 1)
        return {"factor": factor.astype(rows.features.dtype)}

    def rounding_delta(
        self, terms: Terms, *, samples: int, noise_variance: float, label_noise_variance: float, epsilon: float
    ) -> float:
        """Return what the arithmetic of a device adds to delta.

        The factor is ``R = A F``, and its error is relative to a blur of ``b sigma``. With
        ``r = B^2 / sigma^2 + B_Y^2 / sigma_Y^2``, ``n = d + o`` and ``q = l r + n``, the scaled trace of ``F^T F``:
        ``n u (sqrt(c) + n / sqrt(2)) sqrt(q) / b`` of the product, from the diagonal of ``A`` and what is above it, and
        ``(n w + sqrt(c) w') sqrt(n q) / b`` of the random numbers.
        The Gram matrix and its Cholesky factor are exact for a covariance that is off by ``(l + 4 n + 20) u q``, scaled, which
        counts ``sqrt(c / 8)`` times in total variation, hence ``sqrt(2 pi c / 8)`` times here.
        """
        mechanism = self.mechanism(terms, noise_variance, label_noise_variance, samples)
        if mechanism is None:
            return 1.0
        width, coded = terms.dimension + terms.outputs, terms.coded_samples
        trace = samples * mechanism.signal_to_noise + width
        product = width * UNIT_ROUNDOFF * (math.sqrt(coded) + width / math.sqrt(2)) * math.sqrt(trace) / BLUR
        draws = (width * NORMAL_ERROR + math.sqrt(coded) * CHI_ERROR) * math.sqrt(width * trace) / BLUR
        covariance = (samples + 4 * width + 20) * UNIT_ROUNDOFF * trace * math.sqrt(2 * math.pi * coded / 8)
        return rounding_delta(width * (width + 1) // 2, product + draws + covariance, epsilon)

    def describe(self) -> str:
        """Return ``factor of projection + noise``."""
        return f"factor of {self._projection}"

    @property
    def can_be_summed(self) -> bool:
        """False: second moments of devices are added up, which factors are the roots of."""
        return False

    @staticmethod
    def cost_of(setting: Setting, samples: FloatArray, factors: int = 1) -> UploadCost:
        """Charge an upload of triangular factors, with ``n = d + o`` columns.

        A device multiplies out ``Z^T Z`` (``l n^2 / 2``), factorises it (``n^3 / 3``) and multiplies two triangles (``n^3 / 3``).
        The server multiplies out the second moment of every device (``n^3 / 3``) and factorises the sum (``n^3 / 3``).

        Args:
            setting: the fleet and the channel.
            samples: for each device, the samples that it encodes, over all factors, (N,).
            factors: factors that each device sends, if it sends any.
        """
        width = float(setting.federation.dimension + setting.federation.outputs)
        uploading, cube = setting.code.uploading * float(factors), width**3 / 3
        return UploadCost.charged(
            setting,
            uploading * (width * (width + 1) / 2),
            samples * width**2 / 2 + uploading * 2 * cube,
            float(uploading.sum() + factors) * cube,
        )


@dataclass(frozen=True)
class CodedFactor(_Factor[tuple[CodedData, ...]]):
    """Factors, whose second moments the server adds up: the sum is as exact as that of ``N c`` rows.

    Args:
        noise: whether the setting's noise is added.
        budget_share: share of the privacy target, if there is one, that the upload may use.
    """

    def collect(
        self, terms: Terms, samples: FloatArray, received: Iterable[tuple[int, Received]]
    ) -> tuple[CodedData, ...]:
        """Return the factor of the sum of all second moments."""
        variances = np.zeros(len(samples))

        def factors() -> Iterator[FloatArray]:
            for i, upload in received:
                variances[i] = upload.noise_variance
                yield upload.arrays["factor"]

        rest = factors()
        first = next(rest, None)
        every = rest if first is None else itertools.chain((first,), rest)
        coded = add_factors(every, terms.coded_samples, terms.dimension, 0.0, SINGLE if first is None else first.dtype)
        return (replace(coded, noise_variance=float(variances.sum())),)

    def simulated(self, setting: Setting, coverage: Coverage) -> tuple[CodedData, ...]:
        """Draw the factors of every coded batch, and add up second moments."""
        code, samples = setting.code, setting.federation.samples.astype(np.float64)
        noise, label_noise = self.noise_levels(setting, coverage)
        held: tuple[CodedData, ...] = ()
        for batch, rows in enumerate(coverage.coded_rows(code.coded_samples)):
            terms, devices = Terms.of(setting, rows), dict(enumerate(uncovered(setting, coverage, batch)))
            streams = code.streams(setting.streams)
            received = self.drawn(terms, devices, noise, label_noise, streams, setting.workers, batch)
            held += self.collect(terms, samples, received)
        return held

    def rows_held(self, setting: Setting, coverage: Coverage) -> int:
        """Return the rows of all factors of sums."""
        batches = coverage.coded_rows(setting.code.coded_samples)
        return len(batches) * (setting.federation.dimension + setting.federation.outputs)

    def noise_in(self, held: tuple[CodedData, ...]) -> float:
        """Return ``sum_i sigma_i^2``."""
        return noise_of_coded(held)

    def cost(self, setting: Setting, coverage: Coverage) -> UploadCost:
        """Charge for the factor of every coded batch."""
        batches = len(coverage.coded_rows(setting.code.coded_samples))
        return self.cost_of(setting, encoded_samples(setting, coverage, batches).sum(axis=0), batches)

    def require_possible(self, setting: Setting, coverage: Coverage) -> None:
        """Refuse fewer coded rows than columns."""
        columns = setting.federation.dimension + setting.federation.outputs
        require_rows_for_factor(min(coverage.coded_rows(setting.code.coded_samples)), columns)


@dataclass(frozen=True)
class SketchedFactor(_Factor[SubspaceSketch]):
    """Factors that the server sketches, as curvature, instead of the devices.

    They cost far more to make and to send than sketches, and have the privacy of the coded rows.

    Args:
        noise: whether the setting's noise is added to the coded rows.
        budget_share: share of the privacy target, if there is one, that the upload may use.
        rank: ``r``, no more than the data has columns.
    """

    rank: Rank = "auto"

    stands_for_data = False

    def __post_init__(self) -> None:
        require_rank(self.rank)

    def rank_in(self, dimension: int) -> int:
        """Return ``r``."""
        return rank_within(dimension, self.rank)

    def collect(self, terms: Terms, samples: FloatArray, received: Iterable[tuple[int, Received]]) -> SubspaceSketch:
        """Return the sketch of every device's second moments along the leading eigenvectors of their sum."""
        variances, factors = np.zeros(len(samples)), {}
        for i, upload in received:
            variances[i], factors[i] = upload.noise_variance, upload.arrays["factor"]
        return sketch_factors(
            factors,
            terms.coded_samples,
            self.rank_in(terms.dimension),
            noise_variance=variances,
            samples=samples,
            dimension=terms.dimension,
        )

    def cost(self, setting: Setting, coverage: Coverage) -> UploadCost:  # noqa: ARG002 (devices encode all rows)
        """Charge factors, and the server ``d^2 (d / 3 + 20 r)`` more for eigenvectors."""
        federation, d = setting.federation, setting.federation.dimension
        sizes = np.where(setting.code.uploading, federation.samples, 0).astype(np.float64)
        eigenvectors = float(d) ** 2 * (d / 3 + 20 * self.rank_in(d))
        return self.cost_of(setting, sizes).with_server_macs(setting, eigenvectors)

    def require_possible(self, setting: Setting, coverage: Coverage) -> None:  # noqa: ARG002
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


def draw_factors(terms: Terms, rows: Rows, noise: Noise, count: int) -> list[FloatArray]:
    """Draw factors of a device's coded rows, each independent of the others, in float64.

    A factor has no noise that is added last: its noise is inside. So where noise is drawn exactly, a blur with a sixteenth of the
    standard deviation of the noise is added to its upper triangle. To add independent noise to the ideal factor cannot make it
    reveal more, and no rounding on the way to ``R`` shows through it. It raises the variance of the error of second moments by
    at most 1/128, up to terms of (d + o) / c of that.

    Args:
        terms: what everybody knows.
        rows: the samples of the device.
        noise: its noise.
        count: number of factors.
    """
    width = rows.features.shape[1] + rows.labels.shape[1]
    total = np.zeros((width, width))
    for block in terms.clipped(rows, noise):
        total += compute_gram([block]).matrix
    factors = sample_factors(
        Gram(total, rows.features.shape[1], len(rows)),
        terms.coded_samples,
        noise_variance=noise.variance,
        label_noise_variance=noise.label_variance,
        rngs=[noise.rng] * count,
    )
    return [_blurred(factor, terms.dimension, noise) for factor in factors] if noise.exact else factors


def _blurred(factor: FloatArray, dimension: int, noise: Noise) -> FloatArray:
    row, column = np.triu_indices(len(factor))
    for where, deviation in ((column < dimension, noise.deviation), (column >= dimension, noise.label_deviation)):
        places = row[where], column[where]
        factor[places] = noise.added(factor[places], BLUR * deviation)
    # A triangle with a negative number on its diagonal stands for the same second moments as one with that row turned round.
    factor[np.diag(factor) < 0] *= -1
    return factor
