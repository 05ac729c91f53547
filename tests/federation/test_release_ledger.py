from __future__ import annotations

import errno
import json
import math
import os
import stat
import subprocess
import sys
import tempfile
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.errors import InputError
from codedfl.federation._release_ledger import LedgerEntry, ReleaseLedger
from codedfl.privacy import CodedMechanism, GaussianMechanism, epsilon_of, gaussian_epsilon
from tests.federation.configs import total_epsilon


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def append(ledger: ReleaseLedger, kind: str = "update", what: str = "x", **values: Any) -> LedgerEntry:
    return ledger.append(kind, federation="wards", size_bytes=len(what), digest=digest(what), **values)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.jsonl"


@pytest.fixture
def four(path: Path) -> Path:
    """A ledger of four lines."""
    ledger = ReleaseLedger(path)
    append(ledger, "upload", "coded", key="c0de", noise_variance=0.5, label_noise_variance=0.25, epsilon=2.0)
    for number in range(3):
        append(ledger, "update", f"round {number}", round=number)
    return path


def test_an_entry_says_what_was_released(path: Path) -> None:
    entry = append(ReleaseLedger(path), "upload", "coded", key="c0de", noise_variance=0.5, epsilon=2)
    (line,) = path.read_text().splitlines()
    assert json.loads(line) == {
        "sequence": 1,
        "time": entry.time,
        "kind": "upload",
        "federation": "wards",
        "round": None,
        "size_bytes": 5,
        "noise_variance": 0.5,
        "label_noise_variance": None,
        "epsilon": 2.0,
        "key": "c0de",
        "digest": digest("coded"),
        "previous": "0" * 64,
        "mu": None,
    }
    assert entry.time.endswith("+00:00")


def test_a_ledger_outlives_restarts(four: Path) -> None:
    ledger = ReleaseLedger(four)
    assert (len(ledger), ledger.updates(), ledger.uploads()) == (4, 3, ("c0de",))
    append(ledger, round=3)
    again = ReleaseLedger(four)
    assert [entry.sequence for entry in again] == [1, 2, 3, 4, 5]
    assert [entry.round for entry in again] == [None, 0, 1, 2, 3]
    lines = four.read_bytes().splitlines(keepends=True)
    assert [entry.previous for entry in again][1:] == [sha256(line).hexdigest() for line in lines[:-1]]
    assert [entry.line() for entry in again] == lines


def test_an_upload_sent_again_is_a_repeat(path: Path) -> None:
    for _ in range(3):
        append(ReleaseLedger(path), "upload", "coded", key="c0de", epsilon=2.0)
    ledger = ReleaseLedger(path)
    assert [entry.kind for entry in ledger] == ["upload", "repeat", "repeat"]
    assert ledger.uploads() == ("c0de",)
    assert total_epsilon(ledger) == 2.0


def test_an_upload_drawn_again_is_another_one(path: Path) -> None:
    ledger = ReleaseLedger(path)
    append(ledger, "upload", "coded", key="c0de", epsilon=2.0)
    append(ledger, "upload", "coded anew", key="c0de", epsilon=2.0)
    append(ledger, "upload", "coded", key="beef", epsilon=1.0)
    assert ledger.uploads() == ("c0de", "c0de", "beef")
    assert ledger.upload_epsilon() == 5.0


def test_losses_add_up_and_one_that_is_unknown_spoils_the_sum(path: Path) -> None:
    ledger = ReleaseLedger(path)
    assert total_epsilon(ledger) == 0.0
    append(ledger, "upload", "coded", key="c0de", epsilon=1.5)
    append(ledger, "answer", epsilon=0.0)
    append(ledger, "evaluation", epsilon=0.25)
    assert total_epsilon(ledger) == 1.75
    append(ledger, "update", round=0)
    for each in (ledger, ReleaseLedger(path)):
        assert total_epsilon(each) is None
        assert each.upload_epsilon() == 1.5
    append(ledger, "upload", "another", key="beef", epsilon=float("inf"))
    assert ledger.upload_epsilon() is None


