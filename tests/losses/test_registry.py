from __future__ import annotations

import pytest

from codedfl.data import Task
from codedfl.errors import InputError
from codedfl.losses import LOSSES, SOFTMAX, SQUARE, Loss, make_loss


@pytest.mark.parametrize(
    ("name", "task", "expected"),
    [
        ("auto", "classification", SOFTMAX),
        ("auto", "regression", SQUARE),
        ("square", "classification", SQUARE),
        ("square", "regression", SQUARE),
        ("softmax", "classification", SOFTMAX),
    ],
)
def test_auto_follows_the_task_and_a_name_is_kept(name: str, task: Task, expected: Loss) -> None:
    assert make_loss(name, task) is expected


def test_a_softmax_of_numbers_is_refused() -> None:
    with pytest.raises(InputError) as refused:
        make_loss("softmax", "regression", field="options.dp-gd.loss")
    assert str(refused.value) == (
        'options.dp-gd.loss = "softmax" is for classes, but the task is a regression: use "square".'
    )


def test_a_name_that_is_none_is_refused_with_all_that_are() -> None:
    with pytest.raises(InputError, match="loss = 'hinge' is no loss") as refused:
        make_loss("hinge", "classification")
    assert all(name in str(refused.value) for name in ("auto", *LOSSES))
