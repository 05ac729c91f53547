"""The comparison of ``python -m tests.golden`` notices what it is there for; the scenarios themselves take minutes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.golden.__main__ import ROOT, CannotCompareError, Reference, Tree, check, main, unlike
from tests.golden.comparing import MASKS, MOST_LINES, Difference, Mask, compare
from tests.golden.frozen import Bytes
from tests.golden.scenarios import Same, Scenario, Step, cli, script

NOTHING: list[Difference] = []


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Two folders with the same files."""
    made = tmp_path / "before", tmp_path / "now"
    for folder in made:
        (folder / "run" / "checkpoints").mkdir(parents=True)
        (folder / "run" / "summary.json").write_text('{\n  "score": 0.5,\n  "wall_time_s": 1.25\n}\n')
        (folder / "run" / "curve.csv").write_text("round,score\n0,0.1\n1,0.5\n")
        (folder / "run" / "picture.png").write_bytes(b"\x89PNG\xff\x00\x01")
        (folder / "run.out").write_text("scheme  wall s\n──────────────\nSCFL       1.2\ndone: 1.2 of it\n")
        (folder / "page.html").write_text(
            "<html><dl><dt>real time</dt><dd>1 s</dd><dt>rounds</dt><dd>7</dd></dl></html>"
        )
        save(folder)
    return made


def save(folder: Path, **changed: Any) -> None:
    arrays = {"model": np.arange(6.0).reshape(2, 3), "wall_time_s": np.array(1.25), "checksum": np.array("abc")}
    np.savez(folder / "run" / "checkpoints" / "scfl.npz", **(arrays | changed))


def only(found: list[Difference], file: str) -> Difference:
    assert [each.file for each in found] == [file]
    return found[0]


def test_equal_folders_are_equal(folders: tuple[Path, Path]) -> None:
    assert compare(*folders) == NOTHING


def test_files_that_are_missing_or_new_are_named(folders: tuple[Path, Path]) -> None:
    (folders[1] / "run" / "curve.csv").rename(folders[1] / "run" / "curves.csv")
    assert [(each.file, each.first) for each in compare(*folders)] == [
        ("run/curve.csv", "is missing now"),
        ("run/curves.csv", "is new"),
    ]


@pytest.mark.parametrize(
    ("file", "old", "new", "first"),
    [
        ("run/curve.csv", "1,0.5\n", "1,0.50000001\n", "-1,0.5"),
        ("run/summary.json", '"score": 0.5', '"score": 0.25', '-  "score": 0.5,'),
        ("run/curve.csv", "\n", "\r\n", "-round,score"),
        ("run/curve.csv", "1,0.5\n", "1,0.5", "-"),
        ("page.html", "<dd>7", "<dd>8", "-<dd>7"),
        ("run.out", "SCFL  ", "CCFL  ", "-SCFL    ######"),
    ],
)
def test_another_text_differs(folders: tuple[Path, Path], file: str, old: str, new: str, first: str) -> None:
    path = folders[1] / file
    path.write_bytes(path.read_bytes().replace(old.encode(), new.encode()))
    assert only(compare(*folders), file).first == first


def test_a_long_difference_is_cut_short(folders: tuple[Path, Path]) -> None:
    for folder, word in zip(folders, ("a", "b"), strict=True):
        (folder / "long.txt").write_text(f"{word}\n" * 100)
    shown = only(compare(*folders), "long.txt").details
    assert len(shown) == MOST_LINES + 1
    assert shown[-1] == "... 182 more lines"


def test_of_a_long_line_the_place_that_differs_is_shown(folders: tuple[Path, Path]) -> None:
    for folder, word in zip(folders, ("left", "right"), strict=True):
        (folder / "long.json").write_text(" " * 1000 + word + " " * 1000)
    assert "left" in only(compare(*folders), "long.json").first


