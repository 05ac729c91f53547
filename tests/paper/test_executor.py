from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import joblib
import pytest

from codedfl.paper import Cache, Executor, Outcomes, Scope
from codedfl.paper import _attack as attack
from codedfl.paper import _jobs as jobs_module
from codedfl.paper._executor import PROGRESS_TASK, content_key, require_data
from codedfl.paper._jobs import Computation
from codedfl.paper._runs import FigureRun, RunOutcome, run_of, with_scale, with_seed
from codedfl.paper._setups import CIFAR10, MNIST
from codedfl.progress import Progress
from codedfl.training import StepSizeChoice, Trial
from tests.paper.made_up import TWO_SEEDS, record, small_run, without_wall_time
from tests.support import folder_contents, refusal_of

RUNS = (
    small_run("SCFL", 1.0),
    small_run("SCFL", 2.0, coding__noise_variance=1.0),
    small_run("FedAvg", 1.0),
    small_run("FedAvg", 2.0, coding__noise_variance=1.0),
    small_run("SCFL", 3.0, training__local_steps=2),
)
"""Five points of two families; FedAvg is one run for two of them."""


class CountedJobs:
    """Stands in for `execute`, does the same, and counts."""

    def __init__(self, interrupt_at: int = 0) -> None:
        self.jobs: list[tuple[str, list[str]]] = []
        self.interrupt_at = interrupt_at

    def __call__(self, task: Computation[Any], runs: Mapping[str, Mapping[str, Any]], data_dir: str) -> dict[str, Any]:
        if len(self.jobs) + 1 == self.interrupt_at:
            raise KeyboardInterrupt
        self.jobs.append((task.name, list(runs)))
        return jobs_module.execute(task, runs, data_dir)

    @property
    def keys(self) -> list[str]:
        return [key for _, keys in self.jobs for key in keys]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> CountedJobs:
    stand_in = CountedJobs()
    monkeypatch.setattr("codedfl.paper._executor.execute", stand_in)
    return stand_in


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """What comes out in one sitting in one process."""
    return Executor(Cache(tmp_path_factory.mktemp("cache")), processes=1).run(RUNS, TWO_SEEDS)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """What comes out for the first run by itself; runs in lock-step differ in rounding."""
    return Executor(Cache(tmp_path_factory.mktemp("cache")), processes=1).run(RUNS[:1], TWO_SEEDS)


def test_every_run_has_a_record_for_every_seed(expected: Outcomes) -> None:
    assert list(expected.records) == list(expected.choices) == list(RUNS)
    for run, records in expected.records.items():
        assert [kept.config["seed"] for kept in records] == [0, 1]
        for kept in records:
            assert kept.scale == expected.choices[run].scale
            assert kept.config["schemes"] == list(run.config.schemes)
            assert kept.status == "completed"
        assert records[0].at() != records[1].at()
    assert expected.records[RUNS[2]] == expected.records[RUNS[3]], "FedAvg has no noise"


def test_a_run_asked_for_twice_is_done_once(tmp_path: Path, counted: CountedJobs, expected: Outcomes) -> None:
    outcomes = Executor(Cache(tmp_path), processes=1).run((*RUNS, *RUNS), TWO_SEEDS)
    assert without_wall_time(outcomes) == without_wall_time(expected)
    assert len(counted.keys) == len(set(counted.keys)) == 4 + 2 * 4, "four to tune, four to train for two seeds"


def test_what_is_in_the_cache_is_not_computed_again(tmp_path: Path, counted: CountedJobs) -> None:
    executor = Executor(Cache(tmp_path), processes=1)
    first = executor.run(RUNS[:2], TWO_SEEDS)
    counted.jobs.clear()
    assert executor.run(RUNS[:2], TWO_SEEDS) == first
    assert counted.jobs == []
    executor.run(RUNS[:2], Scope(quick=True, seeds=(0, 1, 2)))
    assert [kind for kind, _ in counted.jobs] == ["train"], "the third seed alone"
    assert len(counted.keys) == 2


