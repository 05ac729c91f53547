"""The subspace sketch: what the second moments of a device do to a few public directions, kept apart at the server."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from codedfl._validation import require_at_least
from codedfl.coding import Rows, SubspaceSketch, public_test_matrix, sketch_rows
from codedfl.errors import InputError
from codedfl.privacy import Noise, Release, sketch_sensitivity
from codedfl.setting import Code, Setting
from codedfl.typing import FloatArray
from codedfl.uploads._upload import (
    DOUBLE,
    LARGEST_PRODUCT,
    UNIT_ROUNDOFF,
    Array,
    ArrayLayout,
    Coverage,
    GaussianUpload,
    Layout,
    Received,
    Terms,
    UploadCost,
)

Rank = int | Literal["auto"]
"""Number of sketched directions ``r``; ``auto`` for a quarter of the columns, within `USUAL_RANKS`."""

USUAL_RANKS = 16, 60

LARGEST_SKETCH = 2**28
"""Numbers of all sketches together that the server holds (2 GiB)."""


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
class Subspace(GaussianUpload[SubspaceSketch]):
    """Sketches ``X_S^T [X_S Omega, Y_S]`` and ``||X_S||^2`` of every device that takes part, from some of its rows.

    Args:
        rank: ``r``, no more than the data has columns.
        rows: ``|S|``, at most; no more than a device has.
        noise: whether the setting's noise variances are added to what is sent.
    """

    rank: Rank = "auto"
    rows: int = 100
    noise: bool = False

    name = "subspace"
    purpose = "sketch"
    message = "subspace sketch"
    is_coded = True
    declares_rows = True

    def __post_init__(self) -> None:
        require_rank(self.rank)
        require_at_least("sketch_rows", self.rows, 1)

    def rank_in(self, dimension: int) -> int:
        """Return ``r``."""
        return rank_within(dimension, self.rank)

    def sketched(self, dimension: int) -> tuple[int, int]:
        """Return ``r`` and ``|S|``."""
        return self.rank_in(dimension), self.rows

    def rows_behind(self, samples: int) -> int:
        """Return ``|S_i|``."""
        return min(self.rows, samples)

    def sends(self, samples: int, noise_variance: float) -> bool:  # noqa: ARG002
        """Return whether there is anything to sketch."""
        return samples > 0

    def test_matrix(self, terms: Terms) -> FloatArray:
        """Return ``Omega``, which everybody knows."""
        return public_test_matrix(terms.dimension, self.rank_in(terms.dimension), terms.public)

    def layout(self, terms: Terms) -> Layout:
        """Return ``products`` (d, r), ``label_products`` (d, o) and ``energy`` (1,), in double precision."""
        d, rank = terms.dimension, self.rank_in(terms.dimension)
        return {
            "products": ArrayLayout(DOUBLE, (d, rank), LARGEST_PRODUCT),
            "label_products": ArrayLayout(DOUBLE, (d, terms.outputs), LARGEST_PRODUCT),
            "energy": ArrayLayout(DOUBLE, (1,), LARGEST_PRODUCT, not_negative=True),
        }

    def draw(self, terms: Terms, rows: Rows, noise: Noise) -> dict[str, Array]:
        """Draw rows without replacement and sketch them; noise is added to every number."""
        omega, (count, d) = self.test_matrix(terms), (self.rows_behind(len(rows)), terms.dimension)
        taken = rows.taking(noise.rng.permutation(len(rows))[:count])
        products: FloatArray = np.zeros((d, omega.shape[1]))
        label_products: FloatArray = np.zeros((d, terms.outputs))
        energy: FloatArray = np.zeros(1)
        for block in terms.clipped(taken, noise):
            parts = sketch_rows(block, omega)
            products, label_products, energy = products + parts[0], label_products + parts[1], energy + parts[2]
        # Summation in any order errs by so many roundings of the sum of absolute values, and norms are clipped up to a few more.
        # The sensitivity about labels is that of a sketch of all rows: if it is of some, noise is raised more than it has to be.
        bound = math.inf if terms.clip_norm is None else terms.clip_norm
        label_bound = math.inf if terms.label_bound is None else terms.label_bound
        roundings = (count + 2 * d + 16) * math.sqrt(omega.shape[1]) + count * d
        error, unit = roundings * UNIT_ROUNDOFF * count * bound**2, UNIT_ROUNDOFF * count * bound * label_bound
        both, about_labels = math.sqrt(2) * bound**2, bound * label_bound
        if noise.exact:  # one sample changes products and energy together
            told = noise.added(np.append(products, energy), noise.deviation, sensitivity=both, error=error)
            products, energy = told[:-1].reshape(products.shape), told[-1:]
        else:
            products = noise.added(products, noise.deviation)
        label_products = noise.added(
            label_products, noise.label_deviation, sensitivity=about_labels, error=(count + d + 16) * unit
        )
        if not noise.exact:
            energy = noise.added(energy, noise.deviation)
        return {"products": products, "label_products": label_products, "energy": energy}

    def collect(self, terms: Terms, samples: FloatArray, received: Iterable[tuple[int, Received]]) -> SubspaceSketch:
        """Scale what every device sent to all of its rows, and keep devices apart."""
        omega, (total, d) = self.test_matrix(terms), (len(samples), terms.dimension)
        products, label_products = np.zeros((total, d, omega.shape[1])), np.zeros((total, d, terms.outputs))
        energy, rows, entry_variance = np.zeros((3, total))
        for i, upload in received:
            scale = float(samples[i]) / upload.rows
            products[i] = scale * upload.arrays["products"]
            label_products[i] = scale * upload.arrays["label_products"]
            energy[i] = scale * float(upload.arrays["energy"][0])
            rows[i], entry_variance[i] = upload.rows, scale**2 * upload.noise_variance
        return SubspaceSketch(omega, products, label_products, energy, rows, entry_variance)

    def cost(self, setting: Setting, coverage: Coverage) -> UploadCost:  # noqa: ARG002
        """Charge a device that takes part ``d (r + o) + 1`` numbers and ``|S| d (2 r + o + 1)`` MACs; the server keeps them."""
        d, o, uploading = setting.federation.dimension, setting.federation.outputs, setting.code.uploading
        rank = self.rank_in(d)
        return UploadCost.charged(
            setting,
            uploading * float(d * (rank + o) + 1),
            uploading * np.minimum(self.rows, setting.federation.samples) * float(d * (2 * rank + o + 1)),
            0.0,
        )

    def require_possible(self, setting: Setting, coverage: Coverage) -> None:  # noqa: ARG002
        """Refuse sketches that are too large to hold."""
        federation = setting.federation
        numbers = federation.devices * federation.dimension
        numbers *= self.rank_in(federation.dimension) + 2 * federation.outputs
        if numbers > LARGEST_SKETCH:
            raise InputError(
                f"{federation.devices} devices with {federation.dimension} features are too many to keep apart: their sketches"
                f" take {numbers:.3g} numbers, at most {LARGEST_SKETCH} fit; lower options.ccfl.rank, or leave this scheme out."
            )

    def releases(self, setting: Setting, coverage: Coverage, device: int) -> tuple[Release, ...]:
        """Return the sketch of a device that has something to sketch."""
        return self._releases(setting, coverage, device)

    def releases_of_features(self, setting: Setting, coverage: Coverage, device: int) -> tuple[Release, ...]:
        """Return the sketch as if infinite noise hid labels, whatever they are bounded by."""
        return self._releases(setting, coverage, device, labels=False)

    def _releases(
        self, setting: Setting, coverage: Coverage, device: int, *, labels: bool = True
    ) -> tuple[Release, ...]:
        samples = int(setting.federation.samples[device])
        if not setting.code.uploading[device] or samples == 0:
            return ()
        noise, label_noise = (float(levels[device]) for levels in self.noise_levels(setting, coverage))
        terms = Terms.of(setting)
        if not labels:
            terms, label_noise = replace(terms, label_bound=0.0), math.inf
        return (Release(self.message, self.mechanism(terms, noise, label_noise, samples)),)

    def sensitivities(self, terms: Terms, samples: int) -> tuple[float, float]:
        """Return `codedfl.privacy.sketch_sensitivity`."""
        if terms.clip_norm is None or terms.label_bound is None:
            return math.inf, math.inf
        return sketch_sensitivity(terms.clip_norm, terms.label_bound, some_rows=self.rows < samples)

    def mi_dp(self, setting: Setting, coverage: Coverage) -> tuple[float | None, str]:
        """Return None, as MI-DP says nothing about sketches; infinity without noise."""
        noise, _ = self.noise_levels(setting, coverage)
        if self.noise and np.all(noise[setting.code.uploading & (setting.federation.samples > 0)] > 0):
            return None, "not defined for sketches"
        return math.inf, "no bound: sketch without noise"

    def describe(self) -> str:
        """Return ``subspace sketch``, with its noise."""
        return "subspace sketch + noise" if self.noise else "subspace sketch"

    def in_words(self) -> str:
        """Return what it is a sketch of."""
        return "sketch of second moments"

    @property
    def can_be_summed(self) -> bool:
        """False: the server keeps devices apart."""
        return False

    def depends_on(self, code: Code) -> Code:
        """Return the code with everything blanked out but who takes part, clipping, the draw and, if it is added, the noise."""
        used = replace(code.uncoded(), clip_norm=code.clip_norm, draw=code.draw)
        if not self.noise:
            return used
        return replace(used, noise_variance=code.noise_variance, label_noise_variance=code.label_noise_variance)