def test_other_bytes_differ(folders: tuple[Path, Path]) -> None:
    (folders[1] / "run" / "picture.png").write_bytes(b"\x89PNG\xff\x00\x02")
    assert only(compare(*folders), "run/picture.png").first == "differs from byte 6 on (7 bytes, now 7)"


@pytest.mark.parametrize(
    ("changed", "first"),
    [
        (np.array([[0, 1, 2 + 1e-9], [3, 4, 5]]), "1 of 6 numbers, by at most 1e-09"),
        (np.arange(6.0).reshape(3, 2), "array model was float64 (2, 3), is float64 (3, 2)"),
        (np.arange(6.0, dtype=np.float32).reshape(2, 3), "array model was float64 (2, 3), is float32 (2, 3)"),
    ],
)
def test_another_array_differs(folders: tuple[Path, Path], changed: Any, first: str) -> None:
    save(folders[1], model=changed)
    assert first in only(compare(*folders), "run/checkpoints/scfl.npz").first


def test_bytes_of_arrays_are_compared_and_not_their_values(folders: tuple[Path, Path]) -> None:
    for folder, zero in zip(folders, (0.0, -0.0), strict=True):
        np.savez(folder / "vault.npz", noise=np.array([zero, np.nan]))
    assert "array noise" in only(compare(*folders), "vault.npz").first
    np.savez(folders[1] / "vault.npz", noise=np.array([0.0, np.nan]))
    assert compare(*folders) == NOTHING


def test_arrays_that_are_missing_or_new_are_named(folders: tuple[Path, Path]) -> None:
    save(folders[1], average=np.zeros(2))
    assert only(compare(*folders), "run/checkpoints/scfl.npz").first == "array average is new"


def test_a_damaged_archive_differs(folders: tuple[Path, Path]) -> None:
    (folders[1] / "run" / "checkpoints" / "scfl.npz").write_bytes(b"PK\x03\x04 but no more")
    assert "is no archive" in only(compare(*folders), "run/checkpoints/scfl.npz").first


def test_masked_fields_may_differ_where_they_are_and_nowhere_else(folders: tuple[Path, Path]) -> None:
    now = folders[1]
    replaced = {"run/summary.json": ("1.25", "7e-05"), "run.out": ("1.2\n", "9.9\n"), "page.html": ("1 s", "12 min")}
    for file, (old, new) in replaced.items():
        (now / file).write_text((now / file).read_text().replace(old, new))
    save(now, wall_time_s=np.array(7.0), checksum=np.array("def"))
    assert compare(*folders) == NOTHING
    files = ["page.html", "run.out", "run/checkpoints/scfl.npz", "run/summary.json"]
    assert [each.file for each in compare(*folders, masks=())] == files
    save(now, model=np.zeros((2, 3)), checksum=np.array("def"))
    assert "array model" in only(compare(*folders), "run/checkpoints/scfl.npz").first


def test_a_mask_belongs_to_its_files(folders: tuple[Path, Path]) -> None:
    (folders[1] / "run" / "summary.json").write_text('{\n  "score": 0.5,\n  "wall_time_s": 2\n}\n')
    assert compare(*folders) == NOTHING
    elsewhere = [Mask("*/details.json", "wall_time_s", "made up")]
    assert compare(*folders, masks=elsewhere) != NOTHING


def test_only_the_chosen_files_are_compared(folders: tuple[Path, Path]) -> None:
    (folders[1] / "page.html").unlink()
    assert compare(*folders, patterns=("run/*",)) == NOTHING
    assert compare(*folders, patterns=("*.html",)) == [Difference("page.html", "is missing now")]


def test_every_mask_says_what_it_hides() -> None:
    assert all(mask.why and mask.field and mask.files for mask in MASKS)


# The command, on made-up trees -------------------------------------------------------------------------------------------


