from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from codedfl.errors import InputError
from codedfl.privacy import Adjacency, exact_epsilon, log_delta, renyi_divergence, useful_orders
from codedfl.privacy._coded import largest_signal_to_noise, most_coded_samples
from tests.reference.gaussian_release import Matrix, privacy_losses

DIRECTIONS: tuple[Adjacency, ...] = ("remove", "add", "replace")
ADJACENCIES: tuple[Adjacency, ...] = (*DIRECTIONS, "add-remove")
SETTINGS = [
    (1, 1.0, 0.1),
    (1, 0.02, 0.01),
    (2, 30.0, 0.5),
    (3, 2.0, 1.0),
    (10, 0.5, 1.0),
    (60, 0.1, 0.8),
    (8, 1e-4, 1e-4),
]


def worst_pair(r: float, adjacency: Adjacency) -> tuple[Matrix, Matrix]:
    first, second, nothing = np.diag([1 + r, 1.0]), np.diag([1.0, 1 + r]), np.eye(2)
    return {"remove": (first, nothing), "add": (nothing, first), "replace": (first, second)}[adjacency]


@pytest.mark.parametrize("adjacency", DIRECTIONS)
@pytest.mark.parametrize(("c", "r", "epsilon"), SETTINGS)
def test_delta_against_monte_carlo(adjacency: Adjacency, c: int, r: float, epsilon: float) -> None:
    """``delta = E_p[(1 - e^(epsilon - loss))_+]`` within 4.5 standard errors of 100,000 releases."""
    losses = privacy_losses(*worst_pair(r, adjacency), c, 100_000, np.random.default_rng(c))
    excess = np.maximum(-np.expm1(epsilon - losses), 0)
    standard_error = excess.std() / math.sqrt(len(excess))
    delta = math.exp(log_delta(epsilon, c, r, adjacency))
    assert abs(excess.mean() - delta) <= 4.5 * standard_error
    assert standard_error <= 0.05 * delta


@pytest.mark.parametrize(("c", "r", "epsilon"), [*SETTINGS, (500, 0.01, 2.0), (100, 0.3, 30.0)])
def test_delta_of_replacement_against_two_dimensional_quadrature(c: int, r: float, epsilon: float) -> None:
    """``E[(1 - e^(epsilon - loss))_+]`` with ``loss = s/2 (U - V)``, as an integral over both, by scipy's chi-square law."""
    s, law = r / (1 + r), stats.chi2(c)
    nodes, weights = np.polynomial.legendre.leggauss(120)

    def given_v(y: float) -> float:
        # over U = (1 + r) x^2 from where the loss exceeds epsilon, with V = y^2, in pieces of width 1 in x
        start = math.sqrt((2 * epsilon / s + y * y) / (1 + r))
        x = start + np.concatenate(
            [(nodes + 1) / 2 * width + at for at, width in ((0.0, 0.5), (0.5, 1.5), (2.0, 12.0))]
        )
        w = np.concatenate([weights / 2 * width for width in (0.5, 1.5, 12.0)])
        loss = s / 2 * ((1 + r) * x * x - y * y)
        return (
            float(np.sum(w * -np.expm1(np.minimum(epsilon - loss, 0)) * 2 * x * law.pdf(x * x)))
            * 2
            * y
            * float(law.pdf(y * y))
        )

    middle = math.sqrt(c)
    ends = [max(middle - 9, 0), max(middle - 2, 0), middle, middle + 2, middle + 9]
    pieces = [integrate.quad(given_v, a, b, epsabs=0, epsrel=1e-8)[0] for a, b in pairwise(ends) if b > a]
    assert math.exp(log_delta(epsilon, c, r, "replace")) == pytest.approx(sum(pieces), rel=1e-6)


@pytest.mark.parametrize("c", [1, 2, 30, 1000])
def test_both_ways_of_computing_delta_meet(c: int) -> None:
    """The difference of tails and the integral without cancellation join seamlessly, so that ``ln delta`` has no jumps."""
    for adjacency in DIRECTIONS:
        ratios = np.geomspace(1e-5, 1e-1, 200)
        values = np.array([log_delta(0.2 * r, c, r, adjacency) for r in ratios])
        assert np.abs(np.diff(values, n=3)).max() < 2e-3


def test_delta_at_epsilon_zero_is_the_total_variation() -> None:
    for c, r in ((1, 0.5), (5, 2.0), (50, 1e-3), (20, 1e-6)):
        mode = c * math.log1p(r) * (1 + r) / r
        total_variation = stats.chi2.cdf(mode, c) - stats.chi2.cdf(mode / (1 + r), c)
        for adjacency in ("remove", "add"):
            assert math.exp(log_delta(0.0, c, r, adjacency)) == pytest.approx(total_variation, rel=1e-8)


