"""What a plan says about one scheme: whether and when it reaches the target, and why another one was chosen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from codedfl.errors import InputError
from codedfl.experiment import Experiment, upload_privacy
from codedfl.planning._folds import Fold
from codedfl.planning._parties import Attended
from codedfl.planning._schemes import Curve, Prediction, Situation, predict
from codedfl.training import DevicePlan, Scheme
from codedfl.uploads import UploadCost


@dataclass(frozen=True)
class Target:
    """Points below the centralised score to get within, or a time by which to get as close as possible.

    Args:
        within: percentage points of accuracy, or hundredths of R2, below the centralised score.
        time_s: simulated seconds, everything charged; None to ask for the shortest time.

    Example:
        >>> Target().within
        0.5
        >>> Target(within=0.0)
        Traceback (most recent call last):
        codedfl.errors.InputError: --within = 0 must be above 0 and at most 100 points.
    """

    within: float = 0.5
    time_s: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.within <= 100:
            raise InputError(f"--within = {self.within:g} must be above 0 and at most 100 points.")
        if self.time_s is not None and not (math.isfinite(self.time_s) and self.time_s > 0):
            raise InputError(f"--time = {self.time_s:g} must be a positive number of seconds.")


Status = Literal["reaches", "falls short", "runs away", "impossible"]

MODEL_FACTOR = 1.25
"""An allowance either way for what the model of training leaves out; `benchmarks/plan.py` measures how often ranges hold."""

CURVATURE_FACTOR = 1.6
"""The same for training with curvature, whose rule is a fit."""


@dataclass(frozen=True)
class Forecast:
    """The prediction for one scheme.

    Args:
        scheme: its name.
        title: its name in a table.
        status: whether it reaches the target, gets less close, runs away, or cannot run at all.
        arrivals: updates per round, on average.
        batch: samples that a device which arrives computes on in each step, on average; 0 without devices.
        local_steps: ``tau``.
        round_s: duration of a round.
        upload: what devices send before training, in words.
        upload_bytes: of all devices together.
        coded_rows: coded rows, if that is what they send.
        rank: directions of a sketch, if that is what they send.
        preparation_s: encoding, upload (both of the slowest device) and the server's work before the first round; and the total.
        step_size_scale: step size in units of ``1 / L``; None if there is none to choose.
        rounds: rounds to the target.
        time_s: time to the target, everything charged; None if it is not reached.
        low_s: earliest likely time; None if the target is out of reach.
        high_s: latest likely time; None if the target may well be missed.
        bytes_up: bytes received by the server by then; None if it is not reached.
        best_below: points below the centralised score at its best.
        end_below: the same in the end; None if it runs away.
        error: one standard error of ``best_below``.
        below_in_time: the same at the given time; None without one, or if there is no model by then.
        privacy: the budgets of the upload, as in the summary of a run.
        condition: largest over smallest eigenvalue of ``X^T X``.
        one_shot: whether there are no rounds.
        stable: whether any step size is stable.
        reason: why another scheme was chosen; empty for the one chosen.
    """

    scheme: str
    title: str
    status: Status
    arrivals: float = 0.0
    batch: float = 0.0
    local_steps: int = 0
    round_s: float = 0.0
    upload: str = "none"
    upload_bytes: float = 0.0
    coded_rows: int | None = None
    rank: int | None = None
    preparation_s: dict[str, float] = field(default_factory=lambda: _seconds(None))
    step_size_scale: float | None = None
    rounds: int | None = None
    time_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    bytes_up: float | None = None
    best_below: float = math.inf
    end_below: float | None = None
    error: float = 0.0
    below_in_time: float | None = None
    privacy: dict[str, Any] = field(default_factory=dict)
    condition: float = math.inf
    one_shot: bool = False
    stable: bool = True
    reason: str = ""

    @property
    def preparation_total_s(self) -> float:
        """Time before the first round."""
        return self.preparation_s["total"]


def forecast(
    scheme: Scheme, experiment: Experiment, plan: DevicePlan, folds: Sequence[Fold], target: Target
) -> Forecast:
    """Predict what a scheme does in an experiment.

    Args:
        scheme: the scheme.
        experiment: configuration, data, fleet, code.
        plan: the work of the devices.
        folds: the data with rows held out.
        target: what is to be achieved.
    """
    setting, rate = experiment.setting, experiment.config.learning_rate
    attended = Attended.of(plan.arrivals, setting.federation.samples.astype(np.float64))
    grid = rate.grid if rate.scale == "grid" else (float(rate.scale),)
    situation = Situation(scheme, setting, plan, attended, folds, grid)
    prediction = predict(situation, lambda curve: _rank(curve, target))
    curve, cost, upload = prediction.curve, scheme.upload_cost(setting, plan), scheme.upload
    best = curve.best
    in_time = None if target.time_s is None else curve.below_at(target.time_s)
    reached = _reached(curve, situation, target, cost)
    return Forecast(
        scheme=scheme.name,
        title=scheme.title,
        status=_status(prediction, target),
        arrivals=attended.arrivals,
        batch=attended.batch,
        local_steps=0 if scheme.one_shot else plan.local_steps,
        round_s=0.0 if scheme.one_shot else plan.arrivals.duration_s,
        upload=upload.in_words() if upload else "none",
        upload_bytes=float(cost.bits.sum()) / 8 if cost else 0.0,
        coded_rows=situation.coded_rows if upload and upload.stands_for_data else None,
        rank=(upload.sketched(setting.federation.dimension)[0] or None) if upload else None,
        preparation_s=_seconds(cost),
        step_size_scale=prediction.step_size_scale,
        best_below=float(curve.below[best]),
        end_below=None if curve.runs_away else float(curve.below[-1]),
        error=float(curve.error[best]),
        below_in_time=in_time if in_time is not None and math.isfinite(in_time) else None,
        privacy=upload_privacy(scheme, setting, plan, experiment.config.privacy.delta),
        condition=float(folds[0].values[-1] / max(folds[0].values[0], 1e-300)),
        one_shot=scheme.one_shot,
        stable=prediction.stable,
        **reached,
    )


def _rank(curve: Curve, target: Target) -> float:
    """Return a number by which to compare curves: the lower, the better."""
    if target.time_s is not None:
        return curve.below_at(target.time_s)
    seconds = curve.first_within(target.within)
    return math.inf if seconds is None else seconds


def _status(prediction: Prediction, target: Target) -> Status:
    curve = prediction.curve
    if curve.first_within(target.within) is not None:
        return "reaches"
    return "runs away" if curve.runs_away or not prediction.stable else "falls short"


def _reached(curve: Curve, situation: Situation, target: Target, cost: UploadCost | None) -> dict[str, Any]:
    """Return rounds, time with its interval, and bytes to the target."""
    seconds = curve.first_within(target.within)
    begin = situation.preparation_s
    factor = 1.0
    if not situation.scheme.one_shot:
        factor = CURVATURE_FACTOR if situation.scheme.forecast == "curvature" else MODEL_FACTOR
    low, high = curve.first_within(target.within, -1.0), curve.first_within(target.within, 1.0)
    interval = {
        "low_s": None if low is None else begin + (low - begin) / factor,
        "high_s": None if high is None else begin + (high - begin) * factor,
    }
    if seconds is None:
        return interval
    rounds = math.ceil((seconds - begin) / situation.round_s - 1e-9) if not situation.scheme.one_shot else 0
    payload = situation.setting.workload().payload_bits
    bits = (float(cost.bits.sum()) if cost else 0.0) + rounds * situation.attended.arrivals * payload
    return {
        **interval,
        "rounds": rounds,
        "time_s": seconds,
        "bytes_up": bits / 8,
    }


def _seconds(cost: UploadCost | None) -> dict[str, float]:
    """Split the time before the first round into its parts."""
    if cost is None:
        return {"encoding": 0.0, "upload": 0.0, "server": 0.0, "total": 0.0}
    slowest = int(np.argmax(cost.encoding_s + cost.upload_s))
    return {
        "encoding": float(cost.encoding_s[slowest]),
        "upload": float(cost.upload_s[slowest]),
        "server": cost.server_s,
        "total": cost.total_s,
    }


def reason_against(other: Forecast, chosen: Forecast | None, target: Target) -> str:
    """Return why a scheme was not chosen.

    Args:
        other: the scheme.
        chosen: the one that was; None if none reaches the target.
        target: what was to be achieved.

    Example:
        >>> slow = Forecast("scfl", "SCFL", "reaches", preparation_s={"total": 50_000.0}, time_s=66_000.0)
        >>> reason_against(slow, Forecast("ccfl", "CCFL", "reaches", time_s=200.0), Target())
        'preparation alone takes 50,000 s'
    """
    if other.status == "impossible":
        return other.reason
    if other.status == "runs away":
        return _away(other)
    if target.time_s is not None:
        return _by_then(other, target.time_s)
    if other.status == "falls short":
        if other.end_below is not None and other.end_below > other.best_below + 0.1:
            return f"at its best it is {other.best_below:.2f} points below, in the end {other.end_below:.2f}"
        return f"its limit is {other.best_below:.2f} points below"
    limit = chosen.time_s if chosen and chosen.time_s is not None else 0.0
    if other.preparation_total_s > limit:
        return f"preparation alone takes {_count(other.preparation_total_s)} s"
    if other.step_size_scale is not None and other.rounds is not None:
        return (
            f"{_count(other.rounds)} rounds of {other.round_s:.3g} s: plain gradient steps at condition number"
            f" {other.condition:.1g}"
        )
    return f"takes {(other.time_s or 0.0) / max(limit, 1e-300):.2g} times as long"


def _by_then(other: Forecast, seconds: float) -> str:
    if other.preparation_total_s > seconds:
        return f"preparation alone takes {_count(other.preparation_total_s)} s"
    if other.below_in_time is None:
        return "has no model by then"
    return f"is {other.below_in_time:.2f} points below by then"


def _away(other: Forecast) -> str:
    if other.coded_rows is not None and other.privacy.get("mi_dp_bits", 0) not in (None, float("inf")):
        text = "diverges at this noise: the Hessian of its coded data is indefinite"
        return text if other.best_below > 50 else f"{text}; at its best it is {other.best_below:.2f} points below"
    return "no step size of learning_rate.grid is stable"


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