def test_gaussian_releases_compose_and_repeats_of_them_cost_nothing(path: Path) -> None:
    ledger = ReleaseLedger(path)
    append(ledger, "upload", "mean", key="c0de", epsilon=0.3, mechanism=GaussianMechanism(1 / 0.3))
    update = GaussianMechanism(2.5)
    for number in (0, 1, 0):
        append(ledger, "update", f"round {number}", key=f"beef{number}", round=number, epsilon=0.4, mechanism=update)
    append(ledger, "upload", "coded", key="face", epsilon=0.25)
    assert [entry.kind for entry in ledger] == ["upload", "update", "update", "repeat", "upload"]
    for each in (ledger, ReleaseLedger(path)):
        assert each.gaussian_mu("wards") == each.gaussian_mu() == pytest.approx(math.sqrt(0.09 + 2 * 0.16))
        assert each.gaussian_mu("others") == 0.0
        for delta in (1e-5, 1e-9):
            expected = 0.25 + gaussian_epsilon(each.gaussian_mu(), delta)
            assert total_epsilon(each, delta) == each.upload_epsilon(delta) == pytest.approx(expected)
        assert each.has("update", "beef1", digest("round 1"))
        assert not each.has("update", "beef1", digest("round 0"))
        assert not each.has("upload", "beef1", digest("round 1"))
        assert each.updates() == 2
        assert (each.other_epsilon("wards"), each.other_epsilon("others"), each.other_epsilon()) == (0.25, 0.0, 0.25)
    append(ledger, "update", "in the clear", round=2)
    assert total_epsilon(ledger) is None


def test_coded_releases_compose_with_gaussian_ones(path: Path) -> None:
    ledger = ReleaseLedger(path)
    coded, update = CodedMechanism(300, 0.02), GaussianMechanism(3.0)
    for to, number in (("wards", 0), ("wards", 0), ("others", 1)):
        ledger.append(
            "upload",
            federation=to,
            size_bytes=1,
            digest=digest(f"{number}"),
            key=f"c0de{number}",
            epsilon=0.9,
            mechanism=coded,
        )
    append(ledger, "update", "round 0", key="beef", round=0, epsilon=0.4, mechanism=update)
    append(ledger, "upload", "alone", key="face", epsilon=0.25)
    assert [entry.kind for entry in ledger] == ["upload", "repeat", "upload", "update", "upload"]
    assert [entry.mechanism for entry in ledger] == [coded, coded, coded, update, None]
    assert [("coded" in json.loads(line)) for line in path.read_text().splitlines()] == [True, True, True, False, False]
    for each in (ledger, ReleaseLedger(path)):
        assert set(each.mechanisms("wards")) == {coded, update}
        assert (each.other_epsilon("wards"), each.other_epsilon("others")) == (0.25, 0.0)
        for delta in (1e-5, 1e-9):
            assert epsilon_of(each.mechanisms("others"), delta) == epsilon_of([coded], delta)
            assert each.upload_epsilon(delta) == 0.25 + epsilon_of([coded, coded, update], delta)


@pytest.mark.parametrize(
    "coded",
    [
        {"coded_samples": 3},
        {"coded_samples": 0, "signal_to_noise": 0.1},
        {"rows": 3, "signal_to_noise": 0.1},
        [3, 0.1],
        "x",
    ],
)
def test_a_mechanism_that_is_none_is_no_line(path: Path, coded: Any) -> None:
    ReleaseLedger(path)
    entry = LedgerEntry(
        1,
        "2026-01-01T00:00:00+00:00",
        "upload",
        "wards",
        None,
        10,
        1.0,
        None,
        0.5,
        "c0de",
        digest("1"),
        "0" * 64,
        None,
        coded,
    )
    path.write_bytes(entry.line())
    with pytest.raises(InputError, match="line 1 is not an entry"):
        ReleaseLedger(path)


