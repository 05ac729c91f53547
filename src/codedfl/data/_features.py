"""Feature maps: from raw inputs to the features of the linear model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from codedfl._messages import shown
from codedfl._validation import require_at_least, require_finite, require_positive
from codedfl.data._dataset import require_matrix
from codedfl.errors import InputError
from codedfl.parallel import one_blas_thread
from codedfl.typing import FloatArray, IntArray, ShortRepr, aligned_empty, row_blocks

MapKind = Literal["rff", "none"]
Scaling = Literal["auto", "none", "global", "column"]

_ONE = np.ones(1, dtype=np.float32)


@dataclass(frozen=True, eq=False, repr=False)
class FeatureMap(ShortRepr):
    r"""A fitted map from p raw inputs to d features.

    With random Fourier features, :math:`\phi(x) = \sqrt{2 / D} \cos(z W + b) / s`, and otherwise
    :math:`\phi(x) = z / s`, where :math:`z` is the input x, standardised if the map says so, and s the output scale.
    An intercept appends a constant 1, which is not scaled.

    Args:
        input_mean: mean of each raw input, (p,), or None to use inputs unchanged. A map with float64 means subtracts them in
            double precision, whatever the type of the features is.
        input_scale: standard deviation of each raw input, (p,), or None.
        frequencies: W, (p, D), or None to use the inputs as features.
        offsets: b, (D,), or None.
        output_scale: s, (D,) or (1,), which brings every training entry within [-1, 1].
        intercept: whether to append a constant column of ones.
        input_dimension: p.

    Example:
        >>> halve = FeatureMap(None, None, None, None, np.array([2.0], np.float32), True, input_dimension=2)
        >>> halve.transform(np.array([[1.0, -2.0]], np.float32))
        array([[ 0.5, -1. ,  1. ]], dtype=float32)
    """

    input_mean: FloatArray | None
    input_scale: FloatArray | None
    frequencies: FloatArray | None
    offsets: FloatArray | None
    output_scale: FloatArray
    intercept: bool
    input_dimension: int

    def __post_init__(self) -> None:
        require_at_least("input_dimension", self.input_dimension, 1)
        inputs = (self.input_dimension,)
        mapped = inputs if self.offsets is None else (self.offsets.size,)
        _require_together("input_mean", self.input_mean, inputs, "input_scale", self.input_scale, inputs)
        _require_together("frequencies", self.frequencies, inputs + mapped, "offsets", self.offsets, mapped)
        _require_shape("output_scale", self.output_scale, (1,) if self.output_scale.size == 1 else mapped)
        for name, scale in (("input_scale", self.input_scale), ("output_scale", self.output_scale)):
            if scale is not None and (scale <= 0).any():
                raise InputError(f"{name} of the feature map has values that are not positive: fit the map again.")

    @property
    def dimension(self) -> int:
        """Number of features d, the intercept included."""
        mapped = self.input_dimension if self.offsets is None else len(self.offsets)
        return mapped + int(self.intercept)

    def transform(
        self, raw: FloatArray, dtype: npt.DTypeLike = np.float32, *, rows: IntArray | None = None
    ) -> FloatArray:
        """Return the features of raw inputs, without large temporaries.

        Args:
            raw: raw inputs, (m, p).
            dtype: floating type of the features.
            rows: indices of the rows to transform, in order; all by default.

        Returns:
            A C-contiguous array, (m, d) or (len(rows), d).
        """
        if raw.ndim != 2 or raw.shape[1] != self.input_dimension:
            raise InputError(
                f"the raw inputs have shape {raw.shape}, but this feature map takes {self.input_dimension} columns."
            )
        count = len(raw) if rows is None else len(rows)
        features = aligned_empty((count, self.dimension), dtype)
        mapped = features[:, :-1] if self.intercept else features
        for block in row_blocks(count, max(self.dimension, self.input_dimension)):
            inputs = raw[block] if rows is None else raw[rows[block]]
            require_finite("a block of the raw inputs", inputs)
            with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
                self._map_block(inputs, mapped[block])
            if not np.isfinite(mapped[block]).all():
                raise InputError("the raw inputs are too large for this feature map: scale them or standardise them.")
        if self.intercept:
            features[:, -1] = 1
        return features

    def _map_block(self, inputs: FloatArray, out: FloatArray) -> None:
        if self.input_mean is None or self.input_scale is None:
            inputs = inputs.astype(out.dtype, copy=False)
        else:
            # In single precision, rows of a column such as a time stamp differ only in digits that are already lost.
            inputs = inputs.astype(np.result_type(out, self.input_mean), copy=False)
            inputs = (inputs - self.input_mean) / self.input_scale
        if self.frequencies is None or self.offsets is None:
            out[...] = inputs
        else:
            np.matmul(inputs, self.frequencies.astype(out.dtype, copy=False), out=out)
            out += self.offsets
            np.cos(out, out=out)
            out *= math.sqrt(2 / len(self.offsets))
        out /= self.output_scale

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the map as arrays by field name, for an .npz file; fields that are None are left out."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: np.asarray(value) for name, value in values.items() if value is not None}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> FeatureMap:
        """Return the map that ``to_arrays`` wrote.

        Example:
            >>> scale = np.ones(1, np.float32)
            >>> saved = FeatureMap(None, None, None, None, scale, True, input_dimension=2).to_arrays()
            >>> FeatureMap.from_arrays(saved).dimension
            3
        """
        for name in ("output_scale", "intercept", "input_dimension"):
            if name not in arrays:
                raise InputError(
                    f"the saved feature map has no {shown(name)}: save it again with FeatureMap.to_arrays."
                )
        for name in ("intercept", "input_dimension"):
            if arrays[name].shape != () or arrays[name].dtype.kind not in "biu":
                raise InputError(f"{shown(name)} of the saved feature map is not a single integer: save it again.")
        return cls(
            input_mean=arrays.get("input_mean"),
            input_scale=arrays.get("input_scale"),
            frequencies=arrays.get("frequencies"),
            offsets=arrays.get("offsets"),
            output_scale=arrays["output_scale"],
            intercept=bool(arrays["intercept"]),
            input_dimension=int(arrays["input_dimension"]),
        )


def _require_together(
    name: str,
    values: FloatArray | None,
    shape: tuple[int, ...],
    other: str,
    others: FloatArray | None,
    other_shape: tuple[int, ...],
) -> None:
    if (values is None) != (others is None):
        raise InputError(f"the feature map has only one of {name} and {other}: give both or neither.")
    if values is not None and others is not None:
        _require_shape(name, values, shape)
        _require_shape(other, others, other_shape)


def _require_shape(name: str, values: FloatArray, shape: tuple[int, ...]) -> None:
    if values.shape != shape or 0 in shape or not np.issubdtype(values.dtype, np.floating):
        raise InputError(
            f"{name} of the feature map has shape {values.shape} and dtype {values.dtype}: give floats of shape {shape}."
        )
    require_finite(f"{name} of the feature map", values)


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
        dimension: number D of random Fourier features; the intercept is extra.
        gamma: width of the kernel; "scale" is 1 / (p v), where v is the variance of all entries of the inputs, after
            standardisation.
        standardize: whether to shift and scale inputs to mean 0 and variance 1 first; constant inputs are only shifted.
        scaling: divide features by their largest magnitude overall ("global") or per column ("column"), or leave them
            ("none"). "auto" is "none" for random Fourier features, which are within sqrt(2 / D), and "column" for
            inputs.
        intercept: whether to append a constant column of ones.
        rng: source of W and b.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> raw = rng.normal(size=(100, 3)).astype(np.float32)
        >>> fit_feature_map(raw, dimension=50, rng=rng).transform(raw).shape
        (100, 50)

    References:
        Random Features for Large-Scale Kernel Machines. Ali Rahimi, Benjamin Recht. NIPS 2007.
    """
    if kind not in ("rff", "none"):
        raise InputError(f"the feature map {shown(kind)} is unknown: use 'rff' or 'none'.")
    if scaling not in ("auto", "none", "global", "column"):
        raise InputError(f"scaling = {shown(scaling)} is unknown: use 'auto', 'none', 'global' or 'column'.")
    require_matrix("the raw inputs", raw)
    inputs = raw.shape[1]
    if isinstance(gamma, str) and gamma != "scale":
        raise InputError(f"gamma = {shown(gamma)} is unknown: use a positive number or 'scale'.")
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
    from sklearn.preprocessing import (
        StandardScaler,
    )  # takes a second, which programs that only read or train need not wait for

    scaler = StandardScaler()
    for block in row_blocks(*raw.shape):
        scaler.partial_fit(raw[block].astype(np.float64))
    if not standardize:
        return None, None, float(scaler.var_.mean() + scaler.mean_.var())
    precision = np.result_type(raw.dtype, np.float32)
    mean, scale = scaler.mean_.astype(precision), scaler.scale_.astype(precision)
    scale[scale == 0] = 1
    return mean, scale, float((scaler.var_ / scale.astype(np.float64) ** 2).mean())


def _scale_gamma(total_variance: float) -> float:
    # Constant inputs have no scale; scikit-learn uses the same value.
    return 1 / total_variance if total_variance > np.finfo(np.float64).tiny else 1.0


def _with_fourier(fitted: FeatureMap, dimension: int, gamma: float, rng: np.random.Generator) -> FeatureMap:
    from sklearn.kernel_approximation import (
        RBFSampler,
    )  # takes a second, which programs that only read or train need not wait for

    sampler = RBFSampler(gamma=gamma, n_components=dimension, random_state=int(rng.integers(2**32)))
    # The sampler uses only the number of columns.
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
