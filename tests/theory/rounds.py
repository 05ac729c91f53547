"""Small random rounds for the tests of the theory, and rounds made from a setting of the training engine."""

from __future__ import annotations

from typing import Any

import numpy as np

from codedfl.coding import Rows
from codedfl.fleet import AdaptiveBatchArrivals, FixedBatchArrivals
from codedfl.setting import Setting
from codedfl.theory import RoundLaw
from codedfl.training import Scheme
from codedfl.typing import FloatArray


def random_round(rng: np.random.Generator, samples: tuple[int, ...] = (4, 7, 3), **changes: Any) -> RoundLaw:
    """Three features, two outputs, and devices that differ in everything; fields may be replaced."""
    devices = len(samples)
    fields: dict[str, Any] = {
        "parts": tuple(Rows(rng.standard_normal((rows, 3)), rng.standard_normal((rows, 2))) for rows in samples),
        "arrival_probability": rng.uniform(0.2, 1.0, devices),
        "inverse_batch": 1.0 / np.array([rng.integers(1, rows + 1) for rows in samples]),
        "coded_samples": 12,
        "server_batch": 5,
        "noise_variance": rng.uniform(0.0, 1.0, devices),
    }
    return RoundLaw(**(fields | changes))


def lonely_round(**changes: Any) -> RoundLaw:
    """One device with one sample ``x = 1, y = 0``: at ``W = 1`` every norm is one, and most inequalities are tight."""
    fields: dict[str, Any] = {
        "parts": (Rows(np.ones((1, 1)), np.zeros((1, 1))),),
        "arrival_probability": np.array([0.5]),
        "inverse_batch": np.ones(1),
        "coded_samples": 40,
        "server_batch": 40,
        "noise_variance": np.zeros(1),
    }
    return RoundLaw(**(fields | changes))


def model_within(rng: np.random.Generator, radius: float, shape: tuple[int, ...] = (3, 2)) -> FloatArray:
    """Return a random model of norm at most ``radius``, often close to it."""
    W = rng.standard_normal(shape)
    scaled: FloatArray = W / np.linalg.norm(W) * radius * rng.uniform() ** 0.25
    return scaled


def round_of(setting: Setting, scheme: Scheme, device_weight: float = 0.5) -> RoundLaw:
    """Return what the theory needs to know about a scheme in a setting."""
    arrivals = scheme.plan(setting).arrivals
    assert isinstance(arrivals, AdaptiveBatchArrivals | FixedBatchArrivals)
    assert setting.server_batch is not None
    return RoundLaw(
        tuple(setting.rows(i) for i in range(setting.federation.devices)),
        arrivals.probability,
        arrivals.inverse_batch,
        setting.code.coded_samples,
        server_batch=min(setting.server_batch, setting.code.coded_samples),
        noise_variance=setting.code.noise_variance,
        label_noise_variance=setting.code.label_noise_variance,
        local_steps=setting.local_steps,
        device_weight=device_weight,
        uploading=setting.code.uploading,
    )


def squared_norms(samples: FloatArray) -> FloatArray:
    """Return the squared Frobenius norm of each matrix."""
    squares: FloatArray = np.sum(samples**2, axis=(1, 2))
    return squares


def standard_error(values: FloatArray) -> float:
    """Return the standard error of a mean over independent draws."""
    return float(values.std(ddof=1) / np.sqrt(len(values)))
