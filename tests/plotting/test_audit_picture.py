from __future__ import annotations

from dataclasses import replace

import pytest

from codedfl.experiment import Audit, run_audit
from codedfl.plotting._audit import audit_figure
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
