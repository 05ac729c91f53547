from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.errors import InputError
from codedfl.privacy import Adjacency, epsilon_from_renyi, renyi_divergence, useful_orders
from tests.reference.gaussian_release import Matrix, privacy_losses, renyi_of_zero_mean_gaussians

RATIOS = st.floats(1e-3, 1e3)
DIRECTIONS: tuple[Adjacency, ...] = ("remove", "add", "replace")


def worst_pair(r: float, adjacency: Adjacency) -> tuple[Matrix, Matrix]:
    """Covariances of a coded row for the worst neighbours: unit noise, samples of squared norm ``r`` along the axes."""
    first, second, nothing = np.diag([1 + r, 1.0]), np.diag([1.0, 1 + r]), np.eye(2)
    return {"remove": (first, nothing), "add": (nothing, first), "replace": (first, second)}[adjacency]


@given(r=RATIOS, place=st.floats(0.01, 0.99), c=st.integers(1, 10**6), adjacency=st.sampled_from(DIRECTIONS))
def test_closed_form_is_the_formula_with_determinants(r: float, place: float, c: int, adjacency: Adjacency) -> None:
    order = 1 + place / r
    expected = c * renyi_of_zero_mean_gaussians(*worst_pair(r, adjacency), order)
    assert float(renyi_divergence(order, c, r, adjacency)) == pytest.approx(expected, rel=1e-6)


@given(r=RATIOS, place=st.floats(0.01, 0.99), c=st.integers(1, 10**6))
def test_closed_form_is_the_one_in_terms_of_leverage(r: float, place: float, c: int) -> None:
    a, s = 1 + place / r, r / (1 + r)
    remove = c / (2 * (a - 1)) * (a * math.log(1 - s) - math.log(1 - a * s))
    add = c / (2 * (a - 1)) * (a * math.log(1 + r) - math.log(1 + a * r))
    assert float(renyi_divergence(a, c, r, "remove")) == pytest.approx(remove, rel=1e-6)
    assert float(renyi_divergence(a, c, r, "add")) == pytest.approx(add, rel=1e-6)
    assert float(renyi_divergence(a, c, r, "replace")) == pytest.approx(remove + add, rel=1e-6)
    assert float(renyi_divergence(a, c, r)) == pytest.approx(max(remove, add), rel=1e-6)
    assert remove >= add


@pytest.mark.parametrize("adjacency", DIRECTIONS)
@pytest.mark.parametrize(("c", "r", "order"), [(1, 0.5, 1.5), (4, 0.2, 2.0), (20, 0.1, 1.8), (3, 1.0, 1.3)])
def test_divergence_against_monte_carlo(adjacency: Adjacency, c: int, r: float, order: float) -> None:
    """``e^((a-1) D_a) = E_p[(p/q)^(a-1)]``, within 4.5 standard errors of 200,000 releases.

    The orders keep ``E_p[(p/q)^(2 (a-1))]`` finite, so that the standard errors mean something.
    """
    assert 1 + 2 * (order - 1) < 1 + 1 / r
    A, B = worst_pair(r, adjacency)
    ratios = np.exp((order - 1) * privacy_losses(A, B, c, 200_000, np.random.default_rng(c)))
    standard_error = ratios.std() / math.sqrt(len(ratios))
    moment = math.exp((order - 1) * float(renyi_divergence(order, c, r, adjacency)))
    assert abs(ratios.mean() - moment) < 4.5 * standard_error
    assert standard_error < 0.02 * moment


@pytest.mark.parametrize("adjacency", DIRECTIONS)
def test_order_one_is_the_mean_loss(adjacency: Adjacency) -> None:
    losses = privacy_losses(*worst_pair(0.7, adjacency), 5, 100_000, np.random.default_rng(1))
    divergence = float(renyi_divergence(1.0, 5, 0.7, adjacency))
    assert abs(losses.mean() - divergence) < 4.5 * losses.std() / math.sqrt(len(losses))
    assert float(renyi_divergence(1 + 1e-9, 5, 0.7, adjacency)) == pytest.approx(divergence, rel=1e-8)


@given(r=st.floats(1e-6, 1e6), place=st.floats(0, 0.99), c=st.integers(1, 10**6))
def test_c_rows_diverge_c_times_as_much_as_one(r: float, place: float, c: int) -> None:
    for adjacency in (*DIRECTIONS, "add-remove"):
        one, many = (float(renyi_divergence(1 + place / r, rows, r, adjacency)) for rows in (1, c))
        assert many == pytest.approx(c * one, rel=1e-12)


