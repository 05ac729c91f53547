from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from codedfl.coding import CodedData, Geometry, Rows, SubspaceSketch
from codedfl.errors import InputError
from codedfl.federation._federation_config import FederationConfig
from codedfl.federation._requests import UploadKey, UploadTask
from codedfl.federation._settings import pooled_setting, remote_setting
from codedfl.identity import identity
from codedfl.privacy import SeededNoise
from codedfl.schemes import make_scheme
from codedfl.setting import Setting
from codedfl.streams import Streams
from codedfl.uploads import CodedRows, Received, Subspace, Terms
from tests.federation.support import NAMES, digits_config, purpose_of

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


def sent(given: FederationConfig) -> Iterable[tuple[int, Received]]:
    """What the three devices that upload send, with the simulator's draws."""
    task, on = task_of(given), noise_on(given)
    for i in np.flatnonzero(UPLOADING).tolist():
        noise = SeededNoise(
            Streams(0).at(purpose_of(given), device=i), on * float(NOISE[i]), on * float(LABEL_NOISE[i])
        )
        arrays = task.upload.draw(task.terms, ROWS[NAMES[i]], noise)
        rows = task.upload.rows_behind(len(ROWS[NAMES[i]])) if task.upload.declares_rows else 0
        yield i, Received(arrays, noise.variance, noise.label_variance, rows)


def server_setting(given: FederationConfig) -> Setting:
    on, sizes = noise_on(given), np.array([len(rows) for rows in ROWS.values()])
    return remote_setting(given, NAMES, sizes, on * NOISE, on * LABEL_NOISE, UPLOADING, None, Streams(0))


def gathered(given: FederationConfig, received: Iterable[tuple[int, Received]] | None = None) -> Any:
    task, samples = task_of(given), server_setting(given).federation.samples.astype(np.float64)
    return task.upload.collect(task.terms, samples, sent(given) if received is None else received)


def in_the_simulator(given: FederationConfig) -> Any:
    setting = pooled_setting(given, ROWS, ROWS["north"])
    code = replace(setting.code, noise_variance=NOISE, label_noise_variance=LABEL_NOISE, participants=UPLOADING)
    scheme = make_scheme(given.scheme, given.options)
    return scheme.prepare(replace(setting, code=code)).held


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
    assert UploadKey.of(task_of(CONFIGS[name])) == UploadKey(kind, 40, rank, rows, clip_norm, 0)


@pytest.mark.parametrize("scheme", ["fedavg", "momentum"])
def test_schemes_without_an_upload_have_no_task(scheme: str) -> None:
    assert UploadTask.of(config(scheme)) is None


def test_a_sketch_has_no_more_directions_than_there_are_features() -> None:
    for options in ({"rank": 500}, {}):
        task = task_of(config("ccfl", options))
        assert task.upload.layout(task.terms)["products"].shape == (8, 8)


@every_kind
def test_the_server_holds_what_the_simulator_does(given: FederationConfig) -> None:
    held, expected = (
        each[0] if isinstance(each, tuple) else each for each in (gathered(given), in_the_simulator(given))
    )
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
    held = gathered(given)
    assert isinstance(held, SubspaceSketch)
    omega = held.test_matrix
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
    first, again = (gathered(config("ccfl", {"rank": 4})).test_matrix for _ in range(2))
    np.testing.assert_array_equal(first, again)
    task = task_of(CONFIGS["sketch"])
    other = task.upload.collect(replace(task.terms, public=Streams(1)), np.ones(4), ()).test_matrix
    assert not np.allclose(first, other)


def test_clipping_happens_on_the_device() -> None:
    """Without noise, a projection of clipped rows is that of rows that were short enough before."""
    task, rows = task_of(CONFIGS["clipped rows"]), ROWS["north"]
    unbounded = replace(task.terms, clip_norm=None)
    norms = np.linalg.norm(rows.features, axis=1, keepdims=True)
    short = Rows(rows.features * np.minimum(1.0, 1.5 / norms).astype(np.float32), rows.labels)
    clipped, plain = (
        task.upload.draw(terms, data, SeededNoise(Streams(0).at("coding")))["features"]
        for terms, data in ((task.terms, rows), (unbounded, short))
    )
    # Each is off by at most so many roundings of a sum of 30 products, and rows are scaled in another order.
    projection = np.abs(Streams(0).at("coding").standard_normal((40, 30), dtype=np.float32)).astype(np.float64)
    bound = 2 * (30 + 4) * ROUNDOFF * projection @ np.abs(short.features)
    assert (np.abs(clipped - plain) <= bound).all()
    unclipped = task.upload.draw(unbounded, rows, SeededNoise(Streams(0).at("coding")))["features"]
    assert np.abs(unclipped - clipped).max() > 1.0


@pytest.mark.parametrize("name", ["rows", "factor"])
def test_nothing_from_anybody_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="no device"):
        gathered(CONFIGS[name], ())


def test_keys_of_vaults_stay_as_they_are() -> None:
    """A device whose vault does not know a key draws anew, and reveals more: these were computed before classes moved."""
    terms = Terms(8, 3, 40, 1.5, 1.0, Streams(7))
    sketch = UploadTask(Subspace(4, 25, noise=True), terms)
    assert sketch.key("prescription", 0.5, 0.25) == "f28380d77f5d9fc1646620b44a4b80838c48c87bc20b1954900266be68f4f1a7"
    rows = UploadTask(CodedRows(), replace(terms, clip_norm=None, public=Streams(0)))
    assert rows.key("prescription", 0.5, 0.0) == "28d446ca91cd0ff1cddef6f578d68627376c662b393dc652336b5adc9e36e879"
    geometry = Geometry((np.eye(3, 1),), (np.array([0.3]),))
    asked = np.zeros((3, 2), np.float32), 0.25, 4.0, geometry
    update = identity(("prescription", "update", 3, asked))
    assert update == "8ce4c961d87bc0c226ef6ce01b3d18cc6f52783ee8a83c1788d9d96a17975b69"
