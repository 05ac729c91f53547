from __future__ import annotations

import numpy as np
import pytest

from codedfl.schemes import cfl_fb, dp_cfl, scfl
from tests.gradients import server_update
from tests.problems import make_setting

W = np.random.default_rng(2).standard_normal((3, 2))


def test_the_batch_is_as_large_as_the_deadline_allows_or_as_told() -> None:
    setting = make_setting(server_batch=None, coded_samples=400)
    server = scfl().prepare(setting).server
    assert server is not None
    expected = setting.timing().server_batch(setting.server_mac_rate, 400)
    assert 1 < expected < 400
    assert server.samples_processed(0) == expected * setting.local_steps
    told = scfl().prepare(make_setting(server_batch=7)).server
    assert told is not None
    assert told.samples_processed(0) == 7 * 2
    capped = scfl().prepare(make_setting(server_batch=10_000)).server
    assert capped is not None
    assert capped.samples_processed(0) == 20 * 2


def test_full_coded_gradients_with_and_without_make_up() -> None:
    setting = make_setting(local_steps=1, server_batch=20)
    for scheme, make_up in ((scfl(), 0.4), (dp_cfl(), 0.0)):
        prepared = scheme.prepare(setting)
        X, Y = prepared.held[0].features, prepared.held[0].labels
        assert prepared.server is not None
        expected = X.T @ (X @ W - Y) / 20 - make_up * W
        np.testing.assert_allclose(server_update(prepared.server, 0, W, 0.1), expected, rtol=1e-10)


def test_parity_gradient() -> None:
    prepared = cfl_fb().prepare(make_setting())
    X, Y = prepared.held[0].features, prepared.held[0].labels
    assert prepared.server is not None
    np.testing.assert_allclose(server_update(prepared.server, 0, W, 0.1), X.T @ (X @ W - Y) / len(X), rtol=1e-10)
    assert prepared.server.samples_processed(0) == pytest.approx(len(X))
