"""The predicted learning curve of each scheme."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from codedfl.planning._curvature import flow, predicted_seconds, seconds_of
from codedfl.planning._folds import CodedMoments, Fold, coded_view, plain_view
from codedfl.planning._parties import Attended, DeviceShare, ServerShare, uncovered_share
from codedfl.planning._paths import Scores, Training, reference_values, row_values
from codedfl.schemes import CurvatureCoded
from codedfl.setting import Setting
from codedfl.training import DevicePlan, OneShot, Scheme
from codedfl.typing import FloatArray


@dataclass(frozen=True, eq=False)
class Curve:
    """Points below the centralised score over time.

    Args:
        rounds: rounds completed, (k,).
        seconds: simulated time with everything charged, (k,).
        below: points below the centralised score, infinite once training has run away, (k,).
        error: one standard error of ``below``, by the draw of held-out and test rows, (k,).
    """

    rounds: FloatArray
    seconds: FloatArray
    below: FloatArray
    error: FloatArray

    def first_within(self, points: float, errors: float = 0.0) -> float | None:
        """Return the time at which the curve first comes within some points; None if it never does.

        Args:
            points: how far below the centralised score the curve may be.
            errors: standard errors to add to the curve; negative ones to subtract.

        Example:
            >>> steps = np.arange(3.0)
            >>> curve = Curve(steps, 10 * steps, np.array([4.0, 2.0, 1.0]), np.full(3, 0.5))
            >>> curve.first_within(1.5), curve.first_within(1.5, errors=1.0), curve.first_within(0.5)
            (15.0, 20.0, None)
        """
        with np.errstate(invalid="ignore"):
            values = self.below + errors * np.where(np.isfinite(self.error), self.error, 0.0)
        reached = np.flatnonzero(values <= points + 1e-12)
        if reached.size == 0:
            return None
        end = int(reached[0])
        if end == 0 or not math.isfinite(values[end - 1]):
            return float(self.seconds[end])
        before, after = values[end - 1], values[end]
        share = (before - points) / (before - after) if before > after else 1.0
        return float(self.seconds[end - 1] + share * (self.seconds[end] - self.seconds[end - 1]))

    def below_at(self, seconds: float) -> float:
        """Return the points below the centralised score at a time; infinite before there is a model."""
        if seconds < self.seconds[0]:
            return math.inf
        place = int(np.searchsorted(self.seconds, seconds, side="right")) - 1
        if place + 1 >= len(self.seconds) or not math.isfinite(self.below[place + 1]):
            return float(self.below[place])
        return float(np.interp(seconds, self.seconds, self.below))

    @property
    def best(self) -> int:
        """The place of the lowest point."""
        return int(np.argmin(self.below))

    @property
    def runs_away(self) -> bool:
        """Whether the curve ends far above its lowest point."""
        return not self.below[-1] <= self.below[self.best] + 5.0


MOST_ROUNDS = 30_000
"""Rounds that a prediction looks ahead."""

STOPS = tuple(sorted({0, *np.geomspace(1, MOST_ROUNDS, 75).round().astype(int).tolist()}))
"""Numbers of rounds at which models are scored, up to `MOST_ROUNDS`."""

TRIED = 3
"""Step sizes to try: the largest stable ones of the grid."""

GROWS = 1.02
"""A step size at which a round may multiply errors by more than this is not tried."""

AWAY_POINTS = 95.0


@dataclass(frozen=True, eq=False)
class Situation:
    """A scheme in its setting, before training.

    Args:
        scheme: the scheme.
        setting: data, fleet, channel, code.
        plan: the work of the devices.
        attended: who takes part in a round, on average.
        folds: the data, with rows held out.
        step_sizes: the grid, in units of ``1 / L``.
    """

    scheme: Scheme
    setting: Setting
    plan: DevicePlan
    attended: Attended
    folds: Sequence[Fold]
    step_sizes: Sequence[float]

    @property
    def preparation_s(self) -> float:
        """Time before the first round."""
        cost = self.scheme.upload_cost(self.setting, self.plan)
        return cost.total_s if cost else 0.0

    @property
    def coded_rows(self) -> int:
        """Coded rows of a device, over all coded batches."""
        return sum(self.plan.coded_rows(self.setting.code.coded_samples))

    @property
    def round_s(self) -> float:
        """Time from one round to the next: the deadline, and the server's work after it."""
        after = self.scheme.aggregation_macs(self.setting) / self.setting.server_mac_rate
        return self.plan.arrivals.duration_s + after

    def curve(self, rounds: FloatArray, scores: Sequence[Scores], seconds: FloatArray | None = None) -> Curve:
        """Return the mean curve over the folds, in points."""
        below = 100.0 * np.mean([each.below for each in scores], axis=0)
        variance = 100.0**2 * np.mean([each.variance for each in scores], axis=0)
        total = min(sum(each.rows for each in scores), self.setting.federation.total_samples)
        tested = max(len(self.setting.federation.test_labels), 1)
        error = np.sqrt(variance * (1.0 / total + 1.0 / tested))
        lost = ~(below < AWAY_POINTS) & (rounds > 0)
        return Curve(
            rounds,
            self.preparation_s + (rounds * self.round_s if seconds is None else seconds),
            np.where(lost, np.inf, below),
            error,
        )