def test_lines_of_earlier_versions_are_read(path: Path) -> None:
    ReleaseLedger(path)
    previous, lines = "0" * 64, []
    for number in (1, 2):
        entry = LedgerEntry(number, "2026-01-01T00:00:00+00:00", "upload", "wards", None, 10, 1.0, None, 0.5, f"c0de{number}",
                            digest(str(number)), previous)  # fmt: skip
        told = json.loads(entry.line())
        del told["mu"]
        lines.append((json.dumps(told) + "\n").encode())
        previous = sha256(lines[-1]).hexdigest()
    path.write_bytes(b"".join(lines))
    ledger = ReleaseLedger(path)
    assert [entry.mu for entry in ledger] == [None, None]
    assert (total_epsilon(ledger), ledger.gaussian_mu()) == (1.0, 0.0)
    append(ledger)
    assert len(ReleaseLedger(path)) == 3


def edited(lines: list[bytes], number: int, old: bytes, new: bytes) -> list[bytes]:
    assert old in lines[number]
    return [*lines[:number], lines[number].replace(old, new), *lines[number + 1 :]]


@pytest.mark.parametrize(
    ("tamper", "problem"),
    [
        (lambda lines: [*lines[:1], *lines[2:]], "line 2 does not follow"),
        (lambda lines: lines[1:], "line 1 does not follow"),
        (lambda lines: lines[:-1], "it has 3 of at least 4 lines"),
        (lambda _: [], "it has 0 of at least 4 lines"),
        (lambda lines: [lines[0], lines[2], lines[1], lines[3]], "line 2 does not follow"),
        (lambda lines: [*lines[:2], lines[1], *lines[2:]], "line 3 does not follow"),
        (lambda lines: edited(lines, 0, b'"epsilon":2.0', b'"epsilon":1.0'), "line 2 does not follow"),
        (lambda lines: edited(lines, 1, b'"round":0', b'"round":9'), "line 3 does not follow"),
        (lambda lines: edited(lines, 3, b'"round":2', b'"round":9'), "line 4 was altered"),
        (lambda lines: edited(lines, 2, b'"kind":', b'"kinds":'), "line 3 is not an entry"),
        (lambda lines: edited(lines, 0, b'"epsilon":2.0', b'"epsilon":NaN'), "line 1 is not an entry"),
        (lambda lines: edited(lines, 0, b'"epsilon":2.0', b'"epsilon":"2"'), "line 1 is not an entry"),
        (lambda lines: [*lines[:2], b"\xff\n", *lines[2:]], "line 3 is not an entry"),
        (lambda lines: [*lines, b"\n"], "line 5 is not an entry"),
        (lambda lines: [*lines[:-1], lines[-1][:40]], "it has 3 of at least 4 lines"),
    ],
)
def test_a_ledger_that_was_tampered_with_is_refused(four: Path, tamper: Any, problem: str) -> None:
    four.write_bytes(b"".join(tamper(four.read_bytes().splitlines(keepends=True))))
    before = four.read_bytes()
    with pytest.raises(
        InputError, match=f"^the ledger '.*ledger.jsonl' does not verify, as {problem}.*: restore it and"
    ):
        ReleaseLedger(four)
    assert four.read_bytes() == before


def test_a_ledger_that_was_deleted_is_refused(four: Path) -> None:
    four.unlink()
    with pytest.raises(InputError, match="it has 0 of at least 4 lines"):
        ReleaseLedger(four)


@pytest.mark.parametrize("head", [None, b"", b"four", b"4", b"4 \xff"])
def test_a_ledger_without_its_head_is_refused(four: Path, head: bytes | None) -> None:
    path = four.with_name("ledger.jsonl.head")
    path.unlink()
    if head is not None:
        path.write_bytes(head)
    with pytest.raises(InputError, match=r"its file 'ledger.jsonl.head' is (missing|damaged)"):
        ReleaseLedger(four)


