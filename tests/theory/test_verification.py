from __future__ import annotations

from dataclasses import replace

import pytest

from codedfl.errors import InputError
from codedfl.theory import Check, verify

BROKEN = {
    "Lemma 1: E |N^T N / c - s^2 I|^2",
    "Lemma 2: E g / u, devices, tau = 2",
    "Lemma 2: E g / u, server, tau = 2",
    "Lemma 3: variance of devices, one sample, tau = 8",
    "Lemma 4: variance of server, one sample, tau = 8",
    "Lemma 4: variance of server, one sample, small server batch, tau = 1",
    "Lemma 4: variance of server, 40 noisy devices, tau = 1",
    "Lemma 3: variance of devices, rare device, batch of one, tau = 1",
    "Theorem 1: gap, equal eigenvalues, tau = 1",
}


@pytest.fixture(scope="module")
def checks() -> list[Check]:
    return verify(seed=0, draws=2000)


def test_every_corrected_formula_holds(checks: list[Check]) -> None:
    """A correct formula is off by 4 standard errors in one check of 16,000."""
    assert [check.name for check in checks if not check.corrected_holds] == []


def test_exactly_the_printed_formulas_that_are_wrong_fail(checks: list[Check]) -> None:
    assert {check.name for check in checks if not check.printed_holds} == BROKEN


def test_every_lemma_is_checked_once_under_its_name(checks: list[Check]) -> None:
    names = [check.name for check in checks]
    assert len(set(names)) == len(names)
    for claim in ("Lemma 1", "Lemma 2", "Lemma 3", "Lemma 4", "Theorem 1", "exact variance", "drift"):
        assert any(name.startswith(claim) for name in names), claim


def test_a_check_of_a_value_sees_an_error_of_half_of_it(checks: list[Check]) -> None:
    """No error bar is so wide that a wrong formula would slip through."""
    values = [check for check in checks if check.relation == "="]
    assert len(values) > 15
    for check in values:
        for factor in (0.5, 1.5):
            if check.corrected:
                assert not replace(check, corrected=factor * check.corrected).corrected_holds, check.name


def test_a_check_of_a_bound_sees_a_bound_below_the_value(checks: list[Check]) -> None:
    for check in checks:
        if check.relation == "<=":
            assert not replace(check, corrected=0.5 * check.value).corrected_holds or check.value < 1e-9, check.name


@pytest.mark.slow
def test_the_same_seed_gives_the_same_checks() -> None:
    first, again, other = verify(seed=3, draws=50), verify(seed=3, draws=50), verify(seed=4, draws=50)
    assert first == again
    assert [check.name for check in other] == [check.name for check in first]
    assert [check.value for check in other] != [check.value for check in first]


@pytest.mark.parametrize(
    ("relation", "claim", "holds"),
    [
        ("=", 1.39, True),
        ("=", 0.61, True),
        ("=", 1.41, False),
        ("=", 0.59, False),
        ("<=", 0.61, True),
        ("<=", 0.59, False),
        ("<=", 99.0, True),
    ],
)
def test_a_wrong_claim_is_caught_beyond_four_standard_errors(relation: str, claim: float, holds: bool) -> None:
    check = Check("claim", relation, 1.0, 0.1, printed=claim, corrected=claim)  # type: ignore[arg-type]
    assert check.printed_holds == check.corrected_holds == holds


def test_where_the_paper_says_nothing_nothing_of_it_fails() -> None:
    check = Check("claim", "=", 1.0, 0.1, printed=None, corrected=5.0)
    assert check.printed_holds
    assert not check.corrected_holds


def test_one_draw_has_no_error_bar_and_is_refused() -> None:
    with pytest.raises(InputError, match="draws = 1 must be 2 or more"):
        verify(draws=1)
