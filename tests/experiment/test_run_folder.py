from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

from codedfl.errors import InputError
from codedfl.experiment import Comparison, Config, RunFolder, curves_csv, run
from codedfl.identity import identity
from codedfl.models import Predictor
from codedfl.training import Callback, Evaluation, RunProgress, StepSizeChoice, Trial
from tests.support import folder_contents, small_config


def test_a_new_folder_holds_the_configuration(tmp_path: Path) -> None:
    config = small_config(options__scfl={"batch": 3})
    folder = RunFolder.create(tmp_path / "a/b", config)
    assert {path.name for path in folder.path.iterdir()} == {"config.toml", "checkpoints", "curves", "models"}
    assert RunFolder.reopen(folder.path).config == config
    assert identity(RunFolder.reopen(folder.path).config) == identity(folder.config)


def test_an_empty_folder_may_be_used(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    assert RunFolder.create(tmp_path / "run", Config()).path.is_dir()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/precious.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    before = folder_contents(tmp_path)
    for name in ("full", "file"):
        with pytest.raises(
            InputError, match=r"exists and is not empty: resume the run in it, or give another folder\.$"
        ):
            RunFolder.create(tmp_path / name, Config())
    assert folder_contents(tmp_path) == before


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match=r"cannot be written \(.*\): give another folder\.$"):
        RunFolder.create(tmp_path / "file/below", Config())
    with pytest.raises(InputError, match="cannot be written"):
        RunFolder.create(tmp_path / ("x" * 300), Config())


def test_only_a_run_can_be_reopened(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(
            InputError,
            match=r"holds no run to resume \(no config.toml or no checkpoints in it\): give the folder of a run",
        ):
            RunFolder.reopen(path)
    assert not (tmp_path / "nowhere").exists()


def test_reopening_makes_deleted_subfolders_again(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", Config())
    (folder.path / "curves").rmdir()
    RunFolder.reopen(folder.path)
    assert (folder.path / "curves").is_dir()


def test_an_unused_folder_is_discarded_and_a_used_one_is_not(tmp_path: Path) -> None:
    unused = RunFolder.create(tmp_path / "unused", Config())
    unused.discard_unused()
    assert not unused.path.exists()
    begun = RunFolder.create(tmp_path / "begun", Config())
    begun.keep_details({})
    begun.curve("scfl").write_text("scheme,round")
    begun.discard_unused()
    assert not begun.path.exists(), "without a checkpoint there is nothing to continue"
    used = RunFolder.create(tmp_path / "used", Config())
    used.curve("scfl").write_text("scheme,round")
    used.checkpoint("scfl").write_bytes(b"days of work")
    before = folder_contents(used.path)
    used.discard_unused()
    assert folder_contents(used.path) == before


@dataclass
class FailAfter(Callback):
    """Fails after some rounds, those of all schemes together."""

    rounds: int

    def on_round(self, progress: RunProgress) -> None:  # noqa: ARG002
        self.rounds -= 1
        if self.rounds == 0:
            raise MemoryError


def test_a_run_that_fails_at_its_start_leaves_nothing(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", small_config())
    with pytest.raises(MemoryError):
        run(folder.config, folder=folder, callbacks=FailAfter(1))
    assert not folder.path.exists()


def test_a_run_that_can_be_continued_stays_and_so_does_one_that_was_reopened(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", small_config(schemes=["fedavg", "scfl"]))
    with pytest.raises(MemoryError):
        run(folder.config, folder=folder, callbacks=FailAfter(13))
    assert folder.checkpoint("fedavg").exists()
    again = RunFolder.create(tmp_path / "again", small_config())
    with pytest.raises(MemoryError):
        run(again.config, folder=RunFolder.reopen(again.path), callbacks=FailAfter(1))
    assert (again.path / "config.toml").is_file()


def test_a_bound_that_a_private_scheme_does_not_take_is_refused_before_another_trains(tmp_path: Path) -> None:
    config = small_config(schemes=["fedavg", "dp-gd"], privacy__epsilon=4.0, training__model_norm_bound=2.0)
    folder = RunFolder.create(tmp_path / "run", config)
    with pytest.raises(InputError, match=r"training\.model_norm_bound = 2 does not apply to dp-gd"):
        run(config, folder=folder, callbacks=FailAfter(1))
    assert not folder.path.exists()


def test_the_identity_of_a_configuration_depends_on_all_that_changes_results() -> None:
    base = identity(small_config())
    assert base == identity(small_config(training__workers=4))
    others = [
        small_config(seed=1),
        small_config(training__local_steps=4),
        small_config(options__scfl={"batch": 3}),
        small_config(learning_rate__scale=0.4),
    ]
    assert len({base, *map(identity, others)}) == 5


def test_step_sizes_are_kept(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", Config())
    assert folder.step_sizes() == {}
    choices = {
        "scfl": StepSizeChoice(
            0.5, (Trial(0.1, 0.3, 0.2), Trial(0.5, 0.9, 0.1), Trial(9.0, -float("inf"), float("inf")))
        ),
        "fedavg": StepSizeChoice(1.0, (Trial(1.0, 0.5, 0.1),)),
    }
    folder.keep_step_sizes(choices)
    assert folder.step_sizes() == choices


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"3",
        b"\xff",
        b'{"scfl": 3}',
        b'{"scfl": {"scale": 1.0}}',
        b'{"scfl": {"scale": 1.0, "trials": []}}',
        b'{"scfl": {"scale": "x", "trials": [{"scale": 1.0, "score": 1.0, "loss": 1.0}]}}',
        b'{"scfl": {"scale": 2.0, "trials": [{"scale": 1.0, "score": 1.0, "loss": 1.0}]}}',
        b'{"scfl": {"scale": 1.0, "trials": [{"scale": 1.0, "score": "good", "loss": 1.0}]}}',
        b'{"scfl": {"scale": 1.0, "trials": [[]]}}',
        b"[" * 100_000,
    ],
)
def test_damaged_step_sizes_are_refused(tmp_path: Path, content: bytes) -> None:
    folder = RunFolder.create(tmp_path / "run", Config())
    (folder.path / "step_sizes.json").write_bytes(content)
    with pytest.raises(InputError, match=r"step_sizes.json is damaged \(.*\): delete it to choose") as error:
        folder.step_sizes()
    assert len(str(error.value).splitlines()) == 1


def test_curves_are_a_table_with_a_row_for_each_evaluation(comparison: Comparison) -> None:
    rows = list(csv.DictReader(io.StringIO(curves_csv(comparison))))
    assert list(rows[0]) == ["scheme", *(item.name for item in fields(Evaluation))]
    assert len(rows) == 6 * 7
    assert float(rows[-1]["score"]) == comparison["scfl"].final.score  # to the last digit


def test_all_results_are_written(tmp_path: Path, comparison: Comparison) -> None:
    folder = RunFolder.create(tmp_path / "run", comparison.config)
    folder.write_results(comparison)
    assert (folder.path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert (folder.path / "curves-charged.png").read_bytes().startswith(b"\x89PNG")
    assert (folder.path / "curves.csv").read_text() == curves_csv(comparison)
    versions = json.loads((folder.path / "versions.json").read_text())
    assert versions["seed"] == 0
    assert {"codedfl", "python", "numpy", "scipy"} <= set(versions)
    for scheme in comparison.config.schemes:
        assert Predictor.load(folder.path / "models" / f"{scheme}.safetensors").weights.shape == (30, 10)
    assert not [
        name for name in folder_contents(folder.path) if Path(name).name.startswith(".")
    ]  # nothing half-written
