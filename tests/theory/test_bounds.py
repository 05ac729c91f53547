"""The constants, Lemmas 3 and 4 and Theorem 1: what the formulas say, and that the corrected ones hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from codedfl.coding import Rows, compute_gram
from codedfl.errors import InputError
from codedfl.theory import (
    Constants,
    RoundLaw,
    device_bound,
    gap_bound,
    largest_residual,
    measure_constants,
    round_variance,
    server_bound,
    simulate_runs,
)
from codedfl.typing import FloatArray
from tests.reference.theorem1 import corrected_gap, drift_of_local_steps, printed_gap, printed_rho_1, printed_rho_2
from tests.theory.rounds import lonely_round, model_within, random_round


def squared_residual(rows: Rows, W: FloatArray) -> float:
    return float(np.sum((rows.features @ W - rows.labels) ** 2))


def climb(rows: Rows, radius: float, rng: np.random.Generator, starts: int = 6) -> float:
    """The largest residual found by projected ascent from random points of the sphere.

    A convex function is largest on the sphere, and moving to the point where its tangent plane is largest never lowers it.
    """
    best = 0.0
    for _ in range(starts):
        W = rng.standard_normal((rows.features.shape[1], rows.labels.shape[1]))
        W *= radius / np.linalg.norm(W)
        for _ in range(4000):
            slope = rows.features.T @ (rows.features @ W - rows.labels)
            before, W = W, slope * radius / np.linalg.norm(slope)
            if np.linalg.norm(W - before) < 1e-9 * radius:
                break
        best = max(best, squared_residual(rows, W))
    return best


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("radius", [0.1, 1.0, 30.0])
def test_the_largest_residual_is_attained_and_never_exceeded(seed: int, radius: float) -> None:
    rng = np.random.default_rng(seed)
    rows = Rows(rng.standard_normal((2 + seed, 3)), rng.standard_normal((2 + seed, 2)))
    found = largest_residual(compute_gram([rows]), radius)
    for _ in range(300):
        W = rng.standard_normal((3, 2))
        assert squared_residual(rows, W * radius * rng.uniform() ** 0.1 / np.linalg.norm(W)) <= found
    reached = climb(rows, radius, rng)
    assert reached <= found * (1 + 1e-12)
    assert reached == pytest.approx(found, rel=1e-6)


def test_a_general_optimiser_finds_the_same_largest_residual() -> None:
    rng = np.random.default_rng(9)
    rows = Rows(rng.standard_normal((5, 3)), rng.standard_normal((5, 2)))
    found = largest_residual(compute_gram([rows]), 2.0)

    def loss(flat: FloatArray) -> float:
        W = flat.reshape(3, 2)
        return -squared_residual(rows, W * 2.0 / np.linalg.norm(W))

    best = max(-float(minimize(loss, rng.standard_normal(6)).fun) for _ in range(10))
    assert best <= found * (1 + 1e-12)
    assert best == pytest.approx(found, rel=1e-6)


@pytest.mark.parametrize("radius", [0.5, 10.0])
def test_labels_orthogonal_to_the_top_eigenvector(radius: float) -> None:
    """Then the dual has no pole there, and for a large radius its minimum is at the very edge."""
    rows = Rows(np.diag([3.0, 1.0, 0.5]), np.array([[0.0], [1.0], [-2.0]]))
    found = largest_residual(compute_gram([rows]), radius)
    # On the sphere, w_1^2 = phi^2 - w_2^2 - w_3^2: a concave quadratic is left, largest at an interior point if it fits.
    free = np.array([1.0, -1.0]) / (np.array([1.0, 0.25]) - 9.0)
    if np.sum(free**2) <= radius**2:
        W = np.array([[np.sqrt(radius**2 - np.sum(free**2))], [free[0]], [free[1]]])
        expected = squared_residual(rows, W)
    else:
        expected = climb(rows, radius, np.random.default_rng(0))
    assert found == pytest.approx(expected, rel=1e-9)
    assert climb(rows, radius, np.random.default_rng(1)) <= found * (1 + 1e-12)


def test_without_labels_the_top_eigenvalue_decides() -> None:
    X = np.random.default_rng(0).standard_normal((6, 3))
    top = np.linalg.svd(X, compute_uv=False)[0] ** 2
    assert largest_residual(compute_gram([Rows(X, np.zeros((6, 2)))]), 1.5) == pytest.approx(1.5**2 * top, rel=1e-12)


def test_without_features_the_labels_are_left() -> None:
    assert largest_residual(compute_gram([Rows(np.zeros((4, 3)), np.full((4, 2), 0.5))]), 7.0) == 2.0


@pytest.mark.parametrize("seed", range(6))
def test_cheap_constants_are_on_the_safe_side(seed: int) -> None:
    parts = random_round(np.random.default_rng(seed)).parts
    exact, cheap = measure_constants(parts, 1.7), measure_constants(parts, 1.7, method="cheap")
    assert (cheap.residual >= exact.residual).all()
    assert (cheap.residual > 1.01 * exact.residual).any(), "else the two methods are one"
    assert cheap.strong_convexity <= exact.strong_convexity
    assert cheap.smoothness == pytest.approx(exact.smoothness, rel=1e-6)
    assert cheap.feature_norm.tolist() == exact.feature_norm.tolist()


def test_eigenvalues_norms_and_optimum_agree_with_the_data() -> None:
    parts = random_round(np.random.default_rng(0)).parts
    constants = measure_constants(parts, 2.0)
    X, Y = np.vstack([part.features for part in parts]), np.vstack([part.labels for part in parts])
    singular = np.linalg.svd(X, compute_uv=False)
    assert constants.smoothness == pytest.approx(singular[0] ** 2, rel=1e-10)
    assert constants.strong_convexity == pytest.approx(singular[-1] ** 2, rel=1e-9)
    assert constants.printed_strong_convexity == pytest.approx(np.sum(singular**2), rel=1e-12)
    assert constants.feature_norm == pytest.approx([np.linalg.norm(part.features) ** 2 for part in parts], rel=1e-12)
    assert constants.optimum_norm == pytest.approx(np.linalg.norm(np.linalg.lstsq(X, Y)[0]), rel=1e-9)
    given = measure_constants(parts, 2.0, gram=compute_gram(parts))
    assert given.residual.tolist() == constants.residual.tolist()
    assert constants.radius == 2.0


def test_data_without_full_rank_is_not_strongly_convex() -> None:
    X = np.random.default_rng(0).standard_normal((2, 4))
    constants = measure_constants((Rows(X, np.ones((2, 1))),), 1.0)
    assert 0 <= constants.strong_convexity < 1e-12


@pytest.mark.parametrize("radius", [0.0, -1.0, np.nan, np.inf])
def test_a_radius_that_is_no_radius_is_refused(radius: float) -> None:
    with pytest.raises(InputError, match=f"radius = {radius} must be a positive finite number"):
        measure_constants(random_round(np.random.default_rng(0)).parts, radius)


ETA = np.array([0.01, 0.004, 0.002, 0.002])
SOME = np.array([True, False, True])


def lemma_3(round: RoundLaw, constants: Constants) -> float:
    return printed_rho_1(
        round.local_steps,
        list(round.arrival_probability),
        list(round.samples),
        list(1 / round.inverse_batch),
        list(constants.feature_norm),
        list(constants.residual),
    )


def lemma_4(round: RoundLaw, constants: Constants) -> float:
    c, m = round.coded_samples, int(round.samples.sum())
    zeta, kappa = float(constants.feature_norm.sum()), float(constants.residual.sum())
    noise = list(round.noise_variance)
    return printed_rho_2(round.local_steps, c, m, round.dimension, c, zeta, kappa, constants.radius, noise)


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_the_printed_bounds_are_the_papers(seed: int, steps: int) -> None:
    round = random_round(np.random.default_rng(seed), local_steps=steps)
    constants = measure_constants(round.parts, 1.3)
    rho_1, rho_2 = lemma_3(round, constants), lemma_4(round, constants)
    assert sum(device_bound(round, constants, "printed").values()) == pytest.approx(rho_1, rel=1e-12)
    assert sum(server_bound(round, constants, "printed").values()) == pytest.approx(rho_2, rel=1e-12)
    alpha = float(sum(np.sum(part.features**2) for part in round.parts))
    found = gap_bound(round, constants, ETA, 2.0, "printed").total
    for rounds in range(1, len(ETA) + 1):
        expected = printed_gap(alpha, list(ETA[:rounds]), 2.0, rho_1, rho_2)
        assert found[rounds - 1] == pytest.approx(expected, rel=1e-12)


CORRECTED: dict[str, dict[str, Any]] = {
    "plain": {},
    "three steps": {"local_steps": 3},
    "some upload": {"local_steps": 2, "uploading": SOME, "device_weight": 0.3},
    "label noise": {"local_steps": 4, "label_noise_variance": np.array([0.2, 0.0, 0.5])},
}


@pytest.mark.parametrize("name", CORRECTED)
def test_the_corrected_theorem_is_a_sum_over_rounds(name: str) -> None:
    round = random_round(np.random.default_rng(1), **CORRECTED[name])
    constants = measure_constants(round.parts, 1.3)
    w, tau, c, b = round.device_weight, round.local_steps, round.coded_samples, round.server_batch
    p, ratio = round.arrival_probability, round.samples * round.inverse_batch
    zeta_kappa = constants.feature_norm * constants.residual
    rho_1 = 2 * tau**2 * ((1 - p) / p * ratio + round.samples * (ratio - 1)) * zeta_kappa

    on = round.covered
    noise, label_noise = float(round.noise_variance[on].sum()), float(round.label_noise[on].sum())
    zeta, kappa = float(constants.feature_norm[on].sum()), float(constants.residual[on].sum())
    m, d, o, phi2 = int(round.samples[on].sum()), 3, 2, 1.3**2
    # Four errors of the coded gradient, five with label noise, and the square of their sum.
    errors = (
        (m + m**2) / c * zeta * kappa + (d + d**2) / c * noise**2 * phi2 + d * m / c * noise * (zeta * phi2 + kappa)
    )
    errors = 5 * (errors + o * label_noise * (zeta + d * noise) / c) if label_noise else 4 * errors
    Z = np.vstack([np.hstack([part.features, part.labels]) for part, one in zip(round.parts, on, strict=True) if one])
    S = Z.T @ Z + np.diag([noise] * 3 + [label_noise] * 2)
    sampling = (1 / b - 1 / c) * (phi2 + 1) * (np.trace(S[:3, :3]) * np.trace(S) + 2 * np.sum(S[:3] ** 2))

    corrected = server_bound(round, constants)
    assert sum(corrected.values()) == pytest.approx(tau**2 * errors + tau * sampling, rel=1e-12)
    assert sum(device_bound(round, constants).values()) == pytest.approx(rho_1.sum(), rel=1e-12)
    weights = np.where(on, w, 1.0)
    drift = drift_of_local_steps(
        tau, list(weights), list(constants.feature_norm), list(constants.residual), list(on), w
    )
    bias = (1 - w) * tau * np.sqrt(errors) + ETA * drift
    variance = float(np.sum(weights**2 * rho_1)) + (1 - w) ** 2 * tau * sampling
    eigenvalues = np.linalg.eigvalsh(round.gram.features)
    psi = 1.3 + float(np.linalg.norm(round.gram.optimum))
    found = gap_bound(round, constants, ETA, 2.0).total
    for rounds in range(1, len(ETA) + 1):
        part = slice(rounds)
        expected = corrected_gap(eigenvalues[0], eigenvalues[-1], list(ETA[part]), 2.0, psi, list(bias[part]), variance)
        assert found[rounds - 1] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("seed", range(40))
def test_the_corrected_bounds_hold_for_the_exact_variance(seed: int) -> None:
    rng = np.random.default_rng(seed)
    c = int(rng.integers(1, 30))
    round = random_round(
        rng,
        tuple(int(rows) for rows in rng.integers(1, 8, size=3)),
        arrival_probability=rng.uniform(0.01, 1.0, 3) ** 2,
        coded_samples=c,
        server_batch=int(rng.integers(1, c + 1)),
        noise_variance=rng.exponential(3.0, 3) * rng.integers(0, 2, 3),
        label_noise_variance=rng.exponential(3.0, 3) if seed % 2 else None,
        uploading=np.array([True, seed % 3 > 0, seed % 5 > 0]),
    )
    radius = float(rng.exponential(2.0))
    for method in ("exact", "cheap"):
        constants = measure_constants(round.parts, radius, method=method)
        of_devices = sum(device_bound(round, constants).values())
        of_server = sum(server_bound(round, constants).values())
        for _ in range(10):
            exact = round_variance(round, model_within(rng, radius))
            assert exact.device + exact.uncovered <= of_devices
            assert exact.server <= of_server


def test_the_bounds_of_both_variances_are_tight_within_a_small_factor_somewhere() -> None:
    """Else a bound could hold by being infinite: one sample of one feature makes every inequality but the splits tight."""
    one = lonely_round(arrival_probability=np.array([0.1]))
    constants = measure_constants(one.parts, 1.0)
    exact = round_variance(one, np.ones((1, 1)))
    assert sum(device_bound(one, constants).values()) <= 2.001 * exact.device
    assert sum(server_bound(one, constants).values()) <= 4.001 * exact.server
    sampled = replace(one, coded_samples=10**9, server_batch=3)
    # With W = 1 the residual is x W, as large as ||x|| ||W||; the bound has ||W||^2 + 1 in place of ||W||^2.
    ratio = sum(server_bound(sampled, constants).values()) / round_variance(sampled, np.ones((1, 1))).server
    assert 1.0 <= ratio <= 2.001


def test_the_terms_add_up() -> None:
    for reading in ("printed", "corrected"):
        round = random_round(np.random.default_rng(0), local_steps=2, label_noise_variance=np.ones(3))
        constants = measure_constants(round.parts, 1.0)
        bound = gap_bound(round, constants, ETA, 2.0, reading)
        assert all(len(values) == len(ETA) for values in bound.terms.values())
        for rounds in range(1, len(ETA) + 1):
            assert sum(bound.after(rounds).values()) == pytest.approx(bound.total[rounds - 1], rel=1e-12)


def test_there_is_no_bound_after_no_rounds() -> None:
    round = random_round(np.random.default_rng(0))
    bound = gap_bound(round, measure_constants(round.parts, 1.0), ETA, 2.0)
    with pytest.raises((InputError, IndexError)):
        bound.after(0)


def test_steps_beyond_the_theorem_are_refused() -> None:
    round = random_round(np.random.default_rng(0))
    constants = measure_constants(round.parts, 1.0)
    largest = 1 / constants.smoothness
    gap_bound(round, constants, np.array([0.999 * largest]), 1.0)
    with pytest.raises(
        InputError, match=r"step_sizes has .* needs every step below 1 / L = .*: lower the learning rate"
    ):
        gap_bound(round, constants, np.array([0.1 * largest, 1.001 * largest]), 1.0)
    for bad in ([], [0.0], [-0.1], [np.nan], [[0.001]]):
        with pytest.raises(InputError, match="step_sizes must be positive finite numbers"):
            gap_bound(round, constants, np.array(bad), 1.0)
    with pytest.raises(InputError, match="initial_distance = -1"):
        gap_bound(round, constants, ETA, -1.0)


def test_decreasing_steps_leave_the_bias_of_the_code() -> None:
    """Remark 1 says that the bound vanishes; it does so as printed, but the code is drawn once."""
    round = random_round(np.random.default_rng(0))
    constants = measure_constants(round.parts, 1.0)
    eta = 0.5 / constants.smoothness / np.arange(1, 3 * 10**5 + 1) ** 0.6
    printed, corrected = (gap_bound(round, constants, eta, 1.0, reading) for reading in ("printed", "corrected"))
    assert printed.total[-1] < 0.1 * printed.total[100]
    bias = corrected.terms["bias_of_code"]
    assert bias[-1] == bias[0] > 0
    assert corrected.total[-1] > bias[0]
    assert corrected.total[-1] - bias[-1] < 0.1 * (corrected.total[100] - bias[100])
    longer = gap_bound(replace(round, coded_samples=1200), constants, eta[:1], 1.0).terms["bias_of_code"]
    assert longer[0] == pytest.approx(bias[0] / 10), "the bias falls with the root of the length of the code"


def test_the_corrected_theorem_is_tight_for_one_large_step_of_plain_descent() -> None:
    """Equal eigenvalues, nothing random: after one round it is within 2% of the gap, so it could not be lowered by more."""
    rows = Rows(np.eye(4), np.ones((4, 1)))
    certain = RoundLaw((rows,), np.ones(1), np.full(1, 0.25), 10, 10, np.zeros(1), device_weight=1.0)
    constants = measure_constants(certain.parts, 2.0)
    bound = gap_bound(certain, constants, np.array([0.9]), 2.0).total[0]
    gap = certain.gram.gap(np.zeros((4, 1)))
    assert gap <= bound <= 1.02 * gap
    assert gap_bound(certain, constants, np.array([0.9]), 2.0, "printed").total[0] < 0 < gap


RUNS: dict[str, tuple[dict[str, Any], float, bool]] = {
    "one step": ({}, 0.3, False),
    "two steps": ({"local_steps": 2}, 0.15, False),
    "four steps": ({"local_steps": 4}, 0.1, False),
    "unequal noise": ({"noise_variance": np.array([0.0, 2.0, 0.2])}, 0.2, False),
    "some upload, two steps": ({"uploading": SOME, "local_steps": 2, "device_weight": 0.7}, 0.15, False),
    "label noise": ({"label_noise_variance": np.array([1.0, 0.0, 3.0])}, 0.3, False),
    "decreasing steps": ({"local_steps": 2}, 0.4, True),
    "devices alone": ({"device_weight": 1.0, "local_steps": 3}, 0.2, False),
    "the server alone": ({"device_weight": 0.0, "server_batch": 2}, 0.1, False),
}


@pytest.mark.parametrize("name", RUNS)
def test_runs_stay_below_the_corrected_bound(name: str) -> None:
    """The mean gap plus 3 standard errors is below the bound in every round, for models that stay within the radius."""
    changes, scale, decreasing = RUNS[name]
    round = random_round(np.random.default_rng(8), **({"coded_samples": 60, "server_batch": 20} | changes))
    steps = scale / round.gram.smoothness / (1 + np.arange(25) if decreasing else np.ones(25))
    runs = simulate_runs(round, steps, 300, np.random.default_rng(9))
    constants = measure_constants(round.parts, runs.largest_norm)
    bound = gap_bound(round, constants, steps, float(np.linalg.norm(round.gram.optimum))).total
    error = runs.gaps.std(axis=0, ddof=1) / np.sqrt(len(runs.gaps))
    assert np.isfinite(runs.gaps).all()
    assert (runs.gaps.mean(axis=0) + 3 * error <= bound).all()
