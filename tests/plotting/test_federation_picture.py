from __future__ import annotations

import numpy as np
import pytest

from codedfl.plotting import _federation as module
from codedfl.plotting import draw_federation
from tests.plotting.pictures import assert_readable

ASKED = np.array([[True, True], [True, False], [True, True]])
ARRIVED = np.array([[True, True], [True, False], [False, True]])


def is_png(picture: bytes) -> bool:
    return picture.startswith(b"\x89PNG\r\n\x1a\n")


@pytest.mark.parametrize("scores", [[0.1, 0.8, 0.85, 0.9], [None] * 4, [0.1, None, None, 0.9]])
def test_a_picture_is_drawn_with_and_without_scores(scores: list[float | None]) -> None:
    assert is_png(draw_federation([0, 1, 2, 3], scores, "accuracy", ["north", "east"], ASKED, ARRIVED))


@pytest.mark.slow
def test_a_run_without_rounds_and_one_with_many_devices_are_drawn() -> None:
    nobody = np.zeros((0, 2), np.bool_)
    assert is_png(draw_federation([0], [0.9], "accuracy", ["north", "east"], nobody, nobody))
    everybody = np.ones((150, 60), np.bool_)
    names = [f"device-{i}" for i in range(60)]
    assert is_png(draw_federation([0, 150], [0.1, 0.9], "r2", names, everybody, everybody))


def test_cells_show_who_arrived_who_was_late_and_who_was_away(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []

    def keep(figure: object) -> bytes:
        kept.append(figure)
        return b""

    monkeypatch.setattr(module, "to_png", keep)
    draw_federation([0, 1, 2, 3], [0.1, 0.8, 0.85, 0.9], "accuracy", ["north", "east"], ASKED, ARRIVED)
    above, below = kept[0].axes  # type: ignore[attr-defined]
    assert above.lines[0].get_xdata().tolist() == [1, 2, 3], "the zero model is left out"
    assert below.collections[0].get_array().tolist() == [[2, 2, 1], [2, 0, 2]]
    assert [label.get_text() for label in below.get_yticklabels()] == ["north", "east"]


@pytest.mark.parametrize("devices", [1, 12])
def test_names_and_legend_can_be_read(devices: int) -> None:
    asked = np.ones((30, devices), np.bool_)
    names = [f"the $very$ long name of device {i}" for i in range(devices)]
    scores = np.linspace(0.1, 0.9, 31).tolist()
    assert_readable(module.federation_figure(range(31), scores, "accuracy", names, asked, asked))