class MadeUpTree(Tree):
    """A tree whose processes write a word."""

    def __init__(self, root: Path, name: str, word: str) -> None:
        super().__init__(root, name)
        self.word = word

    def run(self, steps: Sequence[Step], folder: Path) -> None:
        for step in steps:
            folder.mkdir(parents=True, exist_ok=True)
            before = (folder / "parts.txt").read_text() if (folder / "parts.txt").exists() else ""
            name = f"{step.words[0]}.{'failed' if self.word == 'failing' else 'txt'}"
            (folder / name).write_text(f"{before}{self.word}\n")


class MadeUpReference(Reference):
    """A commit with such a tree."""

    def __init__(self, cache: Path, word: str) -> None:
        super().__init__("HEAD", cache)
        self._tree = MadeUpTree(cache, "old", word)


@pytest.fixture
def checked(tmp_path: Path) -> Callable[..., list[Difference]]:
    if not (ROOT / ".git").exists():
        pytest.skip("a commit needs a repository")

    def check_words(scenario: Scenario, old: str, new: str) -> list[Difference]:
        shutil.rmtree(tmp_path / "now", ignore_errors=True)
        reference, tree = MadeUpReference(tmp_path / "cache", old), MadeUpTree(tmp_path, "now", new)
        return check(scenario, reference, tree, tmp_path / "now")

    return check_words


def test_outputs_of_a_commit_are_made_once(checked: Callable[..., list[Difference]]) -> None:
    scenario = Scenario("made-up", "nothing", (cli("word"),))
    assert checked(scenario, "same", "same") == NOTHING
    assert checked(scenario, "not asked any more", "same") == NOTHING
    assert checked(scenario, "not asked any more", "other") == [Difference("made-up/word.txt", "-same")]


def test_a_process_that_fails_is_a_difference(
    checked: Callable[..., list[Difference]], capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = Scenario("made-up", "nothing", (cli("word"),))
    found = checked(scenario, "same", "failing")
    assert [(each.file, each.first) for each in found] == [
        ("made-up/word.failed", "is new"),
        ("made-up/word.txt", "is missing now"),
    ]
    assert "    failing\n" in capsys.readouterr().out
    with pytest.raises(CannotCompareError, match=r"fails in another/made/word.failed: failing"):
        checked(Scenario("another", "nothing", (cli("word"),)), "failing", "same")


def test_one_tree_continues_what_the_other_has_begun(checked: Callable[..., list[Difference]]) -> None:
    scenario = Scenario("made-up", "nothing", (script("whole"),), begun=(script("parts"),))
    assert checked(scenario, "same", "same") == NOTHING
    assert checked(scenario, "same", "other") == [Difference("made-up/whole.txt", "-same")], "parts.txt is the commit's"


@pytest.mark.parametrize("wrong", [False, True])
def test_folders_that_must_hold_the_same_are_compared(tmp_path: Path, wrong: bool) -> None:
    for name, word in (("whole", "same"), ("continued", "other" if wrong else "same")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model").write_text(word)
        (tmp_path / name / "events").write_text(name)
    expected = [("continued/model", "not as in whole: -same")] if wrong else []
    found = unlike(tmp_path, Same("whole", "continued", ("model",)))
    assert [(each.file, each.first) for each in found] == expected
    nothing = unlike(tmp_path, Same("whole", "continued", ("results/*",)))
    assert [each.first for each in nothing] == ["has nothing to compare"]


def test_random_bytes_depend_on_who_asks_and_how_often() -> None:
    system = Bytes()
    with system.of("north"):
        first, second = system(8), system(8)
    with system.of("south"):
        other = system(8)
    assert len({first, second, other}) == 3
    system.begin("process")
    with system.of("north"):
        assert [system(8), len(system(5)), system(8)] == [first, 5, second]


def test_the_scenarios_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert "paper" in capsys.readouterr().out


def test_bad_usage_has_its_own_exit_code(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["--only", "everything", "--keep", str(tmp_path)]) == 2
    assert "there is no scenario 'everything', only run" in capsys.readouterr().err
    assert main(["--against", "no-such-commit", "--keep", str(tmp_path)]) == 2
    assert "no-such-commit" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["--agianst", "HEAD"])
