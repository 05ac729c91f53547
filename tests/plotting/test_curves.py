from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from codedfl.experiment import Comparison, run
from codedfl.identity import identity
from codedfl.plotting import Clock, SeedCurves, draw_curves, draw_seed_curves
from codedfl.plotting._curves import _band, curves_figure
from codedfl.schemes import SCHEMES, fedavg, make_scheme
from codedfl.training import Evaluation, RunResult, Scheme
from tests.plotting.pictures import assert_readable
from tests.support import StopAfter, small_config


def draw(comparison: Comparison, clock: Clock = "training") -> bytes:
    evaluator = comparison.evaluator
    return draw_curves(
        comparison.results,
        title=comparison.config.data.dataset,
        metric=evaluator.metric,
        reference=evaluator.reference,
        clock=clock,
    )


def assert_picture(png: bytes) -> None:
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert png.endswith(b"IEND\xaeB`\x82")
    assert struct.unpack(">II", png[16:24]) == (1350, 720)


def with_curves(comparison: Comparison, change: Callable[[list[Evaluation]], list[Evaluation]]) -> Comparison:
    """Return the comparison with other learning curves."""

    def changed(result: RunResult) -> RunResult:
        progress = replace(result.progress, curve=change(result.curve))
        return replace(result, progress=progress)

    return replace(comparison, results=tuple(changed(result) for result in comparison.results))


def test_every_scheme_has_a_colour_of_its_own() -> None:
    schemes = [make_scheme(name) for name in SCHEMES]
    assert len({scheme.colour for scheme in schemes} - {None}) == len(SCHEMES)
    assert {scheme.name for scheme in schemes if scheme.prominent} == {"scfl", "ccfl"}


def test_a_scheme_of_ones_own_has_the_colour_that_it_says_and_a_variant_is_dark_beside_what_it_came_from(
    comparison: Comparison,
) -> None:
    def colours(*schemes: Scheme) -> list[str]:
        first = comparison.results[0]
        results = [replace(first, prepared=replace(first.prepared, scheme=scheme)) for scheme in schemes]
        figure = curves_figure(results, title="digits", metric="accuracy", reference=None, clock="training")
        return [str(line.get_color()) for line in figure.axes[0].lines]

    own = replace(fedavg(), name="own", colour="#123456")
    variant = replace(fedavg(), name="variant")
    (dark,) = colours(replace(own, colour=None))
    assert colours(fedavg(), own, variant) == [fedavg().colour, "#123456", dark]
    assert colours(variant) == [fedavg().colour]
    assert own == replace(fedavg(), name="own")
    assert identity(own) == identity(replace(fedavg(), name="own")), "a colour changes no result"


@pytest.mark.slow
def test_the_same_comparison_gives_the_same_bytes(comparison: Comparison) -> None:
    training, everything = draw(comparison), draw(comparison, "everything")
    assert_picture(training)
    assert_picture(everything)
    assert training != everything
    assert draw(comparison) == training


def test_a_single_scheme(comparison: Comparison) -> None:
    assert_picture(draw(replace(comparison, results=comparison.results[-1:])))


@pytest.mark.slow
def test_schemes_that_diverged() -> None:
    diverged = run(small_config(learning_rate__scale=50, schemes=["scfl", "fedavg"]))
    assert {result.status for result in diverged.results} == {"diverged"}
    assert_picture(draw(diverged))
    overflowed = run(small_config(learning_rate__scale=1e30))
    assert_picture(draw(overflowed))


def test_a_run_that_was_stopped_before_its_first_evaluation() -> None:
    stopped = run(small_config(training__evaluations=1), callbacks=(StopAfter(2),))
    assert len(stopped["fedavg"].curve) == 1
    assert_picture(draw(stopped))


@pytest.mark.parametrize("finite", [0, 1])
def test_scores_that_are_not_numbers(comparison: Comparison, finite: int) -> None:
    def spoil(curve: list[Evaluation]) -> list[Evaluation]:
        return curve[:finite] + [replace(point, score=math.nan) for point in curve[finite:]]

    assert_picture(draw(with_curves(comparison, spoil)))


