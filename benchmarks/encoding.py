"""Encoding: the projection as devices compute it against the same law through the Gram factor, time and memory."""

from __future__ import annotations

import json
import resource
import time
from typing import Any

import numpy as np
from common import CASE, in_a_process, read_options, report

from codedfl.coding import Rows, compute_gram, encode_all
from codedfl.parallel import Workers, available_cores, one_blas_thread
from codedfl.streams import Streams

OUTPUTS = 10
NOISE_LEVELS = (0.1, 0.25, 1.0)


def shapes(quick: bool) -> list[dict[str, int]]:
    """Return the problems: that of MNIST in the paper, and one device with many samples."""
    if quick:
        return [
            {"devices": 20, "samples": 100, "dimension": 200, "coded": 500},
            {"devices": 1, "samples": 5000, "dimension": 200, "coded": 500},
        ]
    return [
        {"devices": 20, "samples": 3000, "dimension": 2000, "coded": 10_000},
        {"devices": 1, "samples": 200_000, "dimension": 2000, "coded": 10_000},
    ]


def measure(encoder: str, devices: int, samples: int, dimension: int, coded: int) -> dict[str, float]:
    """Encode once and, with the Gram factor, again at other noise levels; run in a process of its own."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((devices * samples, dimension), dtype=np.float32)
    Y = rng.standard_normal((devices * samples, OUTPUTS), dtype=np.float32)
    parts = [Rows(X[i * samples : (i + 1) * samples], Y[i * samples : (i + 1) * samples]) for i in range(devices)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times = []
    with Workers(available_cores()) as workers, one_blas_thread():
        start = time.perf_counter()
        gram = None
        if encoder == "whole":  # what the definition says: all of G at once, one product
            for part in parts:
                G = rng.standard_normal((coded, samples), dtype=np.float32)
                _ = G @ part.features, G @ part.labels
                del G
            times.append(time.perf_counter() - start)
        else:
            for level in NOISE_LEVELS if encoder == "gram" else NOISE_LEVELS[:1]:
                if encoder == "gram" and gram is None:
                    gram = compute_gram([Rows(X, Y)], workers)
                encode_all(
                    parts,
                    coded,
                    noise_variance=np.full(devices, level),
                    label_noise_variance=np.zeros(devices),
                    streams=Streams(0),
                    encoder="gram" if encoder == "gram" else "direct",
                    gram=gram,
                    workers=workers,
                )
                times.append(time.perf_counter() - start)
                start = time.perf_counter()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "seconds": times[0],
        "next_level_seconds": times[-1],
        "extra_megabytes": (after - before) / 1024,
        "coded_megabytes": coded * (dimension + OUTPUTS) * 4 / 1e6,
    }


def main() -> None:
    options = read_options(__doc__, CASE)
    if options.case:
        print(json.dumps(measure(**json.loads(options.case))))
        return
    rows: list[dict[str, Any]] = []
    for shape in shapes(options.quick):
        measured = {encoder: in_a_process(__file__, {"encoder": encoder, **shape}) for encoder in ("direct", "gram")}
        if shape["devices"] > 1 or options.quick:
            measured["whole"] = in_a_process(__file__, {"encoder": "whole", **shape})
        for encoder, values in measured.items():
            rows.append(
                {
                    **shape,
                    "encoder": encoder,
                    **values,
                    "times_faster_than_direct": measured["direct"]["seconds"] / values["seconds"],
                }
            )
    gram = next(row for row in rows if row["encoder"] == "gram")
    direct = next(row for row in rows if row["encoder"] == "direct")
    summary = {
        "direct_over_gram": direct["seconds"] / gram["seconds"],
        "direct_over_gram_next_level": direct["seconds"] / gram["next_level_seconds"],
        "gram_memory_over_direct": gram["extra_megabytes"] / max(direct["extra_megabytes"], 1e-9),
    }
    report(options, "encoding once, and at another noise level with the same Gram matrix", rows, summary)


if __name__ == "__main__":
    main()