def test_a_run_that_is_deleted_from_the_cache_is_computed_again(tmp_path: Path, counted: CountedJobs) -> None:
    executor = Executor(Cache(tmp_path), processes=1)
    first = executor.run(RUNS[:1], TWO_SEEDS)
    lost = counted.keys[-1]
    (tmp_path / f"{lost}.json").unlink()
    counted.jobs.clear()
    assert without_wall_time(executor.run(RUNS[:1], TWO_SEEDS)) == without_wall_time(first)
    assert counted.jobs == [("train", [lost])]


@pytest.mark.parametrize("interrupt_at", [2, 4])
def test_what_was_interrupted_goes_on(
    interrupt_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: Outcomes
) -> None:
    executor = Executor(Cache(tmp_path), processes=1)
    before, after = CountedJobs(interrupt_at), CountedJobs()
    monkeypatch.setattr("codedfl.paper._executor.execute", before)
    with pytest.raises(KeyboardInterrupt):
        executor.run(RUNS, TWO_SEEDS)
    assert len(before.jobs) == interrupt_at - 1
    assert set(folder_contents(tmp_path)) == {f"{key}.json" for key in before.keys}
    monkeypatch.setattr("codedfl.paper._executor.execute", after)
    assert without_wall_time(executor.run(RUNS, TWO_SEEDS)) == without_wall_time(expected)
    assert not set(before.keys) & set(after.keys)
    assert len(before.keys) + len(after.keys) == 12


@pytest.fixture
def no_processes_left() -> Iterator[None]:
    yield
    from joblib.externals.loky import get_reusable_executor

    get_reusable_executor().shutdown(wait=True)


@pytest.mark.slow
@pytest.mark.usefixtures("no_processes_left")
def test_two_processes_give_the_same_records(tmp_path: Path, expected: Outcomes) -> None:
    outcomes = Executor(Cache(tmp_path), processes=2).run(RUNS, TWO_SEEDS)
    assert without_wall_time(outcomes) == without_wall_time(expected)
    assert outcomes.choices == expected.choices


@pytest.mark.slow
def test_a_dask_cluster_gives_the_same_records(tmp_path: Path, expected: Outcomes) -> None:
    distributed = pytest.importorskip("distributed", reason="needs the extra 'cluster': dask[distributed]")
    cluster = distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=False,
        protocol="tcp",
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
    )
    with cluster, distributed.Client(cluster) as client, joblib.parallel_config(backend="dask"):
        outcomes = Executor(Cache(tmp_path)).run(RUNS, TWO_SEEDS)
        log = client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.transition_log))
    assert log > 0, "the cluster has done it"
    assert without_wall_time(outcomes) == without_wall_time(expected)
    assert outcomes.choices == expected.choices


class Diary(Progress):
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.done = self.total = 0.0

    def update(self, task: str, done: float = 0.0, total: float | None = None, note: str = "") -> None:
        assert task == PROGRESS_TASK
        assert "on digits, seed" in note
        assert total is not None
        assert self.done < done <= total
        self.done, self.total = done, total

    def say(self, text: str) -> None:
        self.lines.append(text)


@pytest.mark.slow
def test_progress_hears_of_every_stage_and_job(tmp_path: Path) -> None:
    diary = Diary()
    executor = Executor(Cache(tmp_path), processes=1, progress=diary)
    executor.run(RUNS, Scope(quick=True, seeds=(0,)))
    assert diary.lines == ["choosing step sizes: 4 of 4 runs to do", "training: 4 of 4 runs to do"]
    assert diary.done == diary.total > 0, "nothing else was expected"
    executor.run(RUNS, TWO_SEEDS)
    assert diary.lines[2:] == ["choosing step sizes: 0 of 4 runs to do", "training: 4 of 8 runs to do"]
    assert diary.done == diary.total


def test_what_is_expected_is_what_has_to_be_done(tmp_path: Path) -> None:
    diary = Diary()
    executor = Executor(Cache(tmp_path), processes=1, progress=diary)
    attacks = [(attack.MEASUREMENT, [RUNS[0].config])]
    before = executor.expect([*RUNS, *RUNS], attacks, TWO_SEEDS)
    executor.run(RUNS, TWO_SEEDS)
    assert diary.total == before
    left = Executor(Cache(tmp_path)).expect(RUNS, attacks, TWO_SEEDS)
    assert before - left == pytest.approx(diary.done)
    executor.measure(*attacks[0], TWO_SEEDS)
    assert before == pytest.approx(diary.done)
    assert Executor(Cache(tmp_path)).expect(RUNS, attacks, TWO_SEEDS) == 0


