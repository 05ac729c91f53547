from __future__ import annotations

from pathlib import Path

import pytest

from codedfl.errors import InputError
from codedfl.experiment import run
from codedfl.tracking import TensorBoardCallback, tracker_from
from tests.support import small_config


@pytest.mark.slow
def test_tensorboard_reads_back_what_was_trained(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with TensorBoardCallback(tmp_path / "logs") as tracker:
        comparison = run(small_config(), callbacks=(tracker,))
    run(small_config(schemes=["scfl"], training__rounds=3), callbacks=(TensorBoardCallback(tmp_path / "logs"),))
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == ["fedavg", "scfl", "scfl-2"]
    for result in comparison.results:
        events = EventAccumulator(str(tmp_path / "logs" / result.scheme.name)).Reload()
        scores = events.Scalars("score")
        assert [event.step for event in scores] == [point.round for point in result.curve]
        assert [event.value for event in scores] == pytest.approx([point.score for point in result.curve])
        assert events.Scalars("bytes_up")[-1].value == pytest.approx(result.final.bytes_up)
        tables = {tag: events.Tensors(tag)[0].tensor_proto.string_val[0].decode() for tag in events.Tags()["tensors"]}
        assert "| training.rounds | 12 |" in tables["configuration/text_summary"]
        assert "| privacy.covers | " in tables["result/text_summary"]


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be made"):
        tracker_from(f"tensorboard:{tmp_path / 'file' / 'logs'}")


def test_without_the_extra_the_fix_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codedfl.tracking._services.find_spec", lambda name: None)  # noqa: ARG005
    with pytest.raises(InputError, match=r"pip install \"codedfl\[tensorboard\]\""):
        TensorBoardCallback(tmp_path)