@pytest.mark.slow
@given(r=st.floats(1e-5, 1e4), c=st.integers(1, 20_000), place=st.floats(0, 1), bits=st.floats(0.1, 40))
def test_exact_epsilon_is_never_above_the_one_from_renyi(r: float, c: int, place: float, bits: float) -> None:
    """By the definition of Renyi divergence itself: ``delta <= e^((a-1) (D_a - epsilon))`` at every order."""
    delta = 2.0**-bits
    for adjacency in ADJACENCIES:
        epsilon = exact_epsilon(delta, c, r, adjacency)
        orders = useful_orders(r)
        bound = ((orders - 1) * (renyi_divergence(orders, c, r, adjacency) - epsilon * (1 - 1e-9))).min()
        assert epsilon == 0 or math.log(delta) <= bound + 1e-9
        assert log_delta(epsilon * (1 + place), c, r, adjacency) <= math.log(delta) + 1e-6


@pytest.mark.slow
def test_exact_epsilon_is_never_above_the_one_that_dp_accounting_converts() -> None:
    rdp = pytest.importorskip("dp_accounting").rdp
    for c in (1, 10, 1000, 10_000):
        for r in (1e-4, 1e-2, 0.3, 4.0, 50.0):
            orders = useful_orders(r)
            for adjacency in ADJACENCIES:
                divergences = renyi_divergence(orders, c, r, adjacency)
                for delta in (1e-2, 1e-5, 1e-9):
                    converted, _ = rdp.compute_epsilon(orders, divergences, delta)
                    assert exact_epsilon(delta, c, r, adjacency) <= converted * (1 + 1e-9)


@pytest.mark.slow
@given(r=st.floats(1e-4, 1e3), c=st.integers(1, 20_000), factor=st.floats(1.01, 10), more=st.integers(1, 1000))
@settings(max_examples=15)
def test_epsilon_falls_with_noise_and_grows_with_coded_samples(r: float, c: int, factor: float, more: int) -> None:
    for adjacency in ("add-remove", "replace"):
        epsilon = exact_epsilon(1e-5, c, r, adjacency)
        assert exact_epsilon(1e-5, c, r / factor, adjacency) < epsilon or epsilon == 0
        assert exact_epsilon(1e-5, c + c * more, r, adjacency) > epsilon
        assert exact_epsilon(1e-5, c + 1, r, adjacency) >= epsilon * (1 - 1e-10)
        assert exact_epsilon(1e-6, c, r, adjacency) > epsilon


@given(
    seed=st.integers(0, 2**32),
    columns=st.integers(1, 4),
    variance=st.floats(0.05, 5),
    epsilon=st.floats(0, 2),
    c=st.integers(1, 6),
)
def test_no_replacement_exceeds_the_worst_case(
    seed: int, columns: int, variance: float, epsilon: float, c: int
) -> None:
    """Random neighbours, by Monte Carlo: within 4.5 standard errors of 20,000 releases of not exceeding it."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(3, columns)) * rng.integers(0, 2)
    old, new = (v / np.linalg.norm(v) for v in rng.normal(size=(2, columns)))
    base = X.T @ X + variance * np.eye(columns)
    losses = privacy_losses(base + np.outer(old, old), base + np.outer(new, new), c, 20_000, rng)
    excess = np.maximum(-np.expm1(epsilon - losses), 0)
    bound = math.exp(log_delta(epsilon, c, 1 / variance, "replace"))
    assert excess.mean() - 4.5 * excess.std() / math.sqrt(len(excess)) <= bound + 1e-4


@pytest.mark.parametrize("adjacency", ["add-remove", "replace"])
@pytest.mark.parametrize("epsilon", [1.0, 2.0, 4.0, 8.0])
def test_noise_for_a_meaningful_epsilon_is_solved(adjacency: Adjacency, epsilon: float) -> None:
    expected = {
        "add-remove": {1.0: 267.95077, 2.0: 143.14452, 4.0: 77.515793, 8.0: 42.909758},
        "replace": {1.0: 372.68374, 2.0: 198.95578, 4.0: 107.66457, 8.0: 59.557014},
    }
    r = largest_signal_to_noise(epsilon, 1e-5, 10_000, adjacency)
    assert 1 / r == pytest.approx(expected[adjacency][epsilon], rel=1e-7)
    assert math.exp(log_delta(epsilon, 10_000, r, adjacency)) == pytest.approx(1e-5, rel=1e-9)
    assert exact_epsilon(1e-5, 10_000, r, adjacency) == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize(("epsilon", "variance"), [(1.0, 267.95077), (8.0, 42.909758), (13_181.1039, 0.25)])
def test_delta_of_ten_thousand_rows_against_quadrature_of_the_loss(epsilon: float, variance: float) -> None:
    """``E_p[(1 - e^(epsilon - loss))_+]``, ``loss = -c/2 ln(1 + r) + r/2 x`` and ``x ~ chi2_c``, by scipy's density."""
    c, r = 10_000, 1 / variance
    start = (c * math.log1p(r) + 2 * epsilon) / r

    def integrand(x: float) -> float:
        return -math.expm1(-r / 2 * (x - start)) * float(stats.chi2.pdf(x, c))

    pieces = [
        integrate.quad(integrand, start + a, start + a + 100, epsabs=0, epsrel=1e-9)[0] for a in range(0, 1000, 100)
    ]
    assert sum(pieces) == pytest.approx(1e-5, rel=2e-5)


