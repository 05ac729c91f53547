"""One guarantee from a list of releases, against an independent composition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as library
from scipy import stats

from codedfl.privacy import (
    CodedMechanism,
    GaussianMechanism,
    Mechanism,
    Release,
    epsilon_of,
    exact_epsilon,
    guarantee_of,
    rounding_delta,
    update_releases,
)

GAUSSIAN = GaussianMechanism(1.0)


@pytest.mark.parametrize(
    ("releases", "expected"),
    [
        ((), "everything"),
        ((Release("rows", GAUSSIAN),), "everything"),
        ((Release("rows", GAUSSIAN), Release("updates", GAUSSIAN, upload=False)), "everything"),
        ((Release("rows", GAUSSIAN), Release("updates", None, upload=False)), "upload"),
        ((Release("rows", None), Release("updates", GAUSSIAN, upload=False)), "nothing"),
        ((Release("rows", GAUSSIAN), Release("more rows", None)), "nothing"),
        ((Release("updates", None, upload=False),), "nothing"),
    ],
)
def test_one_message_in_the_clear_is_enough_to_lose_cover(releases: tuple[Release, ...], expected: str) -> None:
    assert guarantee_of([releases], 1e-5).covers == expected


def test_what_is_covered_is_covered_for_every_device_and_the_worst_counts() -> None:
    upload, clear = Release("rows", CodedMechanism(100, 0.05)), Release("updates", None, upload=False)
    private = Release("updates", GaussianMechanism(2.0), upload=False)
    mixed = guarantee_of([(upload, private), (upload, clear), ()], 1e-5)
    assert (mixed.covers, mixed.epsilon) == ("upload", exact_epsilon(1e-5, 100, 0.05))
    assert mixed.devices == (mixed.epsilon, mixed.epsilon, 0.0)
    whole = guarantee_of([(upload,), (upload, private)], 1e-5, outside=["sizes are public"])
    assert (whole.covers, whole.devices[0]) == ("everything", exact_epsilon(1e-5, 100, 0.05))
    assert whole.epsilon == whole.devices[1] == epsilon_of([CodedMechanism(100, 0.05), GaussianMechanism(2.0)], 1e-5)
    assert whole.messages == (upload, private)
    nothing = guarantee_of([(clear,), (upload,)], 1e-5)
    assert (nothing.covers, nothing.epsilon, nothing.messages) == ("nothing", math.inf, (clear,))


def test_preparation_counts_but_is_no_upload() -> None:
    norms, clear = Release("norms", GaussianMechanism(8.0), preparation=True), Release("updates", None, upload=False)
    rows = Release("rows", GaussianMechanism(1.0))
    assert guarantee_of([(norms, clear)], 1e-5).covers == "nothing"
    both = guarantee_of([(norms, rows, clear)], 1e-5)
    assert (both.covers, both.epsilon) == ("upload", epsilon_of([GaussianMechanism(8.0), GaussianMechanism(1.0)], 1e-5))


def test_updates_of_unlike_noise_are_one_release() -> None:
    precision = 1 / 4 + 1 / 9 + 1 / 16
    (release,) = update_releases(3, precision)
    assert release.mechanism is not None
    apart = [GaussianMechanism(2.0), GaussianMechanism(3.0), GaussianMechanism(4.0)]
    assert epsilon_of([release.mechanism], 1e-5) == pytest.approx(epsilon_of(apart, 1e-5), rel=1e-12)
    assert update_releases(0, 0.0) == ()
    assert update_releases(2, 0.0) == (Release("updates", None, upload=False),)


def test_rounding_is_part_of_delta_where_something_is_covered() -> None:
    rows, clear = Release("rows", GaussianMechanism(4.0)), Release("updates", None, upload=False)

    def rounding(device: int, epsilon: float) -> float:
        return rounding_delta((device + 1) * 10**6, 0.0, epsilon)

    one = guarantee_of([(rows,), (rows,)], 1e-5, rounding_delta=rounding)
    assert one.epsilon == epsilon_of([GaussianMechanism(4.0)], 1e-5)
    assert one.delta == 1e-5 + rounding(1, one.epsilon) > 1e-5 + rounding(0, one.epsilon)
    assert guarantee_of([(clear,)], 1e-5, rounding_delta=rounding).delta == 1e-5
    assert guarantee_of([(rows,)], 1e-5, rounding_delta=lambda _device, _epsilon: 1.0).delta == 1.0


def test_as_a_dictionary() -> None:
    rows = Release("coded rows", CodedMechanism(100, 0.05))
    guarantee = guarantee_of([(rows,), ()], 1e-5, against="sums only", outside=["sizes are public"])
    assert guarantee.as_dict() == {
        "epsilon": guarantee.epsilon,
        "delta": 1e-5,
        "covers": "everything",
        "threat_model": "sums only",
        "adjacency": "one sample more or less",
        "devices": [guarantee.epsilon, 0.0],
        "messages": [
            {"message": "coded rows", "mechanism": "CodedMechanism", "coded_samples": 100, "signal_to_noise": 0.05}
        ],
        "outside": ["sizes are public"],
    }
    assert guarantee.as_dict(["north", "south"])["devices"] == {"north": guarantee.epsilon, "south": 0.0}


INTERVAL, QUANTILES = 5e-4, 100_000


def coded_losses(mechanism: CodedMechanism) -> Any:
    """The losses of coded rows in both directions on a grid, rounded up: from chi-square quantiles, not from deltas."""
    c, r = mechanism.coded_samples, mechanism.signal_to_noise
    half, squares = c / 2 * math.log1p(r), stats.chi2.isf((np.arange(QUANTILES) + 0.5) / QUANTILES, c)
    directions = []
    for losses in (r * squares / 2 - half, half - r / (1 + r) * squares / 2):
        cells, counts = np.unique(np.ceil(losses / INTERVAL).astype(int), return_counts=True)
        masses = dict(zip(cells.tolist(), (counts / QUANTILES).tolist(), strict=True))
        directions.append(pld_pmf.SparsePLDPmf(masses, INTERVAL, 0.0, True).to_dense_pmf())
    return library.PrivacyLossDistribution(*directions)


def their_epsilon(mechanisms: Sequence[Mechanism], delta: float) -> float:
    """The composition of dp-accounting, with its own losses of Gaussian mechanisms."""
    losses = [
        coded_losses(mechanism)
        if isinstance(mechanism, CodedMechanism)
        else library.from_gaussian_mechanism(
            mechanism.noise_multiplier,
            sampling_prob=mechanism.sampling_rate,
            value_discretization_interval=INTERVAL,
        ).self_compose(mechanism.count)
        for mechanism in mechanisms
    ]
    return float(reduce(lambda total, part: total.compose(part), losses).get_epsilon_for_delta(delta))


@pytest.mark.slow
def test_a_mixed_list_of_releases_is_composed_as_by_dp_accounting() -> None:
    """Its grid is rounded up too: both are a little above the truth, and so many quantiles tell tails of 1e-3 to 0.3%."""
    delta = 1e-3
    mechanisms: list[Mechanism] = [
        GaussianMechanism(9.0),
        CodedMechanism(100, 0.03),
        CodedMechanism(40, 0.05),
        GaussianMechanism(2.0, 20, 0.1),
    ]
    uploads = tuple(Release(f"upload {k}", mechanism) for k, mechanism in enumerate(mechanisms[:3]))
    found = guarantee_of([(*uploads, Release("updates", mechanisms[3], upload=False))], delta)
    assert found.covers == "everything"
    assert found.epsilon == pytest.approx(their_epsilon(mechanisms, delta), rel=2e-3)
