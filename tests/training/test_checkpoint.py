from __future__ import annotations

from dataclasses import astuple
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from codedfl.errors import InputError
from codedfl.files import write_npz
from codedfl.identity import identity
from codedfl.native import backend
from codedfl.schemes import scfl
from codedfl.training import (
    Checkpoint,
    LearningRate,
    Run,
    SchemeState,
    load_checkpoint,
    save_checkpoint,
    train,
)
from tests.problems import make_federation, make_setting
from tests.support import refusal_of

PREPARED = scfl().prepare(make_setting())
RATE = LearningRate(0.01)
RESULT = train(PREPARED, RATE, 4)
STATE = cast(SchemeState, RESULT.progress.state)


def fresh() -> Run:
    return Run(PREPARED, RATE, 4)


def edited(path: Path, *, seal: bool = True, **changes: Any) -> Path:
    """Write the checkpoint with other arrays in it; sealed, its checksum fits all the same."""
    save_checkpoint(path, RESULT.progress, "abc")
    with np.load(path) as file:
        arrays = {name: np.asarray(file[name]) for name in file.files}
    checksum = arrays.pop("checksum")
    for name, value in changes.items():
        name = name.replace("__", ".")
        assert name in arrays, name
        arrays[name] = np.asarray(value)
    write_npz(path, {**arrays, "checksum": np.array(identity(arrays)) if seal else checksum})
    return path


def refused(path: Path, run: Run | None = None) -> str:
    """Return the sentence in which a checkpoint is refused."""
    sentence = refusal_of(lambda: load_checkpoint(path, run or fresh(), "abc"))
    assert sentence.startswith(f"{str(path)!r} is not a usable checkpoint (")
    assert sentence.endswith("): delete it to start this scheme again.")
    assert "\n" not in sentence
    return sentence


def test_everything_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.npz"
    save_checkpoint(path, RESULT.progress, "abc")
    back, computed_by = load_checkpoint(path, fresh(), "abc")
    assert np.array_equal(back.state.model, RESULT.progress.state.model)
    assert isinstance(back.state, SchemeState)
    assert np.array_equal(back.state.weighted_sum, STATE.weighted_sum)
    assert (back.state.round, back.state.step_sum) == (4, STATE.step_sum)
    assert isinstance(back.state.round, int)
    assert [astuple(point) for point in back.curve] == [astuple(point) for point in RESULT.curve]
    assert back.ledger.bytes_up == RESULT.progress.ledger.bytes_up
    assert back.ledger.preparation_s == RESULT.progress.ledger.preparation_s
    assert (back.status, back.message, back.wall_time_s) == ("completed", "", RESULT.progress.wall_time_s)
    assert (back.back_offs, back.good_state) == (0, None)
    assert computed_by == backend()


def test_a_run_that_has_ended_is_returned_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.npz"
    save_checkpoint(path, RESULT.progress, "abc")
    again = train(PREPARED, RATE, 4, resume=load_checkpoint(path, fresh(), "abc")[0])
    assert again.progress.ledger.rounds == 4
    assert np.array_equal(again.model, RESULT.model)


def test_another_configuration_is_refused(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "c.npz", RESULT.progress, "abc")
    with pytest.raises(InputError, match="another configuration"):
        load_checkpoint(tmp_path / "c.npz", fresh(), "xyz")


@pytest.mark.parametrize("content", [b"", b"garbage", b"PK\x03\x04 half a zip"])
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "c.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match="is not a usable checkpoint"):
        load_checkpoint(path, fresh(), "abc")


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    save_checkpoint(path, RESULT.progress, "abc")
    whole = path.read_bytes()
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError):
            load_checkpoint(path, fresh(), "abc")


def test_a_file_with_a_field_missing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    np.savez(path, fingerprint=np.array("abc"))
    with pytest.raises(InputError, match="is not a usable checkpoint"):
        load_checkpoint(path, fresh(), "abc")


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    np.savez(path, fingerprint=np.array([{"a": 1}], dtype=object))
    with pytest.raises(InputError, match="is not a usable checkpoint"):
        load_checkpoint(path, fresh(), "abc")


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


def test_a_checkpoint_that_is_sealed_as_it_was_written_is_accepted(tmp_path: Path) -> None:
    progress, _ = load_checkpoint(edited(tmp_path / "c.npz"), fresh(), "abc")
    assert progress.status == "completed"


@pytest.mark.parametrize("name", ["state__model", "state__step_sum", "ledger__bits_up", "curve", "wall_time_s"])
def test_a_changed_number_does_not_match_the_checksum(tmp_path: Path, name: str) -> None:
    save_checkpoint(tmp_path / "c.npz", RESULT.progress, "abc")
    with np.load(tmp_path / "c.npz") as file:
        value = np.array(file[name.replace("__", ".")])
    value[...] += 1
    assert "does not match its checksum" in refused(edited(tmp_path / "c.npz", seal=False, **{name: value}))


def test_a_checkpoint_edited_to_say_completed_is_refused(tmp_path: Path) -> None:
    stopped = train(PREPARED, RATE, 2)
    assert stopped.status == "completed", "of two rounds"
    save_checkpoint(tmp_path / "c.npz", stopped.progress, "abc")
    assert "it claims to be completed after 2 of 4 rounds" in refused(tmp_path / "c.npz")


@pytest.mark.parametrize("seal", [True, False])
def test_an_unknown_status_is_refused(tmp_path: Path, seal: bool) -> None:
    sentence = refused(edited(tmp_path / "c.npz", seal=seal, status="finished"))
    assert ("there is no status 'finished'" if seal else "checksum") in sentence


def test_the_shapes_of_another_fleet_and_of_other_data_are_refused(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "c.npz", RESULT.progress, "abc")
    other_fleet = Run(scfl().prepare(make_setting(make_federation((7, 12)))), RATE, 4)
    assert "ledger.bits_up has shape (4,), the run needs (2,)" in refused(tmp_path / "c.npz", other_fleet)
    other_data = Run(scfl().prepare(make_setting(make_federation(dimension=5))), RATE, 4)
    assert "state.model has shape (3, 2), the run needs (5, 2)" in refused(tmp_path / "c.npz", other_data)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"state__round": 3}, "it is at round 3 of 4, with 4 charged"),
        ({"ledger__rounds": 5}, "it is at round 4 of 4, with 5 charged"),
        ({"state__round": -1, "ledger__rounds": -1}, "it is at round -1"),
        ({"back_offs": 1}, "it has backed off 1 times"),
        ({"state__round": "four"}, "state.round"),
        ({"curve": np.zeros((2, 3))}, ""),
    ],
)
def test_a_checkpoint_that_contradicts_itself_or_the_run_is_refused(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    assert words in refused(edited(tmp_path / "c.npz", **changes))


def test_a_checkpoint_of_a_longer_run_is_refused(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "c.npz", RESULT.progress, "abc")
    assert "it is at round 4 of 3" in refused(tmp_path / "c.npz", Run(PREPARED, RATE, 3))


def test_a_state_with_a_field_missing_is_refused(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "c.npz", RESULT.progress, "abc")
    with np.load(tmp_path / "c.npz") as file:
        arrays = {name: np.asarray(file[name]) for name in file.files if name not in ("checksum", "state.step_sum")}
    write_npz(tmp_path / "c.npz", {**arrays, "checksum": np.array(identity(arrays))})
    assert "it holds no state.step_sum" in refused(tmp_path / "c.npz")


def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c.npz").mkdir()
    refused(tmp_path / "c.npz")
