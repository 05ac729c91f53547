from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from codedfl.fleet import Attendance
from codedfl.schemes import ccfl, dp_cfl, fedavg, scfl
from codedfl.training import LearningRate, Ledger, Run, load_checkpoint, save_checkpoint, train, train_together
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


def test_the_server_s_step_is_charged_to_the_clock_that_charges_everything() -> None:
    """Four products with the basis and three passes over the memory, in every round, whoever arrived."""
    setting = make_setting()
    prepared = ccfl(rank=3).prepare(setting)
    macs = 4 * (5 / 6 * 3) * 3 * 2 + 3 * 4 * 3 * 2
    result = train(prepared, LearningRate(1.0), 7)
    ledger = result.progress.ledger
    assert ledger.server_macs == pytest.approx(7 * macs)
    assert ledger.aggregation_s == pytest.approx(7 * macs / setting.server_mac_rate)
    for point in result.curve:
        assert point.simulated_time_s == pytest.approx(point.round * prepared.device.arrivals.duration_s)
        beyond = ledger.preparation_s + point.round * macs / setting.server_mac_rate
        assert point.everything_charged_s == pytest.approx(point.simulated_time_s + beyond)


def test_time_for_the_server_s_step_is_kept_in_a_checkpoint(tmp_path: Path) -> None:
    prepared = ccfl(rank=3).prepare(make_setting())
    stopped = train(prepared, LearningRate(1.0), 4)
    stopped.progress.status = "interrupted"
    save_checkpoint(tmp_path / "c.npz", stopped.progress, "same")
    run = Run(prepared, LearningRate(1.0), 9)
    run.progress, _ = load_checkpoint(tmp_path / "c.npz", run, "same")
    assert run.progress.ledger.aggregation_s == stopped.progress.ledger.aggregation_s > 0
    (resumed,) = train_together([run])
    assert resumed.final.everything_charged_s == train(prepared, LearningRate(1.0), 9).final.everything_charged_s
