"""The bits of a result do not depend on the number of BLAS threads in the environment."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

from codedfl.coding import Rows, compute_gram, encode, encode_all, sample_coded
from codedfl.data import fit_feature_map
from codedfl.streams import Streams


def digests(dimension: int) -> dict[str, str]:
    """Hash what a run computes from raw inputs to coded data."""
    rng = np.random.default_rng(0)
    raw = rng.normal(size=(3000, 64)).astype(np.float32)
    labels = np.eye(10, dtype=np.float32)[rng.integers(0, 10, len(raw))]
    features = fit_feature_map(raw, dimension=dimension, rng=rng).transform(raw)
    rows, gram = Rows(features, labels), compute_gram([Rows(features, labels)])
    repeated = features.copy()
    repeated[:, 1] = repeated[:, 0]
    singular = compute_gram([Rows(repeated, labels)])
    model = rng.normal(size=(dimension, 10))
    none = np.zeros(1)
    results = {
        "features": features,
        "gram": gram.matrix,
        "smoothness": np.array(gram.smoothness),
        "optimum": gram.optimum,
        "solution": gram.solve(model),
        "optimum of least norm": singular.optimum,
        "loss": np.array(gram.loss(model)),
        "gap": np.array(gram.gap(model)),
        "encode": encode(rows, 100, noise_variance=0.1, rng=np.random.default_rng(1)).features,
        "sample": sample_coded(gram, 100, noise_variance=0.1, rng=np.random.default_rng(1)).features,
        "sample of rank": sample_coded(singular, 100, noise_variance=0.0, rng=np.random.default_rng(1)).features,
        "encode all": encode_all(
            [rows], 100, noise_variance=none, label_noise_variance=none, streams=Streams(1), encoder="direct"
        ).features,
    }
    return {name: hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest() for name, array in results.items()}


@pytest.mark.parametrize("dimension", [100, pytest.param(300, marks=pytest.mark.slow)])
def test_results_are_the_same_for_any_limit_in_the_process(dimension: int) -> None:
    with ThreadpoolController().limit(limits=1, user_api="blas"):
        expected = digests(dimension)
    for threads in (2, 3):
        with ThreadpoolController().limit(limits=threads, user_api="blas"):
            assert digests(dimension) == expected


@pytest.mark.slow
@pytest.mark.parametrize("dimension", [100, 300])
def test_results_are_the_same_for_any_limit_in_the_environment(dimension: int) -> None:
    script = f"from tests.test_blas_threads import digests; print(sorted(digests({dimension}).items()))"
    outputs = set()
    for threads in ("1", "2", ""):
        environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
        if threads:
            environment |= {"OPENBLAS_NUM_THREADS": threads}
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True, timeout=120
        )
        outputs.add(done.stdout)
    assert len(outputs) == 1