@given(r=st.floats(1e-6, 1e6), factor=st.floats(1.01, 10), place=st.floats(0.01, 0.95))
def test_divergence_grows_with_order_and_ratio(r: float, factor: float, place: float) -> None:
    for adjacency in DIRECTIONS:
        low, high = renyi_divergence([1 + place / r / factor, 1 + place / r], 10, r, adjacency)
        assert 0 < low < high
        assert float(renyi_divergence(1 + place / r / factor, 10, r / factor, adjacency)) < low


def test_divergence_of_little_signal_is_that_of_nearby_gaussians() -> None:
    # c a r^2 / 4 to first order: the Fisher information of a variance is 1/2
    for adjacency, sides in (("remove", 1), ("add", 1), ("replace", 2)):
        value = float(renyi_divergence(3.0, 100, 1e-9, adjacency))  # type: ignore[arg-type]
        assert value == pytest.approx(sides * 100 * 3 * 1e-18 / 4, rel=1e-7)


def test_divergence_is_infinite_from_the_last_order_on() -> None:
    orders = np.array([1.2499, 1.25, 1.3, 50.0])
    for adjacency in ("remove", "replace", "add-remove"):
        assert np.isinf(renyi_divergence(orders, 7, 4.0, adjacency)).tolist() == [False, True, True, True]
    assert np.isfinite(renyi_divergence(orders, 7, 4.0, "add")).all()
    assert np.isinf(renyi_divergence(orders, 7, math.inf)).all()


@given(
    seed=st.integers(0, 2**32),
    columns=st.integers(1, 5),
    others=st.integers(0, 6),
    variance=st.floats(0.05, 20),
    place=st.floats(0.02, 0.98),
)
def test_no_data_exceed_the_worst_case(seed: int, columns: int, others: int, variance: float, place: float) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(others, columns))
    old, new = (v / max(np.linalg.norm(v), 1.0) for v in rng.normal(size=(2, columns)))
    base = X.T @ X + variance * np.eye(columns)
    with_old, with_new = base + np.outer(old, old), base + np.outer(new, new)
    order, r = 1 + place * variance, 1 / variance
    slack = 1 + 1e-9
    pairs: list[tuple[Adjacency, Matrix, Matrix]] = [
        ("remove", with_old, base),
        ("add", base, with_old),
        ("replace", with_old, with_new),
    ]
    for adjacency, A, B in pairs:
        assert (
            renyi_of_zero_mean_gaussians(A, B, order) <= float(renyi_divergence(order, 1, r, adjacency)) * slack + 1e-12
        )


def test_conversion_is_that_of_dp_accounting() -> None:
    rdp = pytest.importorskip("dp_accounting").rdp
    for r, c, delta in ((4.0, 10, 1e-5), (0.1, 100, 1e-9), (1e-3, 10_000, 1e-3), (1e-2, 100_000, 1e-6)):
        orders = useful_orders(r)
        orders = orders[orders > 1.01]  # below, dp-accounting only uses the divergence of order 1
        divergences = renyi_divergence(orders, c, r)
        library, _ = rdp.compute_epsilon(orders, divergences, delta)
        assert epsilon_from_renyi(orders, divergences, delta) == pytest.approx(library, rel=1e-12)


def test_conversion_without_a_usable_order() -> None:
    assert epsilon_from_renyi(np.array([1.0, 2.0]), np.array([1.0, np.inf]), 1e-5) == math.inf
    assert epsilon_from_renyi(np.array([2.0]), np.array([0.0]), 0.5) == 0


def test_bad_input_is_refused() -> None:
    with pytest.raises(InputError, match=r"^orders = 0.5 must all be 1 or more"):
        renyi_divergence(0.5, 10, 1.0)
    with pytest.raises(InputError, match=r"^coded_samples = 0"):
        renyi_divergence(2.0, 0, 1.0)
    with pytest.raises(InputError, match=r"^adjacency = 'swap' must be one of remove, add, add-remove, replace"):
        renyi_divergence(2.0, 1, 1.0, "swap")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"^delta = 0 "):
        epsilon_from_renyi(np.array([2.0]), np.array([1.0]), 0)
    with pytest.raises(InputError, match=r"^signal_to_noise = inf must be a positive finite"):
        useful_orders(math.inf)
    with pytest.raises(InputError, match=r"^signal_to_noise = nan must be zero or more"):
        renyi_divergence(2.0, 1, math.nan)
