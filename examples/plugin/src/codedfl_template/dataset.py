"""A dataset: points on two rings, which no straight line separates."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from codedfl.data import Dataset

ROWS = 1200


def rings(folder: Path, test_fraction: float, rng: np.random.Generator) -> Dataset:  # noqa: ARG001 (it needs no files)
    """1,200 points on two rings, 2 classes."""
    label = rng.integers(2, size=ROWS)
    angle = rng.uniform(0.0, 2 * np.pi, ROWS)
    radius = 1.0 + label + rng.normal(scale=0.2, size=ROWS)
    x, y = radius * np.cos(angle), radius * np.sin(angle)
    features = np.column_stack([x, y, x * x + y * y]).astype(np.float32)
    targets = np.eye(2, dtype=np.float32)[label]
    tested = round(test_fraction * ROWS)
    return Dataset(
        name="rings",
        task="classification",
        features=features[tested:],
        targets=targets[tested:],
        test_features=features[:tested],
        test_targets=targets[:tested],
        target_names=("inner", "outer"),
        feature_names=("x", "y", "squared radius"),
    )
