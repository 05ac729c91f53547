"""Fit a feature map to training inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from sklearn.kernel_approximation import RBFSampler
from sklearn.preprocessing import StandardScaler

from codedfl._validation import require_at_least, require_positive
from codedfl.data._blocks import row_blocks
from codedfl.data._dataset import require_matrix
from codedfl.data._features import FeatureMap
from codedfl.errors import InputError
from codedfl.typing import FloatArray

MapKind = Literal["rff", "none"]
Scaling = Literal["auto", "none", "global", "column"]

_ONE = np.ones(1, dtype=np.float32)


def fit_feature_map(
    raw: FloatArray,
    *,
    kind: MapKind = "rff",
    dimension: int = 500,
    gamma: float | Literal["scale"] = "scale",
    standardize: bool = False,
    scaling: Scaling = "auto",
    intercept: bool = False,
    rng: np.random.Generator,
) -> FeatureMap:
    r"""Fit a feature map to training inputs.

    Random Fourier features make a linear model approximate one with the kernel
    :math:`k(x, x') = \exp(-\gamma \|x - x'\|^2)`: with :math:`W_{jk} \sim N(0, 2 \gamma)`, :math:`b_k \sim U(0, 2 \pi)`
    and :math:`\phi(x) = \sqrt{2 / D} \cos(x W + b)`, the mean of :math:`\phi(x)^T \phi(x')` is :math:`k(x, x')`.

    Args:
        raw: raw training inputs, (m, p).
        kind: "rff" for random Fourier features, "none" for the inputs themselves.
        dimension: number D of random Fourier features; the intercept comes on top.
        gamma: width of the kernel; "scale" is 1 / (p v), where v is the variance of all entries of the inputs, after
            standardisation.
        standardize: whether inputs are first shifted and scaled to mean 0 and variance 1; constant ones are only shifted.
        scaling: what features are divided by: their largest magnitude over all ("global"), in each column ("column") or
            nothing ("none"). "auto" is "none" for random Fourier features, which are within sqrt(2 / D), and "column" for
            inputs.
        intercept: whether a last constant column of ones is appended.
        rng: randomness of W and b.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> raw = rng.normal(size=(100, 3)).astype(np.float32)
        >>> fit_feature_map(raw, dimension=50, rng=rng).transform(raw).shape
        (100, 50)

    References:
        Random Features for Large-Scale Kernel Machines. Ali Rahimi, Benjamin Recht. NIPS 2007.
    """
    if kind not in ("rff", "none"):
        raise InputError(f"the feature map {kind!r} is unknown: use 'rff' or 'none'.")
    if scaling not in ("auto", "none", "global", "column"):
        raise InputError(f"scaling = {scaling!r} is unknown: use 'auto', 'none', 'global' or 'column'.")
    require_matrix("the raw inputs", raw)
    inputs = raw.shape[1]
    if isinstance(gamma, str) and gamma != "scale":
        raise InputError(f"gamma = {gamma!r} is unknown: use a positive number or 'scale'.")
    needs_moments = standardize or (kind == "rff" and gamma == "scale")
    mean, scale, variance = _moments(raw, standardize) if needs_moments else (None, None, 1.0)
    fitted = FeatureMap(mean, scale, None, None, _ONE, intercept, inputs)
    if kind == "rff":
        require_at_least("dimension", dimension, 1)
        width = _scale_gamma(inputs * variance) if gamma == "scale" else gamma
        require_positive("gamma", width)
        fitted = _with_fourier(fitted, dimension, width, rng)
    if scaling == "auto":
        # A single Fourier feature reaches sqrt(2).
        scaling = "none" if kind == "rff" and dimension > 1 else "column"
    return fitted if scaling == "none" else replace(fitted, output_scale=_output_scale(fitted, raw, scaling))


def _moments(raw: FloatArray, standardize: bool) -> tuple[FloatArray | None, FloatArray | None, float]:
    scaler = StandardScaler()
    for block in row_blocks(*raw.shape):
        scaler.partial_fit(raw[block].astype(np.float64))
    if not standardize:
        return None, None, float(scaler.var_.mean() + scaler.mean_.var())
    mean, scale = scaler.mean_.astype(np.float32), scaler.scale_.astype(np.float32)
    scale[scale == 0] = 1
    return mean, scale, float((scaler.var_ / scale.astype(np.float64) ** 2).mean())


def _scale_gamma(total_variance: float) -> float:
    # Constant inputs have no scale; this is what scikit-learn takes for them too.
    return 1 / total_variance if total_variance > np.finfo(np.float64).tiny else 1.0


def _with_fourier(fitted: FeatureMap, dimension: int, gamma: float, rng: np.random.Generator) -> FeatureMap:
    sampler = RBFSampler(gamma=gamma, n_components=dimension, random_state=int(rng.integers(2**32)))
    # The sampler looks at nothing but the number of columns.
    sampler.fit(np.zeros((1, fitted.input_dimension)))
    with np.errstate(over="ignore"):
        frequencies = sampler.random_weights_.astype(np.float32)
    if not np.isfinite(frequencies).all():
        raise InputError(f"gamma = {gamma} is too large for float32 features: choose a smaller one, or standardise.")
    return replace(fitted, frequencies=frequencies, offsets=sampler.random_offset_.astype(np.float32))


def _output_scale(unscaled: FeatureMap, raw: FloatArray, scaling: Scaling) -> FloatArray:
    mapped = replace(unscaled, intercept=False)
    largest = np.zeros(mapped.dimension, dtype=np.float32)
    for block in row_blocks(len(raw), max(raw.shape[1], mapped.dimension)):
        features = mapped.transform(raw[block])
        largest = np.maximum(largest, np.abs(features, out=features).max(axis=0))
    scale = largest.max(keepdims=True) if scaling == "global" else largest
    scale[scale == 0] = 1
    return scale
