from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest
import threadpoolctl

from codedfl.errors import InputError
from codedfl.parallel import Workers, available_cores, one_blas_thread

COUNTS = [1, 2, 3, 8]


@pytest.mark.parametrize("count", COUNTS)
def test_results_come_in_the_order_of_the_items(count: int) -> None:
    def slow_at_first(i: int) -> int:
        time.sleep(0.01 if i % 5 == 0 else 0.0)
        return i * i

    with Workers(count) as workers:
        assert list(workers.map(slow_at_first, range(30))) == [i * i for i in range(30)]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("items", [0, 1, 2])
def test_few_items_or_none(count: int, items: int) -> None:
    with Workers(count) as workers:
        assert list(workers.map(str, range(items))) == [str(i) for i in range(items)]


@pytest.mark.parametrize("count", COUNTS)
def test_an_exception_reaches_the_caller_in_its_place(count: int) -> None:
    def fail_at_seven(i: int) -> int:
        if i == 7:
            raise KeyError("seven")
        return i

    seen: list[int] = []
    with Workers(count) as workers:
        with pytest.raises(KeyError, match="seven"):
            seen.extend(workers.map(fail_at_seven, range(50)))  # extend keeps what came before
        results = workers.map(fail_at_seven, range(50))
        assert [next(results) for _ in range(7)] == list(range(7))
        with pytest.raises(KeyError, match="seven"):
            next(results)
        # and the workers go on working
        assert list(workers.map(fail_at_seven, range(3))) == [0, 1, 2]
    assert seen in ([], list(range(7)))


@pytest.mark.parametrize("count", COUNTS)
def test_an_exception_of_the_items_reaches_the_caller(count: int) -> None:
    def items() -> Iterator[int]:
        yield 1
        raise RuntimeError("no more")

    with Workers(count) as workers, pytest.raises(RuntimeError, match="no more"):
        list(workers.map(str, items()))


@pytest.mark.parametrize("count", COUNTS)
def test_at_most_two_items_a_worker_are_in_flight(count: int) -> None:
    taken = 0

    def items() -> Iterator[int]:
        nonlocal taken
        for i in range(200):
            taken += 1
            yield i

    most = 0
    with Workers(count) as workers:
        for received, _ in enumerate(workers.map(lambda i: i, items())):
            most = max(most, taken - received)  # this result and all those waiting behind it
    assert taken == 200
    assert most <= 2 * count


@pytest.mark.parametrize("count", COUNTS)
def test_nothing_is_taken_before_it_is_asked_for(count: int) -> None:
    taken: list[int] = []
    with Workers(count) as workers:
        results = workers.map(taken.append, range(100))
        assert taken == []
        next(results)
        del results
    assert 1 <= len(taken) <= 2 * count


def test_one_worker_is_the_callers_own_thread() -> None:
    with Workers(1) as workers:
        threads = set(workers.map(lambda _: threading.get_ident(), range(5)))
    assert threads == {threading.get_ident()}
    assert set(Workers().map(lambda _: threading.get_ident(), range(5))) == {threading.get_ident()}


def test_workers_work_at_the_same_time() -> None:
    meeting = threading.Barrier(3, timeout=20)  # breaks unless three are inside at once
    with Workers(3) as workers:
        places = list(workers.map(lambda _: meeting.wait(), range(3)))
    assert sorted(places) == [0, 1, 2]


@pytest.mark.parametrize("count", [0, -1])
def test_no_workers_are_refused(count: int) -> None:
    with pytest.raises(InputError, match=rf"^workers = {count} must be 1 or more\.$"):
        Workers(count)


def blas_threads() -> list[int]:
    return [info["num_threads"] for info in threadpoolctl.threadpool_info() if info["user_api"] == "blas"]


def test_blas_is_held_until_the_last_thread_lets_it_go() -> None:
    """Two blocks overlap, and the one that began first ends first."""
    inside, may_end = threading.Event(), threading.Event()

    def first() -> None:
        with one_blas_thread():
            inside.set()
            assert may_end.wait(60)

    with one_blas_thread():  # looks for all libraries, and so loads those that are not there yet
        pass
    with threadpoolctl.threadpool_limits(2, user_api="blas"):  # by which this thread alone is obeyed by threadpoolctl
        thread = threading.Thread(target=first)
        thread.start()
        assert inside.wait(60)
        with one_blas_thread():
            may_end.set()
            thread.join(60)
            assert set(blas_threads()) == {1}
        assert set(blas_threads()) == {2}


def test_blas_is_held_to_one_thread_and_let_go() -> None:
    with one_blas_thread():  # looks for all libraries, and so loads those that are not there yet
        pass
    before = blas_threads()
    assert before
    with one_blas_thread():
        assert set(blas_threads()) == {1}
    assert blas_threads() == before


def test_available_cores_are_those_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 <= available_cores() <= (os.cpu_count() or 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 2, 5}, raising=False)
    assert available_cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert available_cores() == 6
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert available_cores() == 1


def test_threads_start_at_the_first_map_and_end_with_the_block() -> None:
    before = threading.active_count()
    with Workers(3) as workers:
        assert threading.active_count() == before
        assert list(workers.map(abs, range(-20, 0))) == list(range(20, 0, -1))
        assert threading.active_count() > before
    assert threading.active_count() == before
    assert list(workers.map(abs, [-1, -2, -3])) == [1, 2, 3]  # starts new ones
    workers.close()
    workers.close()
    assert threading.active_count() == before
