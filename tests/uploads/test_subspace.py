"""What the sketches cost, what they depend on and when they are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from codedfl.coding import CurvatureModel
from codedfl.errors import InputError
from codedfl.identity import identity
from codedfl.schemes import ccfl
from codedfl.uploads import Subspace
from tests.problems import make_federation, make_setting

SIZES = (30, 4, 25)
D, OUTPUTS = 8, 2


def test_bits_and_arithmetic_are_charged() -> None:
    setting = make_setting(make_federation(SIZES, D, OUTPUTS))
    prepared = ccfl(5, 10).prepare(setting)
    cost = prepared.upload_cost
    assert cost is not None
    assert cost.bits.tolist() == [32 * (D * (5 + OUTPUTS) + 1)] * 3
    assert cost.server_macs == CurvatureModel.server_macs(3, D, OUTPUTS, 5)
    rows = np.array([10, 4, 10])
    assert cost.encoding_s == pytest.approx(rows * D * (2 * 5 + OUTPUTS + 1) / setting.fleet.columns()["mac_rate"])
    assert prepared.held.rows.tolist() == rows.tolist()


def test_only_participants_send_and_pay() -> None:
    setting = make_setting(make_federation(SIZES, D, OUTPUTS))
    setting = replace(setting, code=replace(setting.code, participants=np.array([True, False, True])))
    prepared = ccfl(5, 10).prepare(setting)
    assert prepared.upload_cost is not None
    assert prepared.upload_cost.bits[1] == prepared.upload_cost.encoding_s[1] == 0
    assert prepared.held.rows.tolist() == [10, 0, 10]
    assert prepared.upload_cost.server_macs == CurvatureModel.server_macs(2, D, OUTPUTS, 5)


def test_the_rank_is_no_more_than_the_columns() -> None:
    setting = make_setting(make_federation(SIZES, D, OUTPUTS))
    assert ccfl(60).prepare(setting).held.rank == D
    assert ccfl(3).prepare(setting).held.rank == 3


def test_noise_is_added_only_if_asked_for() -> None:
    setting = make_setting(make_federation(SIZES, D, OUTPUTS), noise_variance=(0.1, 0.2, 0.3))
    assert not ccfl(5, 10).prepare(setting).held.entry_variance.any()
    noisy = ccfl(5, 10, noise=True).prepare(setting).held
    assert noisy.entry_variance.tolist() == pytest.approx([0.1 * 9, 0.2, 0.3 * 6.25])


def test_runs_are_shared_unless_something_that_matters_differs() -> None:
    code = make_setting(make_federation(SIZES, D, OUTPUTS)).code

    def same(upload: Subspace, **changes: object) -> bool:
        other = replace(code, **changes)  # type: ignore[arg-type]
        return identity(upload.depends_on(code)) == identity(upload.depends_on(other))

    quiet, noisy = Subspace(), Subspace(noise=True)
    for upload in (quiet, noisy):
        assert same(upload, coded_samples=7)
        assert same(upload, encoder="gram")
        assert not same(upload, draw=3)
        assert not same(upload, clip_norm=0.5)
        assert not same(upload, participants=np.array([True, False, True]))
    for variance in ("noise_variance", "label_noise_variance"):
        assert same(quiet, **{variance: np.full(3, 9.0)})
        assert not same(noisy, **{variance: np.full(3, 9.0)})


def test_bad_sizes_are_refused() -> None:
    with pytest.raises(InputError, match="rank = 1"):
        Subspace(rank=1)
    with pytest.raises(InputError, match="sketch_rows = 0"):
        Subspace(rows=0)


def test_sketches_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codedfl.uploads._subspace.LARGEST_SKETCH", 3 * D * (5 + 2 * OUTPUTS) - 1)
    setting = make_setting(make_federation(SIZES, D, OUTPUTS))
    with pytest.raises(InputError, match=r"3 devices with 8 features are too many .* lower options\.ccfl\.rank"):
        ccfl(5).prepare(setting)
    assert ccfl(4).prepare(setting).held.rank == 4
