"""The expected batch against its law and against rounds, and the deadline against brute force."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from codedfl.fleet import (
    ROUNDS_NEEDED,
    SLOWEST,
    AdaptiveBatchArrivals,
    Channel,
    Fleet,
    RoundTiming,
    Workload,
    epoch_seconds,
    fastest_deadline,
)
from codedfl.fleet._round_design import CANDIDATES
from codedfl.streams import Streams
from codedfl.typing import IntArray

ROUNDS = 3000


def timing(powers: tuple[float, ...] = (12.0, 15.0, 20.0, 25.0), **changes: float) -> RoundTiming:
    devices = len(powers)
    fleet = Fleet(tuple(f"d{i}" for i in range(devices)), np.linspace(1.0e6, 1.6e6, devices), np.array(powers))
    base = RoundTiming(fleet, Channel(), Workload.for_linear_model(2000, 10, 1), deadline_s=9.0)
    return replace(base, **changes)  # type: ignore[arg-type]


def exact_batch(given: RoundTiming, samples: IntArray) -> list[float]:
    """Return ``sum_{n=1}^{l_i} P(b >= n)``, term by term."""
    sizes = np.arange(1, int(samples.max()) + 1)[:, None]
    at_least = given.arrival_probability(np.broadcast_to(sizes, (len(sizes), len(samples))))
    return [float(at_least[: int(most), i].sum()) for i, most in enumerate(samples)]


@pytest.mark.parametrize("deadline_s", [1.0, 4.0, 9.0, 40.0, 300.0])
@pytest.mark.parametrize("samples", [(3000, 700, 100, 30), (1, 2, 3, 5)])
def test_it_is_the_sum_of_probabilities(deadline_s: float, samples: tuple[int, ...]) -> None:
    """The quadrature of a smooth function at 65 points is off by far less than matters."""
    given = timing(deadline_s=deadline_s)
    found = given.expected_batch(np.array(samples))
    exact = exact_batch(given, np.array(samples))
    assert found == pytest.approx(exact, rel=0.01, abs=0.02)
    assert np.all(found <= samples)


@pytest.mark.slow
def test_it_is_the_mean_over_rounds() -> None:
    """Within 4.5 standard errors, and one percent for the quadrature."""
    given, samples = timing(), np.array([3000, 150, 40, 3000])
    arrivals = AdaptiveBatchArrivals(given, samples, Streams(4))
    batches = np.array([arrivals.attend(k).batch_sizes for k in range(ROUNDS)])
    expected = given.expected_batch(samples)
    error = batches.std(axis=0, ddof=1) / np.sqrt(ROUNDS)
    assert np.all(error < 0.03 * expected), "or the test would show little"
    assert np.all(np.abs(batches.mean(axis=0) - expected) < 4.5 * error + 0.01 * expected)
    assert np.any(batches == 0)


def test_devices_without_rows_and_without_a_channel() -> None:
    given = timing((15.0, 15.0, -300.0, 15.0))
    samples = np.array([0, 50, 50, 1])
    found = given.expected_batch(samples)
    assert found[0] == 0
    assert found[2] == pytest.approx(0.0, abs=1e-9)
    assert found[3] == pytest.approx(float(given.arrival_probability(1)[3]))
    epochs = epoch_seconds(given, samples)
    assert epochs[0] == 0
    assert epochs[2] > 1e9
    assert epochs[1] == pytest.approx(9.0 * 50 / found[1])


def predicted(given: RoundTiming, samples: IntArray, deadline_s: float) -> tuple[float, list[float]]:
    """Return the time for 15 rounds, and that of each device with rows to get through them, by exact sums."""
    later = replace(given, deadline_s=deadline_s)
    exact = exact_batch(later, samples)
    epochs = [deadline_s * int(n) / max(b, 1e-300) for n, b in zip(samples, exact, strict=True) if n > 0]
    return ROUNDS_NEEDED * deadline_s, epochs


@pytest.mark.parametrize(
    ("powers", "samples", "deadline_s"),
    [
        ((12.0, 15.0, 20.0, 25.0), (300, 300, 300, 300), 9.0),
        ((12.0, 15.0, 20.0, 25.0), (300, 300, 300, 300), 20.0),
        ((12.0, 15.0, 20.0, 25.0), (50, 0, 400, 10), 1.0),
        ((2.0, 3.0, 4.0), (200, 200, 200), 5.0),
        ((25.0, 25.0, -30.0), (200, 100, 200), 5.0),
    ],
)
def test_it_minimises_what_it_predicts(powers: tuple[float, ...], samples: tuple[int, ...], deadline_s: float) -> None:
    given, rows = timing(powers, deadline_s=deadline_s), np.array(samples)
    candidates = [deadline_s * float(factor) for factor in CANDIDATES]
    pieces = [predicted(given, rows, candidate) for candidate in candidates]
    longest = SLOWEST * min(float(np.median(epochs)) for _, epochs in pieces)
    criterion = [needed + float(np.mean(np.minimum(epochs, longest))) for needed, epochs in pieces]
    chosen = fastest_deadline(given, rows)
    assert chosen in [pytest.approx(candidate) for candidate in candidates]
    place = int(np.argmin(np.abs(np.array(candidates) - chosen)))
    assert criterion[place] <= 1.01 * min(criterion), "the best, but for the error of quadrature"
    assert place > 0, "not at the edge of the range"


def test_more_rows_and_worse_channels_need_longer_rounds() -> None:
    few, many = (fastest_deadline(timing(), np.full(4, rows)) for rows in (10, 30_000))
    assert few < many
    near, far = (fastest_deadline(timing((power,) * 3), np.full(3, 300)) for power in (30.0, 3.0))
    assert near < far


def test_time_in_other_units_gives_the_same_round() -> None:
    """Everything twice as slow takes rounds that are twice as long."""
    given, samples = timing(), np.array([300, 40, 500, 100])
    slower = replace(
        given,
        fleet=replace(given.fleet, mac_rate=given.fleet.mac_rate / 2),
        channel=Channel(bandwidth_hz=Channel().bandwidth_hz / 2, download_rate_bps=Channel().download_rate_bps / 2),
        deadline_s=18.0,
    )
    assert fastest_deadline(slower, samples) == pytest.approx(2 * fastest_deadline(given, samples))


def test_nobody_waits_for_a_device_out_of_reach() -> None:
    """Whatever the deadline it counts as taking the longest, so it does not change the choice."""
    heard, unheard = timing((15.0, 20.0, 25.0)), timing((15.0, 20.0, 25.0, -200.0))
    fleet = replace(unheard.fleet, mac_rate=np.append(heard.fleet.mac_rate, 1e6))
    samples = np.full(4, 300)
    pieces = [predicted(heard, samples[:3], 9.0 * float(factor)) for factor in CANDIDATES]
    best = int(
        np.argmin(
            [
                ROUNDS_NEEDED * 9.0 * factor + sum(epochs) / 4
                for factor, (_, epochs) in zip(CANDIDATES, pieces, strict=True)
            ]
        )
    )
    assert fastest_deadline(replace(unheard, fleet=fleet), samples) == pytest.approx(9.0 * CANDIDATES[best])


def test_nobody_can_ever_arrive() -> None:
    assert fastest_deadline(timing((-200.0, -200.0)), np.array([10, 10])) == 9.0
    assert fastest_deadline(timing(), np.zeros(4, np.int64)) == 9.0


def test_large_fleets_are_judged_by_some_of_their_devices() -> None:
    powers = tuple(np.tile([12.0, 15.0, 20.0, 25.0], 300))
    many = fastest_deadline(timing(powers), np.full(1200, 300))
    fleet = timing().fleet
    mixed = replace(timing(), fleet=replace(fleet, mac_rate=np.full(4, 1.3e6)))
    assert many == pytest.approx(fastest_deadline(mixed, np.full(4, 300)))
