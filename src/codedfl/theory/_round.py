"""Everything that the law of one SCFL round depends on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from codedfl._validation import require_at_least, require_finite
from codedfl.coding import Gram, Rows, compute_gram
from codedfl.errors import InputError
from codedfl.typing import BoolArray, FloatArray, IntArray

BLOCK_ROWS = 2048

LARGEST = 1e50
"""Larger norms, noise variances and step sizes would overflow in fourth moments."""

OF_THE_DATA = ("gram", "coded_gram", "inverse", "_gradients")
"""Cached values that depend on the data alone; rounds on the same data share them."""


Knob = Literal["noise_variance", "coded_samples", "local_steps", "stragglers"]
"""What an operator can vary in a round."""


@dataclass(frozen=True, eq=False)
class Gradients:
    """Gradients and residuals of every device at a model.

    Args:
        gradient: ``D_i = X_i^T R_i`` with ``R_i = X_i W - Y_i``, (N, d, o).
        residual: ``||R_i||_F^2``, (N,).
        spread: ``sum_j ||x_j||^2 ||r_j||^2`` over the samples of a device, (N,).
    """

    gradient: FloatArray
    residual: FloatArray
    spread: FloatArray


@dataclass(frozen=True, eq=False)
class Inverse:
    """Quantities of ``H^-1`` at the optimum that the limit of training depends on.

    Args:
        data: ``tr(H^-1 H_S)``, with the Hessian ``H_S`` of the data that is coded; ``d`` if all of it is.
        trace: ``tr H^-1``.
        gradient: ``tr(D^T H^-1 D)`` with the gradient ``D`` of the coded data's loss at ``W*``; 0 if all data is coded.
        mixed: ``tr(D^T H^-1 W*)``.
        model: ``tr(W*^T H^-1 W*)``.
    """

    data: float
    trace: float
    gradient: float
    mixed: float
    model: float


@dataclass(frozen=True, eq=False)
class RoundLaw:
    """A round of SCFL as a random experiment: the data, and the law of everything drawn.

    Args:
        parts: the samples of each device.
        arrival_probability: ``p_i``, (N,), each above 0.
        inverse_batch: ``E[1 / b_i | arrival]``, (N,); ``1 / b_i`` for fixed batches.
        coded_samples: ``c``.
        server_batch: ``b_s``, at most ``c``.
        noise_variance: ``sigma_i^2``, (N,).
        label_noise_variance: variance of noise on the coded labels, (N,); None for none, as in the paper.
        local_steps: ``tau``.
        device_weight: ``w``, the share of the devices in the update; 1/2 in the paper.
        uploading: which devices uploaded coded data, (N,); None for all.

    Example:
        >>> rows = Rows(np.eye(2), np.ones((2, 1)))
        >>> one = RoundLaw((rows,), np.array([0.5]), np.array([0.5]), 10, server_batch=10, noise_variance=np.array([0.1]))
        >>> one.devices, one.batch_excess.tolist()
        (1, [0.0])
    """

    parts: tuple[Rows, ...]
    arrival_probability: FloatArray
    inverse_batch: FloatArray
    coded_samples: int
    server_batch: int
    noise_variance: FloatArray
    label_noise_variance: FloatArray | None = None
    local_steps: int = 1
    device_weight: float = 0.5
    uploading: BoolArray | None = None

    def __post_init__(self) -> None:
        shapes = {(part.features.shape[1], part.labels.shape[1]) for part in self.parts}
        if len(shapes) != 1 or any(part.weights is not None for part in self.parts):
            raise InputError(
                "parts must hold the rows of at least one device, all of the same width and without weights."
            )
        require_at_least("coded_samples", self.coded_samples, 1)
        require_at_least("server_batch", self.server_batch, 1)
        require_at_least("local_steps", self.local_steps, 1)
        if self.server_batch > self.coded_samples:
            raise InputError(
                f"server_batch = {self.server_batch} exceeds coded_samples = {self.coded_samples}: lower it."
            )
        if not 0.0 <= self.device_weight <= 1.0:
            raise InputError(f"device_weight = {self.device_weight} must be between 0 and 1.")
        for name in ("arrival_probability", "inverse_batch", "noise_variance", "label_noise_variance", "uploading"):
            values = getattr(self, name)
            if values is not None and values.shape != (self.devices,):
                raise InputError(
                    f"{name} has shape {values.shape} for {self.devices} device(s): give one value for each."
                )
        never = np.flatnonzero(~((self.arrival_probability > 0) & (self.arrival_probability <= 1)))
        if never.size:
            raise InputError(
                f"arrival_probability = {self.arrival_probability[never[0]]} of device {never[0] + 1} must be above 0 and at "
                "most 1: no weight makes up for a device that never arrives, so give it a later deadline or leave it out."
            )
        for name, noise in (("noise_variance", self.noise_variance), ("label_noise_variance", self.label_noise)):
            require_finite(name, noise)
            if noise.min() < 0 or noise.max() > LARGEST:
                bad = noise.min() if noise.min() < 0 else noise.max()
                raise InputError(f"{name} = {bad} must be zero or more, and at most {LARGEST:g}.")
        if not self.covered.any():
            raise InputError("uploading is false for every device: SCFL needs at least one that uploads coded data.")
        if not ((self.batch_excess > -1e-9) & (self.inverse_batch <= 1 + 1e-9)).all():
            raise InputError(
                "inverse_batch must lie between 1 / l_i and 1 for every device: a batch has 1 to l_i samples."
            )

    @property
    def devices(self) -> int:
        """``N``."""
        return len(self.parts)

    @property
    def dimension(self) -> int:
        """``d``."""
        return int(self.parts[0].features.shape[1])

    @property
    def outputs(self) -> int:
        """``o``."""
        return int(self.parts[0].labels.shape[1])

    @cached_property
    def samples(self) -> IntArray:
        """``l_i``, (N,)."""
        return np.array([len(part) for part in self.parts])

    @cached_property
    def covered(self) -> BoolArray:
        """Which devices' data the coded dataset covers, (N,)."""
        return np.ones(self.devices, np.bool_) if self.uploading is None else self.uploading

    @cached_property
    def label_noise(self) -> FloatArray:
        """Variance of the label noise of each device, (N,)."""
        return np.zeros(self.devices) if self.label_noise_variance is None else self.label_noise_variance

    @cached_property
    def batch_excess(self) -> FloatArray:
        """``E[(l_i - b_i) / b_i | arrival]``, (N,): 0 for full batches, large for small ones."""
        return self.samples * self.inverse_batch - 1.0

    @cached_property
    def weights(self) -> FloatArray:
        """``w_i``, the weight of each device: ``w`` if its data is coded, otherwise 1, (N,)."""
        return np.where(self.covered, self.device_weight, 1.0)

    @property
    def total_noise(self) -> float:
        """``sigma^2 = sum_i sigma_i^2`` over the devices that uploaded."""
        return float(np.sum(self.noise_variance[self.covered]))

    @property
    def total_label_noise(self) -> float:
        """The same sum for the label noise."""
        return float(np.sum(self.label_noise[self.covered]))

    def with_gram(self, gram: Gram) -> RoundLaw:
        """Return the round with precomputed second moments of all data."""
        other = replace(self)
        vars(other)["gram"] = gram
        return other

    def changed(self, **fields: Any) -> RoundLaw:
        """Return the round with other probabilities, noise, code or steps; the second moments of the data are kept."""
        other = replace(self, **fields)
        if not fields.keys() & {"parts", "uploading"}:
            vars(other).update({name: vars(self)[name] for name in OF_THE_DATA if name in vars(self)})
        return other

    @cached_property
    def gram(self) -> Gram:
        """Second moments of the data of all devices."""
        return compute_gram(self.parts)

    @cached_property
    def coded_gram(self) -> Gram:
        """Second moments of the data that was coded."""
        if self.covered.all():
            return self.gram
        return compute_gram(part for part, on in zip(self.parts, self.covered, strict=True) if on)

    @cached_property
    def _gradients(self) -> dict[bytes, Gradients]:
        return {}

    def gradients(self, model: FloatArray) -> Gradients:
        """Return every device's gradient at a model; results are cached by model."""
        key = np.asarray(model, np.float64).tobytes()
        if key not in self._gradients:
            self._gradients[key] = gradients_at(self.parts, model)
        return self._gradients[key]

    @cached_property
    def inverse(self) -> Inverse:
        """Quantities of the inverse of ``H = X^T X`` at the optimum.

        Raises:
            InputError: if ``H`` is singular.
        """
        optimum, coded = self.gram.optimum, self.coded_gram
        D = coded.features @ optimum - coded.cross
        solved_D, solved_W = self.gram.solve(D), self.gram.solve(optimum)
        inverse = self.gram.solve(np.eye(self.dimension))
        return Inverse(
            data=float(np.sum(inverse * coded.features)),
            trace=float(np.trace(inverse)),
            gradient=float(np.sum(D * solved_D)),
            mixed=float(np.sum(D * solved_W)),
            model=float(np.sum(optimum * solved_W)),
        )