def test_both_files_moved_away_begin_a_new_ledger(four: Path) -> None:
    four.unlink()
    four.with_name("ledger.jsonl.head").unlink()
    assert len(ReleaseLedger(four)) == 0


def test_a_line_torn_anywhere_is_noted(four: Path) -> None:
    """A process that dies while it writes a line has not updated the head."""
    complete, head = four.read_bytes(), four.with_name("ledger.jsonl.head").read_bytes()
    append(ReleaseLedger(four), "upload", "another", key="beef")
    line = four.read_bytes()[len(complete) :]
    for length in range(1, len(line), 7):
        four.write_bytes(complete + line[:length])
        four.with_name("ledger.jsonl.head").write_bytes(head)
        entries = list(ReleaseLedger(four))
        assert [entry.kind for entry in entries] == ["upload", "update", "update", "update", "torn"]
        assert entries[-1].size_bytes == length
        assert entries[-1].digest == sha256(line[:length]).hexdigest()
        ledger = ReleaseLedger(four)
        assert ledger.uploads() == ("c0de",)
        assert ledger.upload_epsilon() == 2.0
        assert append(ledger).sequence == 6


def test_a_process_that_dies_before_it_updates_the_head_has_recorded_the_line(four: Path) -> None:
    head = four.with_name("ledger.jsonl.head").read_bytes()
    append(ReleaseLedger(four), round=3)
    four.with_name("ledger.jsonl.head").write_bytes(head)
    assert ReleaseLedger(four).updates() == 4
    assert four.with_name("ledger.jsonl.head").read_bytes().startswith(b"5 ")


def test_a_full_disk_is_refused_and_leaves_the_ledger_as_it_was(four: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, write = four.read_bytes(), os.write

    def half(descriptor: int, content: bytes) -> int:
        return write(descriptor, content[: len(content) // 2])

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    ledger = ReleaseLedger(four)
    for name, failure in (("write", half), ("fsync", full)):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, failure)
            with pytest.raises(
                InputError, match=r"cannot be written \(.*(full|No space).*\): free space .*nothing was sent"
            ):
                append(ledger)
        assert four.read_bytes() == before
    assert append(ledger).sequence == 5
    assert len(ReleaseLedger(four)) == 5


def test_two_ledgers_of_one_file_take_turns(path: Path) -> None:
    one, other = ReleaseLedger(path), ReleaseLedger(path)
    append(one, "upload", "coded", key="c0de")
    assert append(other, "upload", "coded", key="c0de").kind == "repeat"
    append(one, "update")
    append(other, "update")
    assert other.updates() == 2
    assert [entry.sequence for entry in other] == [1, 2, 3, 4]
    assert len(ReleaseLedger(path)) == 4


WRITER = """
import sys
from codedfl.federation._release_ledger import ReleaseLedger
ledger = ReleaseLedger(sys.argv[1])
for number in range(20):
    ledger.append("update", federation="wards", size_bytes=1, digest="ab" * 32, round=number)
"""


@pytest.mark.slow
def test_processes_append_at_the_same_time(path: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path)]) for _ in range(2)]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0]
    assert ReleaseLedger(path).updates() == 40


