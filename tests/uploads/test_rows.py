from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from codedfl.errors import InputError
from codedfl.schemes import cfl_fb, codedfedl, scfl
from codedfl.uploads import CodedRows
from tests.gradients import device_update
from tests.problems import make_federation, make_setting


@pytest.mark.parametrize(("dimension", "mebibytes"), [(2000, 76), (4096, 156)], ids=["MNIST", "CIFAR-10"])
def test_the_papers_sizes_of_the_coded_upload(dimension: int, mebibytes: int) -> None:
    """Sec. VI-B: 10,000 coded samples are 76 MB for MNIST and 156 MB for CIFAR-10 (in units of 2^20, truncated)."""
    setting = make_setting(make_federation((1, 1), dimension, 10), coded_samples=10_000)
    cost = CodedRows.cost_of(setting, 10_000, np.full(2, 10_000.0))
    assert [int(bits / 8 / 2**20) for bits in cost.bits] == [mebibytes, mebibytes]


def test_every_part_is_charged_with_devices_in_parallel() -> None:
    setting = make_setting(coded_samples=20)
    cost = scfl().prepare(setting).upload_cost
    assert cost is not None
    numbers = 20 * (3 + 2)
    assert cost.bits == pytest.approx(32 * numbers)
    # The direct encoder multiplies G_i (c, l_i) with [X_i Y_i] (l_i, d + o).
    assert cost.encoding_macs == pytest.approx(setting.federation.samples * numbers)
    assert cost.encoding_s == pytest.approx(cost.encoding_macs / setting.fleet.columns()["mac_rate"])
    rate = setting.channel.mean_uplink_rate_bps(setting.fleet.columns()["transmit_power_dbm"])
    assert cost.upload_s == pytest.approx(32 * numbers / rate)
    assert cost.server_macs == 4 * numbers
    assert cost.total_s == pytest.approx(
        np.max(cost.encoding_s + cost.upload_s) + 4 * numbers / setting.server_mac_rate
    )


def test_parity_of_mini_batches_costs_each_sample_only_the_rows_of_its_own_mini_batch() -> None:
    setting = make_setting(make_federation((12, 12)), coded_samples=20)
    full, cut = cfl_fb().prepare(setting).upload_cost, codedfedl(mini_batches=4).prepare(setting).upload_cost
    assert full is not None
    assert cut is not None
    assert cut.bits == pytest.approx(full.bits)
    assert cut.encoding_macs == pytest.approx(full.encoding_macs / 4)


def test_rows_that_the_server_has_no_time_for_are_never_made() -> None:
    setting = make_setting(coded_samples=10_000)
    prepared = cfl_fb().prepare(setting)
    capacity = setting.timing(local_steps=1).server_capacity(setting.server_mac_rate, 10_000)
    assert prepared.device.coded_rows(10_000) == (capacity,)
    assert len(prepared.held[0]) == capacity < 10_000


@pytest.mark.parametrize("encoder", ["direct", "gram"])
def test_clipping_reaches_the_coded_data_and_leaves_the_devices_alone(encoder: str) -> None:
    """With c large the coded second moment is that of the clipped samples: entrywise within 4.5 Wishart standard errors."""
    setting = make_setting(coded_samples=20_000, noise_variance=0.0, encoder=encoder)
    clipped = replace(setting, code=replace(setting.code, clip_norm=0.5))
    X = clipped.federation.features
    weights = np.minimum(1, 0.5 / np.linalg.norm(X, axis=1))
    assert weights.min() < 1
    expected = (X * weights[:, None]).T @ (X * weights[:, None])
    coded = scfl().prepare(clipped).held[0].features
    error = np.sqrt((expected**2 + np.outer(np.diag(expected), np.diag(expected))) / 20_000)
    assert (np.abs(coded.T @ coded / 20_000 - expected) / error).max() < 4.5
    W = np.zeros((3, 2))
    plain, limited = (device_update(scfl().prepare(s).device, 1, 0, 3, W, 0.1) for s in (setting, clipped))
    assert np.array_equal(plain, limited)


def test_a_device_that_takes_no_part_costs_and_adds_nothing() -> None:
    setting = make_setting(noise_variance=(0.1, 0.2, 0.4, 0.8))
    taking_part = np.array([True, False, True, True])
    partial = replace(setting, code=replace(setting.code, participants=taking_part))
    cost, coded = scfl().prepare(partial).upload_cost, scfl().prepare(partial).held[0]
    assert cost is not None
    assert (cost.bits > 0).tolist() == (cost.encoding_macs > 0).tolist() == taking_part.tolist()
    assert coded.noise_variance == pytest.approx(1.3)
    full = scfl().prepare(setting).upload_cost
    assert full is not None
    assert cost.server_macs == pytest.approx(0.75 * full.server_macs)


def test_parity_needs_every_device_and_an_upload_at_least_one() -> None:
    setting = make_setting()
    some = replace(setting, code=replace(setting.code, participants=np.array([True, False, True, True])))
    with pytest.raises(InputError, match="need parity data of every device"):
        cfl_fb().prepare(some)
    with pytest.raises(InputError, match="no device takes part"):
        replace(setting.code, participants=np.zeros(4, np.bool_))