@dataclass(frozen=True, eq=False)
class Prediction:
    """A predicted curve with its step size.

    Args:
        curve: the learning curve.
        step_size_scale: in units of ``1 / L``; None for a scheme that tunes itself.
        stable: whether any step size is stable.
    """

    curve: Curve
    step_size_scale: float | None
    stable: bool = True


def predict(situation: Situation, better: Callable[[Curve], float]) -> Prediction:
    """Predict the learning curve of a scheme.

    Args:
        situation: the scheme in its setting.
        better: the lower this number of a curve, the better its step size.
    """
    scheme = situation.scheme
    if scheme.forecast == "solution":
        return Prediction(_solution(situation), None)
    if scheme.forecast == "curvature":
        return Prediction(_with_curvature(situation), None)
    trainings = [_training(situation, fold) for fold in situation.folds]
    smoothness = scheme.loss_for(situation.setting.federation.task).smoothness(situation.setting.gram)
    grid = sorted(situation.step_sizes, reverse=True)
    stable = [scale for scale in grid if max(each.rounds(scale / smoothness).growth for each in trainings) <= GROWS]
    tried = stable[:TRIED] or grid[-1:]
    predictions = []
    for scale in tried:
        scores = [each.scores(scale / smoothness, STOPS) for each in trainings]
        predictions.append(Prediction(situation.curve(np.array(STOPS, np.float64), scores), scale, bool(stable)))
    return min(predictions, key=lambda each: (better(each.curve), float(each.curve.below[each.curve.best])))


def _training(situation: Situation, fold: Fold) -> Training:
    """Return the rounds of a scheme that takes gradient steps."""
    scheme, setting, plan = situation.scheme, situation.setting, situation.plan
    devices = DeviceShare.of(scheme, plan, setting, situation.attended)
    server = ServerShare.of(scheme, plan, setting)
    average, momentum = scheme.final == "average", scheme.heavy_ball
    if server is None or scheme.upload is None or not scheme.upload.stands_for_data:
        return Training(fold, plain_view(fold), devices, None, (0.0, 0.0), average, momentum)
    if not plan.coded_for_all:
        covered = uncovered_share(plan, setting)
        coded = _coded(situation, fold, covered)
        view = coded_view(fold, coded, 1.0 - covered, 1.0, total=1.0, make_up=False)
        parity_noise = 1.0 + covered**2 * fold.gram.samples / situation.coded_rows
        return Training(fold, view, devices, server, (0.0, 0.0), average, one_step=True, parity_noise=parity_noise)
    coded = _coded(situation, fold)
    weights = round(devices.mean_weight, 6), server.weight
    make_up = scheme.server is not None and scheme.server.make_up
    view = fold.once(
        (id(coded), weights, make_up), lambda: coded_view(fold, coded, *weights, total=sum(weights), make_up=make_up)
    )
    return Training(fold, view, devices, server, (coded.noise_variance, coded.label_noise_variance), average)


def _coded(situation: Situation, fold: Fold, covered: float = 1.0) -> CodedMoments:
    """Return second moments of the scheme's coded data, drawn once for all schemes that send the same."""
    upload, setting, rows = situation.scheme.upload, situation.setting, situation.coded_rows
    assert upload is not None
    noise, apart = upload.noise, not upload.can_be_summed

    def draw() -> CodedMoments:
        return CodedMoments.drawn(fold, setting, rows, noise=noise, covered=covered, apart=apart)

    return fold.once(("coded", rows, noise, covered, apart), draw) if covered == 1.0 else draw()


def _solution(situation: Situation) -> Curve:
    """Return the one point of a scheme that solves for its model."""
    scores = [_solved(situation, fold) for fold in situation.folds]
    return situation.curve(np.zeros(1), scores)


def _solved(situation: Situation, fold: Fold) -> Scores:
    """Return the score of the model that the scheme makes of what it would hold, in the fold's basis."""
    scheme = cast(OneShot, situation.scheme)
    coded = scheme.upload is not None and scheme.upload.stands_for_data
    model = scheme.solve((_coded(situation, fold).data,) if coded else fold.statistics)
    values = row_values(fold, fold.held_out, model[None])
    return Scores.of(values, reference_values(fold), np.ones(1, np.bool_))


def _with_curvature(situation: Situation) -> Curve:
    """Return the curve of training with curvature, by its fitted rule."""
    scheme = cast(CurvatureCoded, situation.scheme)
    flows = [flow(scheme, fold, situation.setting) for fold in situation.folds]
    share = np.mean([each[0] for each in flows], axis=0)
    duration = situation.plan.arrivals.duration_s
    training = seconds_of(share, predicted_seconds(situation.setting, situation.plan), duration)
    rounds = np.ceil(training / duration)
    seconds = training * (situation.round_s / duration)
    return situation.curve(rounds, [each[1] for each in flows], seconds)
