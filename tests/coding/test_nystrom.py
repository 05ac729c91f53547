"""Nyström against its dense formula, and on matrices of which everything is known."""

from __future__ import annotations

import numpy as np
import pytest

from codedfl.coding import nystrom, public_test_matrix
from codedfl.streams import Streams
from codedfl.typing import FloatArray
from tests.reference import curvature as reference

D, R = 12, 5


def psd(rank: int, seed: int, decay: float = 0.5) -> FloatArray:
    """Return a random matrix with eigenvalues ``10 decay^j``."""
    rng = np.random.default_rng(seed)
    vectors = np.linalg.qr(rng.standard_normal((D, D)))[0][:, :rank]
    matrix: FloatArray = (vectors * (10.0 * decay ** np.arange(rank))) @ vectors.T
    return matrix


def approximation(H: FloatArray, rank: int = R, seed: int = 0) -> tuple[FloatArray, FloatArray, FloatArray]:
    omega = public_test_matrix(D, rank, Streams(seed))
    vectors, values = nystrom(H @ omega, omega)
    assert vectors.shape == (D, rank)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(rank), atol=1e-12)
    assert np.all(np.diff(values) <= 0)
    assert values[-1] >= 0
    return vectors, values, (vectors * values) @ vectors.T


@pytest.mark.parametrize("decay", [0.3, 0.8, 1.0])
def test_it_is_the_dense_formula(decay: float) -> None:
    """Up to the relative shift of 1e-8 that keeps it stable."""
    for seed in range(5):
        H, omega = psd(D, seed, decay), public_test_matrix(D, R, Streams(seed))
        found = approximation(H, seed=seed)[2]
        np.testing.assert_allclose(found, reference.nystrom(H @ omega, omega), atol=1e-6 * float(np.linalg.norm(H, 2)))


@pytest.mark.parametrize("rank", range(1, R + 1))
def test_it_is_exact_up_to_its_rank(rank: int) -> None:
    """But for the shift ``nu = 1e-8 ||H Omega||``, at a cost of ``nu / s^2``, ``s`` the least singular value of ``U^T Omega``.

    That is the bound of Frangella et al., ``nu (1 + ||Omega_2 Omega_1^+||^2)``, with ``U`` the range of ``H``.
    """
    for seed in range(4):
        H, omega = psd(rank, seed), public_test_matrix(D, R, Streams(seed))
        _, values, found = approximation(H, seed=seed)
        least = np.linalg.svd(np.linalg.eigh(H)[1][:, -rank:].T @ omega, compute_uv=False)[-1]
        allowed = 1e-8 * np.linalg.norm(H @ omega, 2) / least**2
        assert allowed < 1e-2, "or the test would show nothing"
        assert np.linalg.norm(found - H, 2) < allowed + 1e-12
        np.testing.assert_allclose(values[:rank], 10.0 * 0.5 ** np.arange(rank), atol=allowed)
        assert np.all(values[rank:] < allowed)


def test_it_lies_below_the_matrix_and_underestimates_eigenvalues() -> None:
    """In the order of positive semidefinite matrices, so eigenvalue by eigenvalue, the last ones most of all."""
    ratios = np.zeros(R)
    for seed in range(20):
        H = psd(D, seed, decay=0.7)
        _, values, found = approximation(H, seed=seed)
        assert np.linalg.eigvalsh(H - found)[0] > -1e-6
        true = np.linalg.eigvalsh(H)[::-1][:R]
        assert np.all(values <= true + 1e-6)
        ratios += values / true / 20
    assert np.all(np.diff(ratios) < 0)
    assert ratios[0] > 0.8
    assert ratios[-1] < 0.5


def test_the_whole_space_gives_the_matrix_itself() -> None:
    H = psd(D, seed=3, decay=0.8)
    np.testing.assert_allclose(approximation(H, rank=D)[2], H, atol=1e-6)


def test_a_matrix_of_zeros() -> None:
    _, values, found = approximation(np.zeros((D, D)))
    assert not values.any()
    assert not found.any()


def test_a_given_shift_is_taken_back() -> None:
    """The result is that of ``H + s I``, less ``s``, and still not above ``H``."""
    H, omega = psd(D, seed=4, decay=0.7), public_test_matrix(D, R, Streams(4))
    for shift in (1e-3, 0.1, 5.0):
        vectors, values = nystrom(H @ omega, omega, shift)
        found = (vectors * values) @ vectors.T
        np.testing.assert_allclose(found, reference.nystrom(H @ omega, omega, shift), atol=1e-5)
        assert np.all(values <= np.linalg.eigvalsh(H)[::-1][:R] + 1e-6)


@pytest.mark.parametrize("scale", [1e-6, 0.1, 1.0, 100.0])
def test_noise_leaves_everything_finite(scale: float) -> None:
    for seed in range(10):
        H, omega = psd(D, seed), public_test_matrix(D, R, Streams(seed))
        noise = scale * np.random.default_rng(seed).standard_normal((D, R))
        shift = float(np.linalg.norm(omega.T @ noise, 2))
        for given in (0.0, shift):
            vectors, values = nystrom(H @ omega + noise, omega, given)
            assert np.isfinite(vectors).all()
            assert np.isfinite(values).all()
            assert values[-1] >= 0
        # With the shift, the matrix to invert is positive and no eigenvalue explodes.
        assert values[0] < 10 * (np.linalg.norm(H, 2) + np.linalg.norm(noise, 2) ** 2 / max(shift, 1e-12) + shift)


def test_sizes_hardly_matter() -> None:
    H, omega = psd(D, seed=5), public_test_matrix(D, R, Streams(5))
    vectors, values = nystrom(H @ omega, omega)
    for factor in (1e-150, 1e-12, 1e12, 1e150):
        scaled_vectors, scaled = nystrom(factor * H @ omega, omega)
        np.testing.assert_allclose(scaled, factor * values, rtol=1e-5, atol=1e-6 * factor)
        np.testing.assert_allclose(np.abs(np.sum(scaled_vectors * vectors, axis=0)), 1.0, atol=1e-6)
