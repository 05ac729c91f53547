"""Second moments of every device, which least squares needs nothing besides: exact, or by the Gaussian mechanism."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import scipy.linalg

from codedfl.coding import Gram, Rows, compute_gram
from codedfl.errors import InputError
from codedfl.parallel import one_blas_thread
from codedfl.privacy import GaussianMechanism, Noise, PrivacyTarget, Release
from codedfl.setting import LARGEST_GRAM, Code, Setting
from codedfl.typing import FloatArray
from codedfl.uploads._upload import (
    DOUBLE,
    LARGEST_PRODUCT,
    UNIT_ROUNDOFF,
    AgreedNoise,
    Array,
    ArrayLayout,
    Coverage,
    GaussianUpload,
    HeldT,
    Layout,
    Received,
    Terms,
    Upload,
    UploadCost,
    clip_norm_of,
    noise_of_sum,
    require_target,
    sending,
)

StatisticsMethod = Literal["ridge", "adassp"]
"""How noisy statistics are released and solved: all at once with a ridge by the norm of the noise, or as in AdaSSP."""


def joint_sensitivity(norm_bound: float, label_bound: float) -> float:
    """Return ``sqrt(B^4 + B^2 B_Y^2)``, the most that one sample changes ``(X^T X, X^T Y)`` by in Frobenius norm.

    ``||x x^T||_F = ||x||^2`` and ``||x y^T||_F = ||x|| ||y||``, so a sample with both norms at their bounds reaches it.

    Example:
        >>> round(joint_sensitivity(1.0, 1.0) ** 2, 12)
        2.0
    """
    return norm_bound * math.hypot(norm_bound, label_bound)


@dataclass(frozen=True, eq=False)
class NoisyMoments:
    """What the server knows: statistics of all clipped samples, with noise.

    Args:
        features: ``X^T X + s (E + E^T) / 2``, (d, d).
        cross: ``X^T Y + s_Y F``, (d, o).
        deviation: ``s``.
        cross_deviation: ``s_Y``, equal to ``s`` unless the method is ``adassp``.
        least_eigenvalue: what ``lambda_min(X^T X)`` exceeds with a high probability; 0 if nothing was sent about it.
    """

    features: FloatArray
    cross: FloatArray
    deviation: float
    cross_deviation: float
    least_eigenvalue: float = 0.0


@dataclass(frozen=True)
class _Statistics(Upload[HeldT]):
    """``X_i^T X_i``, of which a device sends the upper triangle row by row, and ``X_i^T Y_i``."""

    is_coded = False

    def layout(self, terms: Terms) -> Layout:
        """Return ``moments`` (d (d + 1) / 2,) and ``cross`` (d, o), in double precision."""
        d = terms.dimension
        return {
            "moments": ArrayLayout(DOUBLE, (d * (d + 1) // 2,), LARGEST_PRODUCT),
            "cross": ArrayLayout(DOUBLE, (d, terms.outputs), LARGEST_PRODUCT),
        }

    def sends(self, samples: int, noise_variance: float) -> bool:  # noqa: ARG002
        """Return whether there is anything to tell."""
        return samples > 0

    @property
    def can_be_summed(self) -> bool:
        """True: the server adds statistics up."""
        return True

    def require_possible(self, setting: Setting, coverage: Coverage) -> None:  # noqa: ARG002
        """Refuse a Gram matrix that is too large to hold."""
        width = setting.federation.dimension + setting.federation.outputs
        if width > LARGEST_GRAM:
            raise InputError(
                f"features.dimension = {setting.federation.dimension} is too large to hold X^T X (at most {LARGEST_GRAM} columns)"
                ": use fewer features, or leave this scheme out."
            )


@dataclass(frozen=True)
class ExactStatistics(_Statistics[Gram]):
    """``X_i^T X_i`` and ``X_i^T Y_i`` of every device, without projection, noise or clipping, so without any privacy guarantee.

    If everybody takes part, their sum is that of all data, which a simulation knows as ``Setting.gram``.

    Example:
        >>> from codedfl.experiment import build_experiment, load_config
        >>> from codedfl.schemes import make_scheme
        >>> setting = build_experiment(load_config()).setting
        >>> cost = ExactStatistics().cost(setting, make_scheme("fed3r").plan(setting))
        >>> int(cost.bits[0])  # 32 (d (d + 1) / 2 + d o), with d = 100 and o = 10
        193600
    """

    name = "statistics"
    purpose = "exact-statistics"
    message = "exact second moments"
    can_have_noise = False

    @property
    def noise(self) -> bool:
        """False: nothing protects them."""
        return False

    def draw(self, terms: Terms, rows: Rows, noise: Noise) -> dict[str, Array]:
        """Return the statistics of the rows as they are."""
        gram = _gram_of(replace(terms, clip_norm=None), rows, noise)
        return {"moments": _packed(gram.features), "cross": gram.cross.copy()}

    def collect(self, terms: Terms, samples: FloatArray, received: Iterable[tuple[int, Received]]) -> Gram:
        """Return their sum; nobody sent ``Y^T Y``, which is NaN in it."""
        d, o, behind = terms.dimension, terms.outputs, 0
        matrix = np.full((d + o, d + o), np.nan)
        matrix[:d] = 0.0
        for i, upload in received:
            matrix[:d, :d] += _unpacked(upload.arrays["moments"], d)
            matrix[:d, d:] += upload.arrays["cross"]
            behind += int(samples[i])
        matrix[d:, :d] = matrix[:d, d:].T
        return Gram(matrix, d, behind)

    def simulated(self, setting: Setting, coverage: Coverage) -> Gram:  # noqa: ARG002 (of all samples)
        """Return the Gram matrix of the data of all devices that take part."""
        if setting.code.uploading.all():
            return setting.gram
        return compute_gram(setting.uploading_rows, setting.workers)

    def cost(self, setting: Setting, coverage: Coverage) -> UploadCost:  # noqa: ARG002
        """Charge who takes part ``d (d + 1) / 2 + d o`` numbers and ``l`` times as many MACs, and the server the additions."""
        d, o = setting.federation.dimension, setting.federation.outputs
        numbers = setting.code.uploading * (d * (d + 1) / 2 + d * o)
        return UploadCost.charged(setting, numbers, setting.federation.samples * numbers, float(numbers.sum()))

    def releases(self, setting: Setting, coverage: Coverage, device: int) -> tuple[Release, ...]:  # noqa: ARG002
        """Return the statistics of a device that takes part, which nothing protects."""
        return (Release(self.message, None),) if setting.code.uploading[device] else ()

    def mechanism(self, *_: object) -> None:
        """Return None: nothing protects them."""

    def sensitivities(self, terms: Terms, samples: int) -> tuple[float, float]:  # noqa: ARG002
        """Return infinity: samples are not clipped."""
        return math.inf, math.inf

    def rounding_delta(
        self,
        terms: Terms,  # noqa: ARG002
        *,
        samples: int,  # noqa: ARG002
        noise_variance: float,  # noqa: ARG002
        label_noise_variance: float,  # noqa: ARG002
        epsilon: float,  # noqa: ARG002
    ) -> float:
        """Return 1: there is no guarantee to begin with."""
        return 1.0

    def describe(self) -> str:
        """Return ``exact second moments``."""
        return self.message

    def depends_on(self, code: Code) -> Code:
        """Return a code that only says who takes part: nothing is coded."""
        return code.uncoded()


@dataclass(frozen=True)
class NoisyStatistics(_Statistics[NoisyMoments], GaussianUpload[NoisyMoments]):
    """``X_i^T X_i + s (E + E^T) / 2`` and ``X_i^T Y_i + s F`` of rows clipped to ``B``: one Gaussian mechanism on each device.

    One sample changes both together by at most `joint_sensitivity`, which ``s`` is the noise multiplier times. If the server sees
    sums only, all shares of noise add up to one mechanism's; if it sees each message, each of the ``N`` devices that upload adds
    all of it, so the sum has ``N`` times the variance. A simulation draws the sum, which has the same law.

    With ``adassp`` the budget is divided by three, in equal shares of ``mu^2``: for the least eigenvalue (sensitivity
    ``B^2``), for ``X^T X`` (``B^2``) and for ``X^T Y`` (``B B_Y``). The sum of the devices' least eigenvalues is not
    above that of the sum.

    Args:
        method: what is released.
    """

    method: StatisticsMethod = "ridge"

    name = "noisy-statistics"
    purpose = "private-statistics"
    message = "noisy statistics"

    @property
    def noise(self) -> bool:
        """True: it is private."""
        return True

    @property
    def _adaptive(self) -> bool:
        return self.method == "adassp"

    def layout(self, terms: Terms) -> Layout:
        """Return the statistics, with ``adassp`` also ``least`` (1,)."""
        least = {"least": ArrayLayout(DOUBLE, (1,), LARGEST_PRODUCT)} if self._adaptive else {}
        return {**super().layout(terms), **least}

    @one_blas_thread()
    def draw(self, terms: Terms, rows: Rows, noise: Noise) -> dict[str, Array]:
        """Add noise to the statistics of the clipped rows.

        In ``||x x^T||_F`` what is beside the diagonal counts twice, so it gets half of the variance.
        """
        gram, d, l = _gram_of(terms, rows, noise), terms.dimension, len(rows)  # noqa: E741 (as in the paper)
        bound = math.inf if terms.clip_norm is None else terms.clip_norm
        label_bound = math.inf if terms.label_bound is None else terms.label_bound
        # Norms are clipped up to (d + 12) roundings, and sums err by a rounding of all norms together for every row.
        error = (l + d + 16) * UNIT_ROUNDOFF * l * bound
        counted = np.where(np.equal(*np.triu_indices(d)), 1.0, math.sqrt(2))
        moments = noise.added(
            counted * _packed(gram.features), noise.deviation, sensitivity=bound**2, error=error * bound
        )
        cross = noise.added(
            gram.cross.copy(), noise.label_deviation, sensitivity=bound * label_bound, error=error * label_bound
        )
        arrays: dict[str, Array] = {"moments": moments / counted, "cross": cross}
        if self._adaptive:
            # The eigenvalue solver is taken to be exact for a matrix that is off by 10 d roundings.
            off = error * bound + 10 * d * UNIT_ROUNDOFF * l * bound**2
            least = np.array([_least_eigenvalue(gram)])
            arrays["least"] = noise.added(least, noise.deviation, sensitivity=bound**2, error=off)
        return arrays

    def collect(self, terms: Terms, samples: FloatArray, received: Iterable[tuple[int, Received]]) -> NoisyMoments:
        """Return their sum, and what the sum of all least eigenvalues says with a high probability."""
        d = terms.dimension
        features, cross, least = np.zeros((d, d)), np.zeros((d, terms.outputs)), 0.0
        variances = np.zeros((2, len(samples)))
        for i, upload in received:
            features += _unpacked(upload.arrays["moments"], d)
            cross += upload.arrays["cross"]
            variances[:, i] = upload.noise_variance, upload.label_noise_variance
            least += float(upload.arrays["least"][0]) if self._adaptive else 0.0
        deviation, cross_deviation = (math.sqrt(total) for total in variances.sum(axis=1))
        if self._adaptive:
            assert terms.target is not None
            least = max(0.0, least - deviation * _caution(terms.target))
        return NoisyMoments(features, cross, deviation, cross_deviation, least)

    def simulated(self, setting: Setting, coverage: Coverage) -> NoisyMoments:  # noqa: ARG002 (of all samples)
        """Return the statistics of all samples with the noise of the sum."""
        target = require_target(setting, self.message)
        deviation, cross_deviation = (noise_of_sum(setting) * each for each in self._deviations(setting))
        bound = clip_norm_of(setting)
        devices = [rows.clipped(bound) for rows in setting.uploading_rows]
        gram = compute_gram(devices, setting.workers)
        least = 0.0
        if self._adaptive:
            draw = float(setting.streams.at("private-least-eigenvalue").standard_normal())
            least = max(0.0, _sum_of_least_eigenvalues(devices) + deviation * (draw - _caution(target)))
        rng = setting.streams.at(self.purpose)
        draws = rng.standard_normal(gram.features.shape)
        features = gram.features + deviation * (draws + draws.T) / 2
        cross = gram.cross + cross_deviation * rng.standard_normal(gram.cross.shape)
        return NoisyMoments(features, cross, deviation, cross_deviation, least)

    def _deviations(self, setting: Setting) -> tuple[float, float]:
        return self._deviations_for(require_target(setting, self.message), clip_norm_of(setting))

    def _deviations_for(self, target: PrivacyTarget, bound: float) -> tuple[float, float]:
        """Return the noise of one mechanism about features, and about features and labels."""
        multiplier = self._mechanism(target).noise_multiplier
        if self._adaptive:
            return multiplier * bound**2, multiplier * bound * target.label_bound
        deviation = multiplier * joint_sensitivity(bound, target.label_bound)
        return deviation, deviation

    def noise_levels(self, setting: Setting, coverage: Coverage) -> tuple[FloatArray, FloatArray]:  # noqa: ARG002
        """Return the noise of each device: all of it, or its share if the server sees sums only."""
        adding = sending(setting)
        share = noise_of_sum(setting) ** 2 / np.count_nonzero(adding)
        deviation, cross_deviation = self._deviations(setting)
        return adding * share * deviation**2, adding * share * cross_deviation**2

    def _mechanism(self, target: PrivacyTarget) -> GaussianMechanism:
        """Return the mechanism of what a device sends: all of the budget, less what was spent before."""
        releases = 3 if self._adaptive else 1
        return GaussianMechanism(target.noise_multiplier(updates=releases), releases)

    def agreed_noise(self, terms: Terms) -> AgreedNoise | None:
        """Return the noise at which the statistics of a device use all of the target."""
        if terms.target is None or terms.clip_norm is None:
            return None
        deviation, cross_deviation = self._deviations_for(terms.target, terms.clip_norm)
        return AgreedNoise(deviation**2, cross_deviation**2, self._mechanism(terms.target))

    def releases(self, setting: Setting, coverage: Coverage, device: int) -> tuple[Release, ...]:  # noqa: ARG002
        """Return the mechanism of what a device sends, if it takes part."""
        if not setting.code.uploading[device]:
            return ()
        return (Release(self.message, self._mechanism(require_target(setting, self.message))),)

    def sensitivities(self, terms: Terms, samples: int) -> tuple[float, float]:  # noqa: ARG002 (of all of them)
        """Return ``B^2``, ``sqrt(2)`` times that with a least eigenvalue, and ``B B_Y``."""
        if terms.clip_norm is None or terms.label_bound is None:
            return math.inf, math.inf
        times = math.sqrt(2) if self._adaptive else 1.0
        return times * terms.clip_norm**2, terms.clip_norm * terms.label_bound

    def cost(self, setting: Setting, coverage: Coverage) -> UploadCost:  # noqa: ARG002
        """Charge ``d (d + 1) / 2 + d o`` numbers, ``l`` times as many MACs, and ``4 d^3 / 3`` for a least eigenvalue."""
        federation, d = setting.federation, setting.federation.dimension
        uploading = setting.code.uploading.astype(np.float64)
        moments = d * (d + 1) / 2 + d * federation.outputs
        return UploadCost.charged(
            setting,
            uploading * (moments + self._adaptive),
            uploading * (federation.samples * moments + self._adaptive * 4 / 3 * float(d) ** 3),
            float(uploading.sum()) * moments,
        )

    def require_possible(self, setting: Setting, coverage: Coverage) -> None:
        """Refuse a setting without a target or a clip norm, and second moments that are too large to hold."""
        require_target(setting, self.message)
        clip_norm_of(setting)
        super().require_possible(setting, coverage)

    def depends_on(self, code: Code) -> Code:
        """Return a blank code with the clip norm: nothing is coded."""
        return replace(code.uncoded(), clip_norm=code.clip_norm)

    def describe(self) -> str:
        """Return ``second moments + noise``."""
        return "second moments + noise"


def _gram_of(terms: Terms, rows: Rows, noise: Noise) -> Gram:
    width = terms.dimension + terms.outputs
    total = np.zeros((width, width))
    for block in terms.clipped(rows, noise):
        total += compute_gram([block]).matrix
    return Gram(total, terms.dimension, len(rows))


def _packed(matrix: FloatArray) -> FloatArray:
    """Return the upper triangle, row by row."""
    packed: FloatArray = matrix[np.triu_indices(len(matrix))]
    return packed


def _unpacked(packed: FloatArray, size: int) -> FloatArray:
    """Return the symmetric matrix of an upper triangle."""
    matrix = np.zeros((size, size))
    matrix[np.triu_indices(size)] = packed
    return matrix + np.triu(matrix, 1).T


def _caution(target: PrivacyTarget) -> float:
    """Return how many standard deviations a least eigenvalue with noise is lowered by, as in AdaSSP."""
    return math.sqrt(math.log(6 / target.delta))


def _least_eigenvalue(gram: Gram) -> float:
    """Return ``lambda_min(X^T X)``; 0 with fewer rows than columns."""
    if gram.samples < gram.dimension:
        return 0.0
    return max(0.0, float(scipy.linalg.eigvalsh(gram.features, subset_by_index=[0, 0])[0]))


@one_blas_thread()
def _sum_of_least_eigenvalues(devices: list[Rows]) -> float:
    """Return ``sum_i lambda_min(X_i^T X_i)``."""
    return sum(_least_eigenvalue(compute_gram([rows])) for rows in devices if len(rows) >= rows.features.shape[1])