@pytest.mark.slow
def test_scores_that_are_all_the_same(comparison: Comparison) -> None:
    assert_picture(draw(with_curves(comparison, lambda curve: [replace(point, score=0.5) for point in curve])))


@pytest.mark.slow
def test_a_regression(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "y"])
    frame.to_csv(tmp_path / "own.csv", index=False)
    assert_picture(draw(run(small_config(data__dataset="own.csv", data__target=["y"]))))


@pytest.mark.slow
def test_many_devices_and_a_title_with_dollars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    pd.DataFrame(rng.normal(size=(400, 2)), columns=["a", "y"]).to_csv(tmp_path / "a$\\q$.csv", index=False)
    config = small_config(data__dataset="a$\\q$.csv", data__target=["y"], data__devices=200, schemes=["scfl"])
    assert_picture(draw(run(config)))


@pytest.mark.slow
def test_names_are_beside_the_curves_which_have_a_dot_at_their_end(comparison: Comparison) -> None:
    """Also if most end at the same score, or long before the others."""

    def alike(curve: list[Evaluation]) -> list[Evaluation]:
        return [replace(point, score=0.9) for point in curve]

    twelve = replace(with_curves(comparison, alike), results=with_curves(comparison, alike).results * 2)
    late = replace(comparison, results=(comparison.results[0], shifted(comparison.results[1], 100.0)))
    for each in (comparison, twelve, late):
        reference = each.evaluator.reference
        figure = curves_figure(each.results, title="digits", metric="accuracy", reference=reference, clock="everything")
        assert_readable(figure)
        for line, result in zip(figure.axes[0].lines, each.results, strict=False):
            assert line.get_markevery() == [-1]
            assert np.asarray(line.get_xdata())[-1] == result.final.everything_charged_s
            assert line.get_label() == f"{result.scheme.title} {result.final.score:.1%}"


def shifted(result: RunResult, seconds: float) -> RunResult:
    curve = [replace(point, everything_charged_s=point.everything_charged_s + seconds) for point in result.curve]
    return replace(result, progress=replace(result.progress, curve=curve))


def curve(scores: list[float], preparation_s: float) -> list[Evaluation]:
    return [
        Evaluation(k, 2.0 * k, 2.0 * k + preparation_s, 0.1, 0.1, score, score, 0.1, 0.1, 3.0, 1.0)
        for k, score in enumerate(scores)
    ]


def test_a_band_reaches_from_the_lowest_to_the_highest_seed() -> None:
    curves = [curve([0.1, 0.5, 0.7], 100.0), curve([0.1, 0.6, 0.65], 300.0), curve([float("nan")], 0.0), []]
    band = _band(curves, "everything", latest=204.0)
    assert band is not None
    times, low, mean, high = band
    assert times.tolist() == [200, 202, 204]  # preparation counts with its mean
    assert low.tolist() == [0.1, 0.5, 0.65]
    assert mean.tolist() == pytest.approx([0.1, 0.55, 0.675])
    assert high.tolist() == [0.1, 0.6, 0.7]
    at_once = _band([curve([0.8], 10.0), curve([0.9], 30.0)], "everything", latest=400.0)
    assert at_once is not None
    assert at_once[0].tolist() == [20, 400]
    assert _band([[]], "training", 1.0) is None


@pytest.mark.slow
def test_curves_over_seeds_are_drawn() -> None:
    schemes = [SeedCurves("scfl", "SCFL", [curve([0.1, 0.5, 0.7], 100.0), curve([0.1, 0.6, 0.65], 300.0)])]
    schemes.append(SeedCurves("fed3r", "Fed3R", [curve([0.8], 10.0), curve([0.9], 30.0)]))
    schemes.append(SeedCurves("own", "own", [[], []]))
    training = draw_seed_curves(schemes, title="digits", metric="accuracy", centralised=0.9)
    everything = draw_seed_curves(schemes, title="digits", metric="r2", clock="everything")
    assert_picture(training)
    assert_picture(everything)
    assert training != everything