def test_the_papers_noise_gives_no_meaningful_guarantee() -> None:
    """Its variance of 0.25 at c = 10,000: the mean loss alone is ``c/2 (r - ln(1 + r))``, some 12,000 nats."""
    epsilon = exact_epsilon(1e-5, 10_000, 4.0)
    assert epsilon == pytest.approx(13_181.1, abs=0.05)
    mean_loss = float(renyi_divergence(1.0, 10_000, 4.0, "remove"))
    deviation = 4.0 * math.sqrt(10_000 / 2)
    assert mean_loss == pytest.approx(11_952.8, abs=0.05)
    assert (epsilon - mean_loss) / deviation == pytest.approx(-stats.norm.ppf(1e-5), rel=0.05)
    assert exact_epsilon(1e-5, 10_000, 4.0, "replace") == pytest.approx(17_251.2, abs=0.05)


@pytest.mark.parametrize(
    ("c", "r", "delta"), [(1, 1e-6, 1e-10), (10**9, 1e-3, 1e-5), (10**6, 1e6, 1e-300), (3, 1e-12, 1e-13)]
)
def test_extreme_budgets_round_trip(c: int, r: float, delta: float) -> None:
    for adjacency in ("add-remove", "replace"):
        epsilon = exact_epsilon(delta, c, r, adjacency)
        assert 0 < epsilon < math.inf
        assert largest_signal_to_noise(epsilon, delta, c, adjacency) == pytest.approx(r, rel=1e-9)
        assert most_coded_samples(epsilon * (1 + 1e-9), delta, r, adjacency) in (c, c + 1)


def test_delta_that_covers_everything_leaves_no_epsilon() -> None:
    assert exact_epsilon(0.9, 10, 0.1) == 0
    assert exact_epsilon(1e-300, 10, 0.0) == 0
    assert exact_epsilon(1e-5, 1, 1e-6) == 0
    assert exact_epsilon(math.exp(log_delta(0.0, 10, 0.1)) * (1 - 1e-15), 10, 0.1) < 1e-9


def test_no_noise_is_no_privacy() -> None:
    assert exact_epsilon(0.5, 1, math.inf) == math.inf
    for adjacency in ADJACENCIES:
        assert log_delta(1e9, 1, math.inf, adjacency) == 0
        assert log_delta(1.0, 1, 1e300, adjacency) == pytest.approx(0, abs=1e-9)


def test_addition_has_a_largest_loss() -> None:
    assert log_delta(5 * math.log(3) + 1e-9, 10, 2.0, "add") == -math.inf
    assert log_delta(5 * math.log(3) * 0.99, 10, 2.0, "add") > -math.inf


@pytest.mark.parametrize(
    ("epsilon", "delta", "c", "r", "field"),
    [
        (-1.0, 0.1, 1, 1.0, "epsilon = -1.0"),
        (math.nan, 0.1, 1, 1.0, "epsilon = nan"),
        (1.0, 0.0, 1, 1.0, "delta = 0.0"),
        (1.0, 1.0, 1, 1.0, "delta = 1.0"),
        (1.0, 0.1, 0, 1.0, "coded_samples = 0"),
        (1.0, 0.1, 1, -1.0, "signal_to_noise = -1.0"),
    ],
)
def test_bad_input_is_refused(epsilon: float, delta: float, c: int, r: float, field: str) -> None:
    with pytest.raises(InputError, match=f"^{field} must"):
        largest_signal_to_noise(epsilon, delta, c) if r > 0 else log_delta(epsilon, c, r)
    with pytest.raises(InputError, match=f"^{field} must"):
        most_coded_samples(epsilon, delta, r) if c > 0 else exact_epsilon(delta, c, r)


def test_more_coded_samples_than_anyone_sends() -> None:
    with pytest.raises(InputError, match=r"^epsilon = 1.0 is kept by more than 1099511627776 coded samples"):
        most_coded_samples(1.0, 1e-5, 1e-9)
