from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from codedfl.coding import CodedData, Rows, SubspaceSketch
from codedfl.errors import InputError
from codedfl.flower._checks import ReceivedUpload
from codedfl.flower._federation_config import FederationConfig
from codedfl.flower._remote import remote_setting
from codedfl.flower._replay import pooled_setting
from codedfl.flower._uploads import UploadTask, gather, make_upload
from codedfl.schemes import make_scheme
from codedfl.streams import Streams
from codedfl.training import Setting, Uploaded
from tests.flower.support import NAMES, digits_config, purpose_of

NOISE = np.array([0.1, 0.2, 0.3, 0.0])
LABEL_NOISE = np.array([0.0, 0.05, 0.0, 0.0])
UPLOADING = np.array([True, True, True, False])
ROUNDOFF = 2.0**-24

rng = np.random.default_rng(3)
ROWS = {
    name: Rows(
        rng.standard_normal((count, 8), dtype=np.float32), np.eye(3, dtype=np.float32)[rng.integers(0, 3, count)]
    )
    for name, count in zip(NAMES, (30, 50, 20, 40), strict=True)
}


def config(scheme: str, options: dict[str, Any] | None = None, **coding: Any) -> FederationConfig:
    return digits_config(
        scheme=scheme,
        options=options or {},
        data={"classes": ["a", "b", "c"], "columns": [f"x{i}" for i in range(8)]},
        features={"map": "none"},
        coding={"coded_samples": 40, **coding},
    )


CONFIGS = {
    "rows": config("scfl"),
    "clipped rows": config("scfl", clip_norm=1.5),
    "factor": config("scfl", {"upload": "factor"}),
    "clipped factor": config("one-shot", clip_norm=1.5),
    "rows of dp-cfl": config("dp-cfl"),
    "sketch": config("ccfl", {"rank": 4, "sketch_rows": 25}),
    "noisy clipped sketch": config("ccfl", {"rank": 4, "sketch_rows": 25, "noise": True}, clip_norm=1.5),
    "sketch of factors": config("ccfl", {"rank": 4, "upload": "factor"}),
}
every_kind = pytest.mark.parametrize("given", CONFIGS.values(), ids=CONFIGS)


def task_of(given: FederationConfig) -> UploadTask:
    task = UploadTask.of(given)
    assert task is not None
    return task


def noise_on(given: FederationConfig) -> float:
    upload = make_scheme(given.scheme, given.options).upload
    assert upload is not None
    return float(upload.noise)


def sent(given: FederationConfig) -> Iterable[tuple[int, ReceivedUpload]]:
    """What the three devices that upload send, with the simulator's draws."""
    task, on = task_of(given), noise_on(given)
    for i in np.flatnonzero(UPLOADING).tolist():
        noise, label_noise = on * float(NOISE[i]), on * float(LABEL_NOISE[i])
        arrays = make_upload(task, ROWS[NAMES[i]], noise, label_noise, Streams(0).at(purpose_of(given), device=i))
        rows = min(task.sketch_rows, len(ROWS[NAMES[i]])) if task.kind == "subspace" else 0
        yield i, ReceivedUpload(task.kind, arrays, noise, label_noise, rows)


def server_setting(given: FederationConfig) -> Setting:
    on, sizes = noise_on(given), np.array([len(rows) for rows in ROWS.values()])
    return remote_setting(given, NAMES, sizes, on * NOISE, on * LABEL_NOISE, UPLOADING, None, Streams(0))


def gathered(given: FederationConfig) -> Uploaded:
    scheme = make_scheme(given.scheme, given.options)
    return gather(scheme, task_of(given), server_setting(given), sent(given))


def in_the_simulator(given: FederationConfig) -> Uploaded:
    setting = pooled_setting(given, ROWS, ROWS["north"])
    code = replace(setting.code, noise_variance=NOISE, label_noise_variance=LABEL_NOISE, participants=UPLOADING)
    scheme = make_scheme(given.scheme, given.options)
    return scheme.prepare(replace(setting, code=code)).uploaded


@pytest.mark.parametrize(
    ("name", "kind", "rank", "rows", "clip_norm"),
    [
        ("rows", "rows", 0, 0, None),
        ("clipped rows", "rows", 0, 0, 1.5),
        ("factor", "factor", 0, 0, None),
        ("clipped factor", "factor", 0, 0, 1.5),
        ("rows of dp-cfl", "rows", 0, 0, None),
        ("sketch", "subspace", 4, 25, None),
        ("noisy clipped sketch", "subspace", 4, 25, 1.5),
        ("sketch of factors", "factor", 0, 0, None),
    ],
)
def test_the_task_is_what_the_federation_prescribes(
    name: str, kind: Any, rank: int, rows: int, clip_norm: float | None
) -> None:
    assert task_of(CONFIGS[name]) == UploadTask(kind, 40, rank, rows, clip_norm, 0)


