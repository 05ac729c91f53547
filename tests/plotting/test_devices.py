from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from codedfl.audits import Audit, run_audit
from codedfl.incentive import DeviceTraits, contract_for_reward
from codedfl.plotting import _devices, draw_federation
from codedfl.plotting._devices import audit_figure, contract_figure, federation_figure
from codedfl.privacy import DeviceAudit
from tests.plotting.pictures import assert_readable
from tests.support import small_config


@pytest.fixture(scope="module")
def audit() -> Audit:
    return run_audit(small_config(), known_ratio=0.5)


def many(devices: tuple[DeviceAudit, ...], count: int) -> list[DeviceAudit]:
    return [replace(devices[i % len(devices)], name=f"the $n$-th hospital, number {i}") for i in range(count)]


@pytest.mark.parametrize("count", [1, 6, pytest.param(70, marks=pytest.mark.slow)])
def test_devices_have_names_and_nothing_is_cut_off(audit: Audit, count: int) -> None:
    figure = audit_figure(many(audit.devices, count), 0.5)
    assert_readable(figure)
    assert len(figure.axes[0].get_yticks()) == min(count, 60)
    assert ("first 60 of 70" in figure.axes[0].get_ylabel()) == (count == 70)


def test_what_has_no_bound_is_marked_at_the_edge() -> None:
    bare = run_audit(small_config(coding__noise_variance=0.0, features__dimension=300), known_ratio=None)
    figure = audit_figure(bare.devices, None)
    assert_readable(figure)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "corrected: no bound" in labels


@pytest.mark.parametrize("devices", [1, 3, 25, 60])
def test_items_have_the_names_of_their_devices_and_everything_can_be_read(devices: int) -> None:
    traits = DeviceTraits(np.linspace(2.0, 1.0, devices))
    names = tuple(f"the $n$-th hospital, number {i}" for i in range(devices))
    figure = contract_figure(contract_for_reward(traits, 5.0 * devices, 10_000), names)
    assert_readable(figure)
    ticks = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    if devices <= 25:
        assert ticks == ["the $n$-th hospital, …"] * devices
    else:
        assert all(tick.isdigit() for tick in ticks), "whole numbers"


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

    monkeypatch.setattr(_devices, "to_png", keep)
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
    assert_readable(federation_figure(range(31), scores, "accuracy", names, asked, asked))
