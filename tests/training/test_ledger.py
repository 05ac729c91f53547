from __future__ import annotations

import numpy as np
import pytest

from codedfl.fleet import Attendance
from codedfl.schemes import dp_cfl, fedavg, scfl
from codedfl.training import LearningRate, Ledger, train
from tests.problems import make_setting

M = 32 * 3 * 2
N_MAC = 2 * 3 * 2


def test_one_round_is_charged_to_every_party() -> None:
    setting = make_setting(local_steps=2)
    prepared = scfl().prepare(setting)
    ledger = Ledger.opened(prepared)
    ledger.charge(
        prepared,
        0,
        Attendance(np.array([5, 0, 3, 1]), np.array([True, False, False, True]), np.array([0.0, 0.0, 40.0, 0.0])),
    )
    assert ledger.bits_up.tolist() == [M, 0, 0, M]
    assert ledger.bits_late.tolist() == [0, 0, 40, 0]
    assert ledger.bits_down.tolist() == [M, M, M, M]
    assert ledger.device_macs.tolist() == [5 * 2 * N_MAC, 0, 3 * 2 * N_MAC, 2 * N_MAC]
    assert ledger.server_macs == 8 * 2 * N_MAC
    assert (ledger.arrivals, ledger.rounds) == (2, 1)
    assert ledger.bytes_up == pytest.approx((2 * M + 4 * 32 * 20 * 5) / 8)


def test_fedavg_has_no_preparation_and_dp_cfl_no_traffic_after_the_upload() -> None:
    setting = make_setting()
    plain = train(fedavg().prepare(setting), LearningRate(0.01), 3).progress.ledger
    assert plain.preparation_s == 0
    assert plain.server_macs == 0
    assert plain.coded_bits.sum() == 0
    alone = train(dp_cfl().prepare(setting), LearningRate(0.01), 3).progress.ledger
    assert alone.preparation_s > 0
    assert alone.bits_up.sum() == alone.bits_down.sum() == alone.device_macs.sum() == 0
    assert alone.bytes_up == pytest.approx(alone.coded_bits.sum() / 8)


def test_only_those_who_were_asked_are_charged() -> None:
    setting = make_setting(local_steps=2)
    prepared = scfl().prepare(setting)
    ledger = Ledger.opened(prepared)
    attendance = Attendance(
        np.array([5, 3]), np.array([True, False]), np.array([0.0, 40.0]), devices=np.array([1, 3]), weight=2.0
    )
    ledger.charge(prepared, 0, attendance)
    assert ledger.bits_up.tolist() == [0, M, 0, 0]
    assert ledger.bits_late.tolist() == [0, 0, 0, 40]
    assert ledger.bits_down.tolist() == [0, M, 0, M]
    assert ledger.device_macs.tolist() == [0, 5 * 2 * N_MAC, 0, 3 * 2 * N_MAC]
    assert ledger.arrivals == 1