@pytest.mark.parametrize("scheme", ["fedavg", "momentum"])
def test_schemes_without_an_upload_have_no_task(scheme: str) -> None:
    assert UploadTask.of(config(scheme)) is None


def test_a_sketch_has_no_more_directions_than_there_are_features() -> None:
    assert task_of(config("ccfl", {"rank": 500})).rank == 8
    assert task_of(config("ccfl")).rank == 8


@every_kind
def test_the_server_holds_what_the_simulator_does(given: FederationConfig) -> None:
    (held,), (expected,) = gathered(given), in_the_simulator(given)
    assert type(held) is type(expected)
    for name, value in vars(expected).items():
        found = getattr(held, name)
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(found, value, err_msg=name)
        else:
            assert found == value, name


def test_rows_are_added_up() -> None:
    given = CONFIGS["rows"]
    (held,) = gathered(given)
    assert isinstance(held, CodedData)
    arrays = [upload.arrays for _, upload in sent(given)]
    for name, total in (("features", held.features), ("labels", held.labels)):
        each = np.array([part[name] for part in arrays], np.float64)
        assert (np.abs(total - each.sum(axis=0)) <= 2 * ROUNDOFF * np.abs(each).sum(axis=0)).all()
    assert held.noise_variance == pytest.approx(0.6, rel=1e-15)
    assert held.coded_samples == 40


def test_second_moments_of_factors_are_added_up() -> None:
    given = CONFIGS["factor"]
    (held,) = gathered(given)
    assert isinstance(held, CodedData)
    factors = [np.asarray(upload.arrays["factor"], np.float64) for _, upload in sent(given)]
    moments = sum(factor.T @ factor for factor in factors)
    joined = np.hstack([held.features, held.labels]).astype(np.float64)
    # The factor of the sum is rounded to float32, which changes each entry by at most one part in 2^24.
    assert (np.abs(joined.T @ joined - moments) <= 2.001 * ROUNDOFF * (np.abs(joined).T @ np.abs(joined))).all()
    assert held.noise_variance == pytest.approx(0.6, rel=1e-15)


def test_sketches_are_scaled_to_all_rows_and_kept_apart() -> None:
    given = CONFIGS["sketch"]
    (held,) = gathered(given)
    assert isinstance(held, SubspaceSketch)
    omega = task_of(given).test_matrix(8)
    assert omega.shape == (8, 4)
    np.testing.assert_allclose(omega.T @ omega, np.eye(4), rtol=0, atol=1e-14)
    for i, upload in sent(given):
        scale = len(ROWS[NAMES[i]]) / min(25, len(ROWS[NAMES[i]]))
        np.testing.assert_array_equal(held.products[i], scale * upload.arrays["products"])
        np.testing.assert_array_equal(held.label_products[i], scale * upload.arrays["label_products"])
        assert held.energy[i] == scale * upload.arrays["energy"][0]
    assert held.rows.tolist() == [25, 25, 20, 0]
    assert not held.products[3].any(), "the device that sent nothing"


def test_directions_are_public_and_follow_the_seed_of_the_federation() -> None:
    first, again = (task_of(config("ccfl", {"rank": 4})).test_matrix(8) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    other = replace(task_of(CONFIGS["sketch"]), seed=1).test_matrix(8)
    assert not np.allclose(first, other)


def test_clipping_happens_on_the_device() -> None:
    """Without noise, a projection of clipped rows is that of rows that were short enough before."""
    task, rows = task_of(CONFIGS["clipped rows"]), ROWS["north"]
    norms = np.linalg.norm(rows.features, axis=1, keepdims=True)
    short = Rows(rows.features * np.minimum(1.0, 1.5 / norms).astype(np.float32), rows.labels)
    clipped, plain = (
        make_upload(each, data, 0.0, 0.0, Streams(0).at("coding"))["features"]
        for each, data in ((task, rows), (replace(task, clip_norm=None), short))
    )
    # Each is off by at most so many roundings of a sum of 30 products, and rows are scaled in another order.
    projection = np.abs(Streams(0).at("coding").standard_normal((40, 30), dtype=np.float32)).astype(np.float64)
    bound = 2 * (30 + 4) * ROUNDOFF * projection @ np.abs(short.features)
    assert (np.abs(clipped - plain) <= bound).all()
    unclipped = make_upload(replace(task, clip_norm=None), rows, 0.0, 0.0, Streams(0).at("coding"))["features"]
    assert np.abs(unclipped - clipped).max() > 1.0


@pytest.mark.parametrize("name", ["rows", "factor"])
def test_nothing_from_anybody_is_refused(name: str) -> None:
    given = CONFIGS[name]
    scheme = make_scheme(given.scheme, given.options)
    with pytest.raises(InputError, match="no device"):
        gather(scheme, task_of(given), server_setting(given), ())