def test_what_must_be_repeated_is_added_to_the_total(tmp_path: Path) -> None:
    diary = Diary()
    run = small_run(learning_rate__grid=(1e7, 1e6, 1e5))
    choose(Cache(tmp_path), run, 1e7)
    executor, scope = Executor(Cache(tmp_path), processes=1, progress=diary), Scope(quick=True, seeds=(0,))
    before = executor.expect([run], (), scope)
    executor.run([run], scope)
    assert diary.total == pytest.approx(diary.done) == pytest.approx(3 * before)


def choose(cache: Cache, run: FigureRun, scale: float) -> None:
    """Put a choice of the step size where the search would put it."""
    trials = tuple(Trial(candidate, 0.5, 1.0) for candidate in run.config.learning_rate.grid)
    cache.put(content_key("tune", with_seed(run.config, 0)), asdict(StepSizeChoice(scale, trials)))


def test_what_diverges_is_trained_with_the_next_smaller_step_size(tmp_path: Path, counted: CountedJobs) -> None:
    run = small_run(learning_rate__grid=(0.25, 1e6, 0.5, 1e7))
    other = small_run("FedAvg", learning_rate__grid=(0.25, 0.5))
    for one, scale in ((run, 1e6), (other, 0.5)):
        choose(Cache(tmp_path), one, scale)
    outcomes = Executor(Cache(tmp_path), processes=1).run([run, other], TWO_SEEDS)
    assert [(kept.status, kept.scale) for kept in outcomes.records[run]] == [("completed", 0.5)] * 2
    assert outcomes.choices[run].scale == 1e6, "as it was chosen"
    assert len(counted.keys) == 6, "twice two seeds of the one that diverges, two of the other"
    direct = small_run(learning_rate__grid=(0.25, 1e6, 0.5, 1e7), learning_rate__scale=0.5)
    assert [kept.config for kept in outcomes.records[run]] == [
        with_seed(direct.config, seed).model_dump(mode="json") for seed in (0, 1)
    ]


def test_only_the_seed_that_diverges_is_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[tuple[int, float]] = []

    def execute(_: Computation[Any], runs: Mapping[str, Mapping[str, Any]], __: str) -> dict[str, Any]:
        found = {}
        for key, config in runs.items():
            seed, scale = config["seed"], config["learning_rate"]["scale"]
            trained.append((seed, scale))
            status = "diverged" if seed == 1 and scale > 0.3 else "completed"
            found[key] = record(0.9, status=status, config=dict(config)).as_dict()
        return found

    monkeypatch.setattr("codedfl.paper._executor.execute", execute)
    run = small_run(learning_rate__grid=(0.25, 0.5, 1.0))
    choose(Cache(tmp_path), run, 1.0)
    executor = Executor(Cache(tmp_path), processes=1)
    outcomes = executor.run([run], TWO_SEEDS)
    assert trained == [(0, 1.0), (1, 1.0), (1, 0.5), (1, 0.25)]
    assert [(kept.status, kept.scale) for kept in outcomes.records[run]] == [("completed", 1.0), ("completed", 0.25)]
    assert executor.run([run], TWO_SEEDS) == outcomes
    assert len(trained) == 4, "what diverged is in the cache too"


def test_what_always_diverges_ends_with_the_smallest_step_size(tmp_path: Path, counted: CountedJobs) -> None:
    run = small_run(learning_rate__grid=(1e7, 1e6, 1e5))
    choose(Cache(tmp_path), run, 1e7)
    (kept,) = Executor(Cache(tmp_path), processes=1).run([run], Scope(quick=True, seeds=(0,))).records[run]
    assert (kept.status, kept.scale, kept.accuracy()) == ("diverged", 1e5, 0.1)
    assert len(counted.keys) == 3


