from __future__ import annotations

from codedfl.experiment import run
from codedfl.progress import Progress
from tests.support import Diary, small_config


def test_progress_is_told_of_everything_in_order() -> None:
    diary = Diary()
    tuned = run(small_config(learning_rate__scale="grid", learning_rate__grid=[0.2, 0.4, 1e7]), progress=diary)
    (first, second) = (f"{result.scheme.title}: step size {result.scale:g} / L" for result in tuned.results)
    assert tuned["scfl"].scale in (0.2, 0.4)
    in_order = [(kind, text.split(", ")[0]) for kind, text, done, total in diary.entries if total is None]
    searching = [
        [
            ("update", f"preparing the search for the step size of {title}"),
            ("update", f"stability of {title}"),
            ("close", f"step size of {title}"),
            ("say", chosen),
        ]
        for title, chosen in (("FedAvg", first), ("SCFL", second))
    ]
    training = [
        [("update", f"preparing {title}"), ("close", title), ("say", f"{title}: completed")]
        for title in ("FedAvg", "SCFL")
    ]
    assert in_order == [
        ("update", "loading digits"),
        ("update", "solving for the centralised optimum"),
        ("say", "1258 samples on 6 devices"),
        *searching[0],
        *searching[1],
        *training[0],
        *training[1],
    ]
    for title in ("FedAvg", "SCFL"):
        rounds = [(done, total) for kind, task, done, total in diary.entries if (kind, task) == ("update", title)]
        assert rounds == [(k, 12) for k in range(13)]
        trials = [done for kind, task, done, total in diary.entries if task == f"step size of {title}" and total]
        assert trials == list(range(1, 2 * 6 + 1)), "1e7 is known to diverge and is not tried"
        assert diary.latest[f"step size of {title}"] == (12, 12)


def test_the_base_class_listens_in_silence() -> None:
    assert not run(small_config(schemes=["dp-cfl"]), progress=Progress()).interrupted


def test_a_run_that_does_not_complete_says_so_at_its_end() -> None:
    diary = Diary()
    run(small_config(schemes=["fedavg"], learning_rate__scale=50), progress=diary)
    assert ("close", "FedAvg diverged", 0.0, None) in diary.entries
    assert diary.said[-1].startswith("FedAvg: diverged, ")
