from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest

from codedfl._validation import (
    MOST_LINES,
    refuse_all,
    require_at_least,
    require_finite,
    require_fraction,
    require_non_negative,
    require_positive,
)
from codedfl.errors import InputError, InputListError
from codedfl.typing import ENTRIES_PER_BLOCK


def refusal(error: pytest.ExceptionInfo[InputError]) -> str:
    return str(error.value)


@pytest.mark.parametrize("value", [1, 0.5, 5e-324, 1.7e308, np.float32(2.0)])
def test_positive_numbers_pass(value: float) -> None:
    require_positive("bandwidth_hz", value)
    require_non_negative("bandwidth_hz", value)


@pytest.mark.parametrize("value", [0, -0.0, -1.5, math.nan, math.inf, -math.inf])
def test_what_is_not_positive_is_refused(value: float) -> None:
    with pytest.raises(InputError) as error:
        require_positive("bandwidth_hz", value)
    assert refusal(error) == f"bandwidth_hz = {value} must be a positive finite number."


@pytest.mark.parametrize("value", [0, 0.0, -0.0])
def test_zero_is_not_negative(value: float) -> None:
    require_non_negative("noise_variance", value)


@pytest.mark.parametrize("value", [-1e-300, -2, math.nan, math.inf, -math.inf])
def test_what_is_negative_or_not_finite_is_refused(value: float) -> None:
    with pytest.raises(InputError) as error:
        require_non_negative("noise_variance", value)
    assert refusal(error) == f"noise_variance = {value} must be a finite number, zero or more."


def test_at_least() -> None:
    require_at_least("rounds", 3, 3)
    require_at_least("rounds", 4, 3)
    with pytest.raises(InputError) as error:
        require_at_least("rounds", 2, 3)
    assert refusal(error) == "rounds = 2 must be 3 or more."


@pytest.mark.parametrize("shape", [(), (3,), (2, 2), (0,), (0, 4)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_finite_arrays_pass(shape: tuple[int, ...], dtype: type[np.floating]) -> None:
    require_finite("features", np.full(shape, np.finfo(dtype).max, dtype))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_counted_and_the_first_is_named(bad: float) -> None:
    values = np.zeros((4, 3))
    values[1, 2] = values[3, 0] = bad
    with pytest.raises(InputError) as error:
        require_finite("features", values)
    assert refusal(error) == (
        "features has 2 value(s) that are NaN or infinite, the first at index (1, 2): "
        "remove those rows or fill the values in."
    )


def test_the_index_in_a_vector() -> None:
    with pytest.raises(InputError, match=r"labels has 1 value\(s\) .* the first at index \(2,\):"):
        require_finite("labels", np.array([0.0, 1.0, math.nan]))


def test_refusals_are_value_errors() -> None:
    assert issubclass(InputError, ValueError)


@pytest.mark.parametrize("value", [1.5, 2.0, float("nan"), "3"])
def test_a_count_that_is_not_an_integer_is_refused(value: Any) -> None:
    with pytest.raises(InputError, match=r"rounds = .* must be a whole number, 1 or more\."):
        require_at_least("rounds", value, 1)


def test_a_nan_is_refused_with_its_place_in_the_whole_matrix() -> None:
    values = np.zeros((ENTRIES_PER_BLOCK // 64 + 10, 64), dtype=np.float32)
    require_finite("features", values)
    values[-1, 3] = np.nan
    with pytest.raises(InputError, match=rf"features has 1 value.* at index \({len(values) - 1}, 3\)"):
        require_finite("features", values)


@pytest.mark.parametrize("value", [True, False, np.True_, "3", 3.0, None])
def test_a_count_is_an_integer_and_a_boolean_is_none(value: Any) -> None:
    with pytest.raises(InputError, match=r"rounds = .* must be a whole number, 0 or more\."):
        require_at_least("rounds", value, 0)


@pytest.mark.parametrize(
    "value", [True, "1", None, 10**400, 10**5000, 1j], ids=["boolean", "text", "none", "huge", "larger", "complex"]
)
def test_what_is_no_finite_number_is_refused(value: Any) -> None:
    for require in (require_positive, require_non_negative, require_fraction):
        with pytest.raises(InputError, match="must be") as caught:
            require("x", value)
        assert len(str(caught.value)) < 200


@pytest.mark.parametrize("value", [0, 1, -0.5, math.nan])
def test_a_fraction_is_within_0_and_1(value: float) -> None:
    require_fraction("data.test_fraction", 0.2)
    with pytest.raises(InputError, match="must be more than 0 and less than 1"):
        require_fraction("data.test_fraction", value)


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