def test_a_ledger_that_shrinks_while_it_is_open_is_refused(four: Path) -> None:
    ledger = ReleaseLedger(four)
    four.write_bytes(b"".join(four.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(InputError, match="its last lines are missing"):
        append(ledger)


def test_only_the_owner_can_read_it(path: Path) -> None:
    before = os.umask(0)
    try:
        append(ReleaseLedger(path.parent / "state" / "ledger.jsonl"))
    finally:
        os.umask(before)
    folder = path.parent / "state"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "torn"}, "kind = 'torn' is not possible"),
        ({"kind": "repeat"}, "kind = 'repeat' is not possible"),
        ({"kind": "Upload\n"}, "is not possible: give a word"),
        ({"digest": "abc"}, "digest = 'abc' is no SHA-256 digest: give 64 hexadecimal digits in lower case."),
        ({"size_bytes": -1}, "size_bytes = -1 must be 0 or more"),
        ({"round": 0.5}, "round = 0.5 must be a whole number"),
        ({"epsilon": -1.0}, "epsilon = -1.0 must be a finite number"),
        ({"epsilon": float("nan")}, "epsilon = nan must be a finite number"),
        ({"noise_variance": float("inf")}, "noise_variance = inf must be a finite number"),
    ],
)
def test_bad_entries_are_refused(path: Path, values: dict[str, Any], message: str) -> None:
    ledger = ReleaseLedger(path)
    good: dict[str, Any] = {"kind": "update", "federation": "wards", "size_bytes": 1, "digest": "ab" * 32}
    with pytest.raises(InputError, match=message):
        ledger.append(**{**good, **values})
    assert path.read_bytes() == b""


NUMBERS = st.none() | st.floats(0, 1e300)
RELEASES = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["upload", "update", "evaluation", "answer"]),
        "federation": st.text(max_size=5),
        "round": st.none() | st.integers(0, 10**6),
        "size_bytes": st.integers(0, 2**40),
        "digest": st.sampled_from(["ab" * 32, "cd" * 32]),
        "key": st.sampled_from(["", "c0de", "beef"]),
        "noise_variance": NUMBERS,
        "label_noise_variance": NUMBERS,
        "epsilon": NUMBERS,
    }
)


@given(st.lists(st.tuples(RELEASES, st.booleans()), max_size=6))
def test_whatever_is_appended_verifies(releases: list[tuple[dict[str, Any], bool]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.jsonl"
        ledger = ReleaseLedger(path)
        for release, reopened in releases:
            ledger = ReleaseLedger(path) if reopened else ledger
            ledger.append(**release)
        opened = ReleaseLedger(path)
        entries = list(opened)
    assert len(entries) == len(releases)
    for number, (entry, (release, _)) in enumerate(zip(entries, releases, strict=True), 1):
        repeated = any(
            before.kind == "upload" and (before.key, before.digest) == (entry.key, entry.digest)
            for before in entries[: number - 1]
        )
        assert entry.sequence == number
        assert entry.kind == ("repeat" if release["kind"] == "upload" and repeated else release["kind"])
        assert {name: getattr(entry, name) for name in release if name != "kind"} == {
            name: value for name, value in release.items() if name != "kind"
        }
    new = [entry.epsilon for entry in entries if entry.kind != "repeat"]
    total = total_epsilon(opened)
    assert total is None if None in new else total == pytest.approx(sum(value for value in new if value is not None))
    assert (opened.updates(), opened.uploads()) == (ledger.updates(), ledger.uploads())
    assert opened.updates() == sum(entry.kind == "update" for entry in entries)
    assert list(opened.uploads()) == [entry.key for entry in entries if entry.kind == "upload"]


@pytest.mark.slow
def test_a_hundred_thousand_lines_are_no_burden(path: Path) -> None:
    ReleaseLedger(path)
    previous, lines = "0" * 64, []
    for number in range(1, 100_001):
        entry = LedgerEntry(
            number,
            "2026-01-01T00:00:00+00:00",
            "update",
            "wards",
            number,
            80_000,
            None,
            None,
            None,
            "",
            "ab" * 32,
            previous,
        )
        lines.append(entry.line())
        previous = sha256(lines[-1]).hexdigest()
    path.write_bytes(b"".join(lines))
    started = time.perf_counter()
    ledger = ReleaseLedger(path)
    opened = time.perf_counter()
    assert ledger.updates() == 100_000
    few = ReleaseLedger(path.with_name("few.jsonl"))

    def appending(ledger: ReleaseLedger) -> float:
        started = time.perf_counter()
        for _ in range(50):
            append(ledger)
        return time.perf_counter() - started

    # An append that reread the file would take as long as opening it, fifty times.
    assert appending(ledger) < appending(few) + 5 * (opened - started)
