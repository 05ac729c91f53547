"""Lower bounds on epsilon: printed values, exact arithmetic, and how often they are above the truth."""

from __future__ import annotations

import math
import time
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from codedfl.errors import InputError
from codedfl.privacy import _one_run, audit_scores, epsilon_lower_bound, gaussian_epsilon, gaussian_mu_lower_bound
from codedfl.typing import BoolArray, FloatArray
from tests.reference import one_run as reference

DELTA = 1e-5


def one_run_p_value(guesses: int, correct: int, canaries: int, epsilon: float, delta: float) -> float:
    """The p-value that a lower bound inverts."""
    return math.exp(min(_one_run._log_p_value(guesses, correct, canaries, delta)(epsilon), 0.0))


def coins(count: int, rng: np.random.Generator) -> BoolArray:
    return rng.random(count) < 0.5


def gaussian_scores(included: BoolArray, mu: float, rng: np.random.Generator) -> FloatArray:
    """What a Gaussian mechanism of sensitivity ``mu`` and noise 1 releases about orthogonal canaries."""
    return mu * included + rng.standard_normal(len(included))


def randomised_response(included: BoolArray, epsilon: float, rng: np.random.Generator) -> FloatArray:
    truthful = rng.random(len(included)) < 1 / (1 + math.exp(-epsilon))
    return np.where(truthful, included, ~included).astype(np.float64)


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Solve each pair of counts once: many runs share them."""
    monkeypatch.setattr(_one_run, "epsilon_lower_bound", cache(epsilon_lower_bound))
    monkeypatch.setattr(_one_run, "gaussian_mu_lower_bound", cache(gaussian_mu_lower_bound))


def most_allowed(runs: int, probability: float) -> float:
    """Three standard errors above what is expected."""
    return runs * probability + 3 * math.sqrt(runs * probability * (1 - probability))


@pytest.mark.parametrize(
    ("canaries", "guesses", "correct", "delta", "printed"),
    [(1000, 100, 75, 1e-4, 0.673), (100_000, 1510, 1439, 1e-5, 2.675)],
)
def test_printed_values(canaries: int, guesses: int, correct: int, delta: float, printed: float) -> None:
    """Steinke, Nasr and Jagielski, Appendix D and Section 7; the second is cut off and not rounded."""
    assert one_run_p_value(guesses, correct, canaries, printed - 5e-4, delta) < 0.05
    assert one_run_p_value(guesses, correct, canaries, printed + 1e-3, delta) > 0.05
    assert epsilon_lower_bound(guesses, correct, canaries, delta) > printed - 5e-4


@given(
    counts=st.tuples(*3 * [st.integers(0, 30)]).map(sorted),
    odds=st.integers(0, 40),
    delta=st.sampled_from([0.0, 1e-6, 1e-3, 0.125]),
)
def test_the_p_value_is_that_of_exact_arithmetic(counts: list[int], odds: int, delta: float) -> None:
    correct, guesses, canaries = counts[0], max(counts[1], 1), max(counts[2], 1)
    success = Fraction(odds + 1, odds + 2)
    exact = reference.p_value(guesses, correct, canaries, success, Fraction(delta))
    found = one_run_p_value(guesses, correct, canaries, math.log(odds + 1), delta)
    assert found == pytest.approx(min(float(exact), 1.0), rel=1e-11)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
@pytest.mark.parametrize(("canaries", "guesses"), [(100, 100), (400, 60)])
def test_no_leak_beats_the_p_value_and_one_comes_close(canaries: int, guesses: int, epsilon: float) -> None:
    """Mechanisms that show some coins with probability delta are exactly (epsilon, delta)-private.

    Of ``i`` coins shown, a share ``q`` would have been right anyway, so that ``i`` is as good as ``i (1 - q)`` right
    guesses more, with probability ``m delta / i`` where the term has twice that: a share ``(1 - q) / 2`` of it is
    reached.
    """
    delta = 1e-4
    success = 1 / (1 + math.exp(-epsilon))
    spread = math.sqrt(guesses * success * (1 - success))
    for correct in {min(guesses, round(guesses * success + steps * spread)) for steps in (1, 2, 3)}:
        bound = one_run_p_value(guesses, correct, canaries, epsilon, delta)
        without = one_run_p_value(guesses, correct, canaries, epsilon, 0.0)
        tails = [
            reference.leaking_tail(guesses, correct, canaries, epsilon, delta, leaked)
            for leaked in range(1, guesses + 1)
        ]
        assert without < max(tails) <= bound
        assert max(tails) - without > (1 - success) / 2 * (bound - without)


@given(
    guesses=st.integers(1, 300),
    share=st.floats(0, 1),
    extra=st.integers(0, 3000),
    delta=st.sampled_from([0.0, 1e-8, 1e-5, 1e-3]),
    confidence=st.sampled_from([0.6, 0.95, 0.999999]),
)
def test_the_bound_is_at_least_where_the_p_value_crosses(
    guesses: int, share: float, extra: int, delta: float, confidence: float
) -> None:
    """Above it no p-value is small, and without delta it is the one with that p-value."""
    correct, canaries = round(share * guesses), guesses + extra
    bound = epsilon_lower_bound(guesses, correct, canaries, delta, confidence)
    for further in (1e-6, 0.1, 1.0, 10.0):
        p_value = one_run_p_value(guesses, correct, canaries, bound + further, delta)
        assert p_value >= (1 - confidence) * (1 - 1e-9)
    if bound > 0:
        p_value = one_run_p_value(guesses, correct, canaries, bound, 0.0)
        assert p_value < (1 - confidence) * (1 + 1e-9)
        if delta == 0:
            assert p_value == pytest.approx(1 - confidence, rel=1e-5)


@pytest.mark.parametrize("guesses", [1, 30, 1000, 10_000])
def test_all_right_without_delta_is_known_in_closed_form(guesses: int) -> None:
    """``q^r = 1 - confidence``, so epsilon is ``ln(q / (1 - q))``, about ``ln(r / ln(1 / (1 - confidence)))``."""
    q = 0.05 ** (1 / guesses)
    expected = max(math.log(q) - math.log(-math.expm1(math.log(0.05) / guesses)), 0.0)
    assert epsilon_lower_bound(guesses, guesses, guesses, 0.0) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 30.0, 100.0, 700.0])
@pytest.mark.parametrize("canaries", [100, 10_000])
def test_extreme_p_values_are_finite(canaries: int, epsilon: float) -> None:
    for correct in (0, 1, canaries // 2, canaries - 1, canaries):
        for delta in (0.0, 1e-12, 0.5):
            assert 0 <= one_run_p_value(canaries, correct, canaries, epsilon, delta) <= 1
    assert one_run_p_value(canaries, canaries, canaries, 100.0, 1e-5) == pytest.approx(1.0)


def test_a_bound_takes_less_than_50_ms() -> None:
    epsilon_lower_bound(10, 9, 10, DELTA)
    seconds = []
    for _ in range(3):
        start = time.process_time()
        epsilon_lower_bound(10_000, 9_000, 10_000, DELTA)
        seconds.append(time.process_time() - start)
    assert min(seconds) < 0.05


COUNTS = [(12, 12, 9), (12, 12, 11), (12, 12, 12), (60, 14, 12), (60, 14, 14)]


@pytest.mark.parametrize("mu", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize(("canaries", "guesses", "correct"), COUNTS)
def test_the_gaussian_bound_is_the_solution_of_a_linear_program(
    canaries: int, guesses: int, correct: int, mu: float
) -> None:
    """At the confidence that the program's largest tail gives, exactly this ``mu`` is the last one refuted.

    Between tangents ``h`` apart the program's ``F`` is too large by up to ``phi(z + mu) mu h^2 / 4``, to first order,
    which is what ``mu h^2 / 4`` more of ``mu`` would add; twice that is allowed. The solver is accurate to 1e-7.
    """
    step = 0.05
    tail = reference.largest_tail(guesses, correct, canaries, *reference.gaussian_lines(mu, step))
    if tail < 0.999:
        assert gaussian_mu_lower_bound(guesses, correct, canaries, 1 - tail - 1e-7) >= mu
    assert gaussian_mu_lower_bound(guesses, correct, canaries, 1 - tail + 1e-7) <= mu * (1 + step**2 / 2)


@pytest.mark.parametrize("delta", [0.0, 1e-4, 1e-2])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 3.0])
@pytest.mark.parametrize(("canaries", "guesses", "correct"), COUNTS)
def test_the_bound_is_the_better_of_p_value_and_linear_program(
    canaries: int, guesses: int, correct: int, epsilon: float, delta: float
) -> None:
    by_program = reference.largest_tail(guesses, correct, canaries, *reference.private_lines(epsilon, delta))
    level = min(by_program, one_run_p_value(guesses, correct, canaries, epsilon, delta))
    if level < 0.999:
        assert epsilon_lower_bound(guesses, correct, canaries, delta, 1 - level - 1e-7) >= epsilon
    if epsilon > 0:
        assert epsilon_lower_bound(guesses, correct, canaries, delta, 1 - level + 1e-7) <= epsilon


def test_the_gaussian_bound_at_mu_zero_is_that_of_fair_coins() -> None:
    """With ``mu = 0`` the output says nothing: all of 5 guesses are right with probability 1/32."""
    assert gaussian_mu_lower_bound(5, 5, 5, 1 - 1.001 / 32) > 0
    assert gaussian_mu_lower_bound(5, 5, 5, 1 - 0.999 / 32) == 0


def test_a_fixed_number_of_guesses_uses_the_confidence_up() -> None:
    """Randomised response is the worst case, so the bound is above the truth as often as counts allow, and never more often."""
    guesses = 500
    for epsilon in (0.1, 0.5, 1.0, 2.0, 4.0):
        tails = stats.binom.sf(np.arange(guesses + 1) - 1, guesses, 1 / (1 + math.exp(-epsilon)))
        enough = int(np.argmax(tails < 0.05))  # the least number of right guesses that may refute epsilon
        assert epsilon_lower_bound(guesses, enough, guesses, 0.0) > epsilon
        assert epsilon_lower_bound(guesses, enough - 1, guesses, 0.0) <= epsilon


def runs_above_truth(mechanism: str, strength: float, canaries: int, runs: int, *, gaussian: bool) -> int:
    rng = np.random.default_rng(7)
    truth = strength if mechanism == "response" else gaussian_epsilon(strength, DELTA)
    release = randomised_response if mechanism == "response" else gaussian_scores
    above = 0
    for _ in range(runs):
        included = coins(canaries, rng)
        bound = audit_scores(release(included, strength, rng), included, DELTA, gaussian=gaussian)
        above += bound.epsilon > truth
    return above


CASES = [
    *(("response", epsilon, False) for epsilon in (0.2, 1.0, 3.0)),
    *(("noise", mu, gaussian) for mu in (0.0, 0.3, 1.0, 3.0) for gaussian in (False, True)),
]


@pytest.mark.usefixtures("remembered")
@pytest.mark.parametrize(("mechanism", "strength", "gaussian"), CASES)
def test_the_bound_is_seldom_above_the_truth(mechanism: str, strength: float, gaussian: bool) -> None:
    runs = 150
    above = runs_above_truth(mechanism, strength, canaries=150, runs=runs, gaussian=gaussian)
    assert above <= most_allowed(runs, 0.05)


@pytest.mark.slow
@pytest.mark.usefixtures("remembered")
@pytest.mark.parametrize("canaries", [100, 1000])
@pytest.mark.parametrize(("mechanism", "strength", "gaussian"), CASES)
def test_the_bound_is_seldom_above_the_truth_in_many_runs(
    mechanism: str, strength: float, gaussian: bool, canaries: int
) -> None:
    runs = 4000
    above = runs_above_truth(mechanism, strength, canaries, runs, gaussian=gaussian)
    assert above <= most_allowed(runs, 0.05)


@pytest.mark.slow
@pytest.mark.usefixtures("remembered")
def test_choosing_the_best_candidate_without_paying_would_be_wrong() -> None:
    """The simulation can fail: without the union bound it does, on an output that says nothing."""
    rng = np.random.default_rng(3)
    runs, above = 400, 0
    for _ in range(runs):
        included = coins(1000, rng)
        scores = rng.standard_normal(1000)
        bounds = [audit_scores(scores, included, 0.0, guesses=count).epsilon for count in (20, 40, 80, 160, 320, 640)]
        above += max(bounds) > 0
    assert above > most_allowed(runs, 0.05)


@pytest.mark.parametrize(("canaries", "least"), [(100, 2.5), (1000, 5.0), (10_000, 7.5)])
def test_an_unprotected_release_is_found(canaries: int, least: float) -> None:
    included = coins(canaries, np.random.default_rng(1))
    bound = audit_scores(included.astype(float), included, DELTA)
    assert bound.correct == bound.guesses
    assert least < bound.epsilon < math.log(bound.guesses / math.log(1 / 0.05))
    assert audit_scores(included.astype(float), included, DELTA, gaussian=True).epsilon > 1.5 * bound.epsilon


@pytest.mark.parametrize(("claimed_mu", "gaussian"), [(0.267, False), (0.5, False), (0.267, True), (0.92, True)])
def test_noise_that_is_five_times_too_small_is_found(claimed_mu: float, gaussian: bool) -> None:
    """Claims of epsilon 1, 2 and 4; the bound still does not exceed what is true."""
    rng = np.random.default_rng(2)
    included = coins(1000, rng)
    bound = audit_scores(gaussian_scores(included, 5 * claimed_mu, rng), included, DELTA, gaussian=gaussian)
    assert gaussian_epsilon(claimed_mu, DELTA) < bound.epsilon < gaussian_epsilon(5 * claimed_mu, DELTA)


def test_equal_scores_and_scores_upside_down_show_nothing() -> None:
    included = np.sort(coins(1000, np.random.default_rng(4)))
    assert audit_scores(np.zeros(1000), included, DELTA).epsilon == 0
    assert audit_scores(np.zeros(1000), included[::-1].copy(), DELTA).epsilon == 0
    assert audit_scores(-included.astype(float), included, DELTA).epsilon == 0


def test_guesses_are_the_extremes() -> None:
    included = np.array([True, True, False, False, True])
    scores = np.array([5.0, 4.0, 3.0, 2.0, 1.0])
    bounds = [audit_scores(scores, included, 0.0, guesses=count) for count in (1, 2, 3, 4, 5)]
    assert [bound.correct for bound in bounds] == [1, 1, 2, 3, 3]
    assert [bound.guesses for bound in bounds] == [1, 2, 3, 4, 5]


def test_candidates_share_the_confidence() -> None:
    rng = np.random.default_rng(5)
    included = coins(500, rng)
    scores = gaussian_scores(included, 2.0, rng)
    chosen = audit_scores(scores, included, DELTA, guesses=(50, 100, 200, 100))
    alone = [audit_scores(scores, included, DELTA, guesses=count, confidence=1 - 0.05 / 3) for count in (50, 100, 200)]
    best = max(alone, key=lambda bound: bound.epsilon)
    assert chosen.epsilon == pytest.approx(best.epsilon)
    assert (chosen.guesses, chosen.correct) == (best.guesses, best.correct)
    assert (chosen.canaries, chosen.delta, chosen.confidence) == (500, DELTA, 0.95)


def refusal(**changes: object) -> str:
    included = coins(100, np.random.default_rng(0))
    arguments: dict[str, object] = {"scores": included.astype(float), "included": included, "delta": DELTA}
    with pytest.raises(InputError) as caught:
        audit_scores(**{**arguments, **changes})  # type: ignore[arg-type]
    return str(caught.value)


def test_bad_input_is_refused() -> None:
    assert refusal(scores=np.full(100, math.nan)).startswith("scores has 100 value(s)")
    assert refusal(scores=np.zeros((100, 1))) == (
        "scores has shape (100, 1): give a vector with one score for each canary."
    )
    assert "one boolean for each of 100 scores" in refusal(included=np.ones(100))
    assert refusal(included=np.ones(100, bool)).startswith("included has 100 of 100 canaries: toss a fair coin")
    assert refusal(delta=1.0) == "delta = 1.0 must be below 1, for example 1e-5."
    assert refusal(delta=-1e-5).startswith("delta = -1e-05")
    assert refusal(delta=0.0, gaussian=True).startswith("delta = 0.0")
    assert refusal(confidence=1.0).startswith("confidence = 1.0")
    assert refusal(guesses=101) == "guesses = 101 must be at most canaries = 100: guess each canary once."
    assert refusal(guesses=()).startswith("guesses = ()")
    assert refusal(guesses=(10, 0)).startswith("guesses = 0")
    with pytest.raises(InputError, match=r"^correct = 11 must be at most guesses = 10"):
        epsilon_lower_bound(10, 11, 20, DELTA)
    with pytest.raises(InputError, match=r"^correct = -1"):
        gaussian_mu_lower_bound(10, -1, 20)
