"""The problem as a scheme sees it, against closed-form limit points and the law of coded data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from codedfl.coding import Gram
from codedfl.planning._folds import CodedMoments, Fold, coded_view, plain_view
from codedfl.setting import Setting
from codedfl.theory import coded_limit_point, limit_point
from tests.problems import make_federation, make_setting


def fold_of(setting: Setting) -> Fold:
    return Fold(setting.federation, setting.gram, 0)


def setting_of(**changes: object) -> Setting:
    return make_setting(make_federation((60, 80, 40), 4), coded_samples=200, **changes)  # type: ignore[arg-type]


def in_basis(fold: Fold) -> Gram:
    """The Gram matrix in the fold's basis."""
    turn = np.eye(len(fold.gram.matrix))
    turn[: fold.gram.dimension, : fold.gram.dimension] = fold.basis
    return Gram(turn.T @ fold.gram.matrix @ turn, fold.gram.dimension, fold.gram.samples)


def test_the_plain_view_leads_to_the_optimum() -> None:
    fold = fold_of(setting_of())
    view = plain_view(fold)
    assert fold.basis @ (view.target / view.values[:, None]) == pytest.approx(fold.gram.optimum)
    assert fold.residual == pytest.approx(2 * fold.gram.loss(fold.gram.optimum))


def test_the_limit_of_scfl_is_that_of_the_theory() -> None:
    setting = setting_of()
    fold = fold_of(setting)
    coded = CodedMoments.drawn(fold, setting, 200, noise=True)
    view = coded_view(fold, coded, 0.5, 0.5, total=1.0, make_up=True)
    assert view.basis is not None
    expected = limit_point(in_basis(fold), coded.data, 0.5)
    assert view.basis @ (view.target / view.values[:, None]) == pytest.approx(expected.model)
    assert view.values[0] == pytest.approx(expected.least_eigenvalue)


def test_the_limit_of_dp_cfl_is_that_of_the_theory() -> None:
    setting = setting_of()
    fold = fold_of(setting)
    coded = CodedMoments.drawn(fold, setting, 200, noise=True)
    view = coded_view(fold, coded, 0.0, 1.0, total=1.0, make_up=False)
    assert view.basis is not None
    model = view.basis @ (view.target / view.values[:, None])
    assert model == pytest.approx(coded_limit_point(in_basis(fold), coded.data).model)


@pytest.mark.parametrize("rows", [3, 200], ids=["rows", "factor"])
def test_coded_moments_have_the_mean_and_variance_of_a_wishart(rows: int) -> None:
    """Over 600 draws, four standard errors."""
    setting = setting_of()
    draws = []
    for seed in range(600):
        fold = Fold(setting.federation, setting.gram, seed)
        draws.append(CodedMoments.drawn(fold, setting, rows, noise=True).features)
    fold = fold_of(setting)
    variance = float(setting.code.noise_variance.sum())
    S = np.diag(fold.values + variance)
    spread = (np.outer(np.diag(S), np.diag(S)) + S**2) / rows
    error = np.abs(np.mean(draws, axis=0) - np.diag(fold.values))
    assert (error < 4.5 * np.sqrt(spread / 600)).all()
    assert np.var(draws, axis=0) == pytest.approx(spread, rel=0.5)


def test_keeping_devices_apart_makes_the_moments_more_exact() -> None:
    setting = setting_of()
    fold = fold_of(setting)
    errors = []
    for apart in (False, True):
        folds = [Fold(setting.federation, setting.gram, i) for i in range(40)]
        drawn = [CodedMoments.drawn(each, setting, 200, noise=True, apart=apart).features for each in folds]
        errors.append(np.mean([(each - np.diag(fold.values)) ** 2 for each in drawn]))
    assert errors[1] < 0.6 * errors[0], "three devices, so about a third"


def test_only_what_is_encoded_counts() -> None:
    setting = setting_of()
    code = replace(setting.code, noise_variance=np.zeros(3), participants=np.array([True, False, False]))
    some = replace(setting, code=code)
    fold = fold_of(some)
    drawn = np.mean(
        [CodedMoments.drawn(Fold(some.federation, some.gram, i), some, 200, noise=True).features for i in range(200)],
        axis=0,
    )
    X, _ = some.federation.device(0)
    expected = fold.basis.T @ X.T @ X @ fold.basis
    assert np.abs(drawn - expected).max() < 0.1 * np.abs(expected).max()