def test_a_grid_on_which_everything_diverges_is_kept_and_read(tmp_path: Path) -> None:
    run = small_run(learning_rate__grid=(1e7, 1e6))
    executor, scope = Executor(Cache(tmp_path), processes=1), Scope(quick=True, seeds=(0,))
    first, again = executor.run([run], scope), executor.run([run], scope)
    assert [trial.score for trial in again.choices[run].trials] == [-math.inf, -math.inf]
    assert again.choices[run].scale == again.records[run][0].scale == 1e6
    assert repr(again) == repr(first)


def test_missing_data_is_refused_before_any_work(tmp_path: Path, counted: CountedJobs) -> None:
    executor = Executor(Cache(tmp_path / "cache"), data_dir=str(tmp_path / "store"), processes=1)
    runs = [small_run(), run_of(MNIST, "SCFL")]
    sentence = refusal_of(lambda: executor.run(runs, TWO_SEEDS))
    for words in ("mnist", str(tmp_path / "store" / "mnist"), "IDX files", "the quick version"):
        assert words in sentence
    assert "\n" not in sentence
    assert ".." not in sentence
    assert counted.jobs == []
    assert not (tmp_path / "cache").exists()
    sentence = refusal_of(lambda: executor.measure(attack.MEASUREMENT, attack.configs(Scope()), TWO_SEEDS))
    assert str(tmp_path / "store" / "mnist") in sentence


def test_data_is_looked_for_in_the_usual_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CODEDFL_DATA", str(tmp_path / "usual"))
    sentence = refusal_of(lambda: require_data({CIFAR10.config.data.dataset}, ""))
    assert sentence.startswith(f"cifar10-vgg is not in {tmp_path / 'usual' / 'cifar10-vgg'}: ")
    assert refusal_of(lambda: require_data({"digits"}, "")) == ""
    assert refusal_of(lambda: require_data(set(), "")) == ""


def test_data_that_is_missing_is_not_needed_for_what_is_in_the_cache(tmp_path: Path) -> None:
    run, cache = run_of(MNIST, "SCFL", learning_rate__grid=(0.5,)), Cache(tmp_path)
    choose(cache, run, 0.5)
    config = run_of(MNIST, "SCFL", learning_rate__grid=(0.5,), learning_rate__scale=0.5).config
    cache.put(content_key("train", config), record(0.8).as_dict())
    outcomes = Executor(cache, data_dir="nowhere", processes=1).run([run], Scope(seeds=(0,)))
    assert outcomes.records[run] == (record(0.8),)


def test_what_is_measured_has_the_rows_of_every_configuration_and_seed(tmp_path: Path, counted: CountedJobs) -> None:
    configs = [small_run(coding__noise_variance=noise).config for noise in (0.1, 0.0)]
    executor = Executor(Cache(tmp_path), processes=1)
    rows = executor.measure(attack.MEASUREMENT, configs, TWO_SEEDS)
    assert [(row["series"], row["seed"]) for row in rows[::5]] == [
        (series, seed) for series in ("with noise", "no noise") for seed in (0, 1)
    ]
    assert len(rows) == 20
    counted.jobs.clear()
    assert executor.measure(attack.MEASUREMENT, configs, TWO_SEEDS) == rows
    assert counted.jobs == []


def test_the_outcomes_of_some_runs_are_theirs_alone(expected: Outcomes) -> None:
    some = expected.of([RUNS[2], RUNS[0]])
    assert list(some.records) == list(some.choices) == [RUNS[2], RUNS[0]]
    assert some.records[RUNS[0]] == expected.records[RUNS[0]]
    assert isinstance(some.records[RUNS[0]][0], RunOutcome)
    assert some.seeds == (0, 1)


TRIALS = [{"scale": scale, "score": 0.5, "loss": 1.0} for scale in (0.25, 0.5)]


