from __future__ import annotations

import importlib
import math
from types import ModuleType

import numpy as np
import pytest

from codedfl.errors import InputError
from codedfl.privacy._accountant import PrivacyAccountant
from codedfl.privacy._composition import compose

UPLOAD = PrivacyAccountant(coded_samples=10_000, epsilon=1.0, delta=1e-5)


@pytest.fixture
def library() -> ModuleType:
    pytest.importorskip("dp_accounting")
    return importlib.import_module("dp_accounting")


@pytest.mark.usefixtures("library")
def test_an_upload_alone_has_its_own_epsilon_from_renyi() -> None:
    alone = compose([UPLOAD], [], delta=1e-5)
    assert alone.epsilon == pytest.approx(UPLOAD.epsilon_from_renyi, rel=1e-3)
    assert alone.epsilon >= UPLOAD.epsilon
    assert alone.delta == 1e-5
    assert 1 < alone.order < 1 + 1 / UPLOAD.signal_to_noise


def test_no_upload_leaves_the_other_mechanisms(library: ModuleType) -> None:
    event = library.GaussianDpEvent(2.0)
    expected = library.rdp.RdpAccountant().compose(event).get_epsilon(1e-5)
    assert compose([], [event], delta=1e-5).epsilon == pytest.approx(expected, rel=1e-12)


def test_curves_add_up(library: ModuleType) -> None:
    """A Gaussian mechanism has divergence ``a / (2 z^2)``, so the sum is known in closed form."""
    orders = np.geomspace(1.1, 200, 500)
    events = [library.SelfComposedDpEvent(library.GaussianDpEvent(50.0), 100)]
    total = UPLOAD.renyi(orders) + 100 * orders / (2 * 50.0**2)
    expected, order = library.rdp.compute_epsilon(orders, total, 1e-6)
    found = compose([UPLOAD], events, delta=1e-6, orders=orders)
    assert found.epsilon == pytest.approx(expected, rel=1e-12)
    assert found.order == pytest.approx(order)
    assert compose([UPLOAD], events, delta=1e-5).epsilon == pytest.approx(1.39, abs=0.005)


@pytest.mark.usefixtures("library")
def test_two_uploads_are_one_of_twice_the_rows() -> None:
    twice = PrivacyAccountant(coded_samples=20_000, noise_variance=UPLOAD.noise_variance, delta=1e-5)
    assert compose([UPLOAD, UPLOAD], [], 1e-5).epsilon == pytest.approx(compose([twice], [], 1e-5).epsilon, rel=1e-9)
    assert compose([UPLOAD, UPLOAD], [], 1e-5).epsilon > twice.epsilon


def test_replacement_composes_with_mechanisms_for_replacement(library: ModuleType) -> None:
    upload = PrivacyAccountant(coded_samples=100, noise_variance=100.0, delta=1e-5, adjacency="replace")
    sampled = library.SampledWithoutReplacementDpEvent(1000, 10, library.GaussianDpEvent(3.0))
    assert compose([upload], [sampled], 1e-5, orders=[2, 4, 8, 16, 32]).epsilon > upload.epsilon
    with pytest.raises(InputError, match=r"^events: dp-accounting cannot compose SampledWithoutReplacement"):
        compose([UPLOAD], [sampled], 1e-5)
    with pytest.raises(InputError, match=r"^uploads have the adjacencies add-remove, replace"):
        compose([upload, UPLOAD], [], 1e-5)


@pytest.mark.usefixtures("library")
def test_little_noise_and_no_noise() -> None:
    paper = PrivacyAccountant(coded_samples=10_000, noise_variance=0.25, delta=1e-5)
    assert paper.epsilon < compose([paper], [], 1e-5).epsilon < 1.1 * paper.epsilon
    bare = PrivacyAccountant(coded_samples=10, noise_variance=0.0, delta=1e-5)
    assert compose([bare], [], 1e-5).epsilon == math.inf


@pytest.mark.usefixtures("library")
def test_bad_input_is_refused() -> None:
    with pytest.raises(InputError, match=r"^delta = 1.5 must lie"):
        compose([UPLOAD], [], 1.5)
    with pytest.raises(InputError, match=r"^events: dp-accounting cannot compose 'training'"):
        compose([UPLOAD], ["training"], 1e-5)


def test_without_the_extra_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> ModuleType:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr("codedfl.privacy._composition.importlib.import_module", missing)
    with pytest.raises(InputError, match=r'run pip install "codedfl\[privacy\]"'):
        compose([UPLOAD], [], 1e-5)
