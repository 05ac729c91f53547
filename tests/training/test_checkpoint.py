from __future__ import annotations

from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest

from codedfl.errors import InputError
from codedfl.schemes import scfl
from codedfl.training import Checkpoint, LearningRate, load_checkpoint, save_checkpoint, train
from tests.problems import make_setting

PREPARED = scfl().prepare(make_setting())
RESULT = train(PREPARED, LearningRate(0.01), 4)


def test_everything_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.npz"
    save_checkpoint(path, RESULT.progress, "abc")
    back = load_checkpoint(path, PREPARED, "abc")
    assert np.array_equal(back.state.model, RESULT.progress.state.model)
    assert np.array_equal(back.state.weighted_sum, RESULT.progress.state.weighted_sum)
    assert (back.state.round, back.state.step_sum) == (4, RESULT.progress.state.step_sum)
    assert isinstance(back.state.round, int)
    assert [astuple(point) for point in back.curve] == [astuple(point) for point in RESULT.curve]
    assert back.ledger.bytes_up == RESULT.progress.ledger.bytes_up
    assert back.ledger.preparation_s == RESULT.progress.ledger.preparation_s
    assert (back.status, back.message, back.wall_time_s) == ("completed", "", RESULT.progress.wall_time_s)


def test_a_run_that_has_ended_is_returned_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.npz"
    save_checkpoint(path, RESULT.progress, "abc")
    again = train(PREPARED, LearningRate(0.01), 4, resume=load_checkpoint(path, PREPARED, "abc"))
    assert again.progress.ledger.rounds == 4
    assert np.array_equal(again.model, RESULT.model)


def test_another_configuration_is_refused(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "c.npz", RESULT.progress, "abc")
    with pytest.raises(InputError, match="another configuration"):
        load_checkpoint(tmp_path / "c.npz", PREPARED, "xyz")


@pytest.mark.parametrize("content", [b"", b"garbage", b"PK\x03\x04 half a zip"])
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "c.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match="not a readable checkpoint"):
        load_checkpoint(path, PREPARED, "abc")


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    save_checkpoint(path, RESULT.progress, "abc")
    whole = path.read_bytes()
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError):
            load_checkpoint(path, PREPARED, "abc")


def test_a_file_with_a_field_missing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    np.savez(path, fingerprint=np.array("abc"))
    with pytest.raises(InputError, match="not a readable checkpoint"):
        load_checkpoint(path, PREPARED, "abc")


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    np.savez(path, fingerprint=np.array([{"a": 1}], dtype=object))
    with pytest.raises(InputError, match="not a readable checkpoint"):
        load_checkpoint(path, PREPARED, "abc")


def test_written_at_intervals_of_real_time_and_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    rare = Checkpoint(path, "abc", every_s=1e9)
    rare.on_round(RESULT.progress)
    assert not path.exists()
    rare.on_end(RESULT)
    assert path.exists()
    path.unlink()
    Checkpoint(path, "abc", every_s=0.0).on_round(RESULT.progress)
    assert path.exists()