@pytest.mark.parametrize(
    "values",
    [
        {},
        [],
        {"scale": 0.5},
        "no outcome",
        0.5,
        {"scale": 0.3, "trials": TRIALS},
        {"scale": 0.5, "trials": []},
        {"scale": 0.5, "trials": [*TRIALS, {"scale": 1.0, "score": math.nan, "loss": 1.0}]},
        {"scale": 0.5, "trials": [*TRIALS, {"scale": 1.0, "score": 7.0, "loss": 1.0}]},
    ],
)
def test_a_choice_that_cannot_be_is_computed_again_with_a_note(values: Any, tmp_path: Path) -> None:
    run, cache, diary = small_run(), Cache(tmp_path), Diary()
    key = content_key("tune", with_seed(run.config, 0))
    cache.put(key, values)
    executor = Executor(cache, processes=1, progress=diary)
    executor.expect([run], (), TWO_SEEDS)
    assert executor.run([run], TWO_SEEDS).choices[run].scale in run.config.learning_rate.grid
    (note,) = [line for line in diary.lines if str(cache.path(key)) in line]
    assert note.endswith("computing it again.")
    assert "\n" not in note
    assert cache.get(key) != values


STRANGE_RECORDS: list[dict[str, Any]] = [
    {"status": "splendid"},
    {"status": "running"},
    {"accuracy": math.nan},
    {"accuracy": 7.0},
    {"accuracy": -0.1},
    {"accuracy": "high"},
    {"curve": []},
    {"curve": 3},
    {"stragglers": 1.5},
    {"outputs": 0},
    {"coded_bytes": -1.0},
    {"config": {}},
    {"config": {"learning_rate": {"scale": "grid"}}},
    {"config": {"learning_rate": {"scale": -0.5}}},
]


@pytest.mark.parametrize("change", STRANGE_RECORDS, ids=str)
def test_a_record_that_cannot_be_is_computed_again_with_a_note(
    change: dict[str, Any], tmp_path: Path, alone: Outcomes
) -> None:
    run, cache, diary, scope = RUNS[0], Cache(tmp_path), Diary(), Scope(quick=True, seeds=(0,))
    choose(cache, run, alone.choices[run].scale)
    key = content_key("train", with_scale(run.config, alone.choices[run].scale))
    values = alone.records[run][0].as_dict()
    if "accuracy" in change:
        values["curve"] = [*values["curve"][:-1], {**values["curve"][-1], **change}]
    else:
        values |= change
    cache.put(key, values)
    outcomes = Executor(cache, processes=1, progress=diary).run([run], scope)
    assert without_wall_time(outcomes)[run] == without_wall_time(alone)[run][:1]
    assert any(str(cache.path(key)) in line and "computing it again" in line for line in diary.lines)


def test_records_that_were_exchanged_are_computed_again(tmp_path: Path, alone: Outcomes) -> None:
    diary = Diary()
    Executor(Cache(tmp_path), processes=1).run(RUNS[:1], TWO_SEEDS)
    scale = alone.choices[RUNS[0]].scale
    one, other = (
        Cache(tmp_path).path(content_key("train", with_seed(with_scale(RUNS[0].config, scale), seed)))
        for seed in (0, 1)
    )
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    outcomes = Executor(Cache(tmp_path), processes=1, progress=diary).run(RUNS[:1], TWO_SEEDS)
    assert without_wall_time(outcomes)[RUNS[0]] == without_wall_time(alone)[RUNS[0]]
    assert len([line for line in diary.lines if "another key" in line]) == 2


@pytest.mark.parametrize("row", [{"x": 1}, {"panel": "digits", "seed": 0, "x": math.nan}, 3, "row"])
def test_rows_that_cannot_be_are_computed_again(row: Any, tmp_path: Path) -> None:
    config, cache, diary = small_run().config, Cache(tmp_path), Diary()
    cache.put(content_key("attack", with_seed(config, 0)), [row])
    executor = Executor(cache, processes=1, progress=diary)
    assert len(executor.measure(attack.MEASUREMENT, [config], Scope(quick=True, seeds=(0,)))) == 5
    assert any("computing it again" in line for line in diary.lines)


def test_a_cache_that_cannot_be_made_is_refused_before_any_work(tmp_path: Path, counted: CountedJobs) -> None:
    (tmp_path / "file").write_text("mine")
    sentence = refusal_of(lambda: Executor(Cache(tmp_path / "file"), processes=1).run(RUNS[:1], TWO_SEEDS))
    assert "another folder" in sentence
    assert counted.jobs == []
