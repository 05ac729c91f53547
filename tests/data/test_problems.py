from __future__ import annotations

import pickle

import pytest

from codedfl.data._problems import MOST_LINES, refuse_all
from codedfl.errors import InputError, InputListError


def test_nothing_wrong_is_not_refused() -> None:
    refuse_all("'my.csv'", [])


def test_one_problem_is_one_sentence_that_names_the_source_once() -> None:
    with pytest.raises(InputError, match=r"^'my\.csv': it is empty\.$"):
        refuse_all("'my.csv'", ["it is empty."])
    with pytest.raises(InputError, match=r"^'my\.csv' is empty\.$"):
        refuse_all("'my.csv'", ["'my.csv' is empty."])


def test_many_problems_are_cut() -> None:
    with pytest.raises(InputListError) as caught:
        refuse_all("'my.csv'", [f"column {number} is empty." for number in range(100)])
    first, *lines = str(caught.value).splitlines()
    assert first == "'my.csv' has 100 problems:"
    assert len(lines) == MOST_LINES + 1
    assert lines[-1] == f"- and {100 - MOST_LINES} more."
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