def require_moderate(name: str, value: float) -> None:
    """Refuse a value that is not positive, or whose powers would overflow."""
    if not 1 / LARGEST <= value <= LARGEST:
        raise InputError(f"{name} = {value} must be a positive number between {1 / LARGEST:g} and {LARGEST:g}.")


def gradients_at(parts: tuple[Rows, ...], model: FloatArray) -> Gradients:
    """Compute every device's gradient and the spread of its per-sample gradients, in float64 and in blocks of rows."""
    W = np.asarray(model, np.float64)
    gradient = np.zeros((len(parts), *W.shape))
    residual, spread = np.zeros(len(parts)), np.zeros(len(parts))
    for i, part in enumerate(parts):
        for block in part.blocks(BLOCK_ROWS):
            X = block.features.astype(np.float64)
            R = X @ W - block.labels
            squares = np.sum(R**2, axis=1)
            gradient[i] += X.T @ R
            residual[i] += squares.sum()
            spread[i] += np.sum(np.sum(X**2, axis=1) * squares)
    return Gradients(gradient, residual, spread)


def checked_model(model: FloatArray, dimension: int, outputs: int) -> FloatArray:
    """Return a model in float64.

    Raises:
        InputError: if its shape does not fit the data, or it is not finite.
    """
    W = np.asarray(model, np.float64)
    if W.shape != (dimension, outputs):
        raise InputError(f"model has shape {W.shape}, the data needs {(dimension, outputs)}.")
    require_finite("model", W)
    return W
