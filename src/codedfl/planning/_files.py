"""Plans as files: an ordinary configuration, with the prediction in a comment."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from codedfl.config import to_toml
from codedfl.errors import InputError
from codedfl.planning._plan import Plan
from codedfl.training import Evaluator, RunResult

MARK = "# plan: "
"""What the line with the prediction begins with; to a TOML reader it is a comment."""


@dataclass(frozen=True)
class Promise:
    """What a plan predicted for the scheme that it chose.

    Args:
        scheme: its name.
        within: points below the centralised score to get within.
        time_s: predicted time to there, everything charged; None if it was not predicted to get there.
        low_s: earliest likely time.
        high_s: latest likely time; None without an upper end.
    """

    scheme: str
    within: float
    time_s: float | None
    low_s: float | None
    high_s: float | None


@dataclass(frozen=True)
class Outcome:
    """A promise and what became of it.

    Args:
        promise: the prediction.
        measured_s: time of the first evaluation within the points promised, everything charged; None if there was none.
    """

    promise: Promise
    measured_s: float | None

    @property
    def in_interval(self) -> bool:
        """Whether the measured time lies between the earliest and the latest likely one."""
        low, high = self.promise.low_s or 0.0, self.promise.high_s
        if self.measured_s is None:
            return self.promise.time_s is None or high is None
        return low <= self.measured_s and (high is None or self.measured_s <= high)


def plan_to_toml(plan: Plan) -> str:
    """Write the planned configuration as TOML, with the prediction as a comment in its first line."""
    choice = plan.choice
    config = plan.planned_config()
    assert choice is not None
    promise = Promise(choice.scheme, plan.target.within, choice.time_s, choice.low_s, choice.high_s)
    return f"{MARK}{json.dumps(asdict(promise))}\n\n{to_toml(config)}"


def read_promise(path: Path) -> Promise:
    """Read the prediction from a plan.

    Raises:
        InputError: if the file cannot be read or holds no prediction.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        line = next(line for line in lines if line.startswith(MARK))
        return Promise(**json.loads(line.removeprefix(MARK)))
    except OSError as error:
        raise InputError(
            f"--plan = {path} cannot be read ({error.strerror}): give a file of `codedfl plan --out`."
        ) from error
    except (StopIteration, ValueError, TypeError) as error:
        raise InputError(f"--plan = {path} holds no prediction: give a file of `codedfl plan --out`.") from error


def outcome_of(promise: Promise, result: RunResult, evaluator: Evaluator) -> Outcome:
    """Hold a run against what was promised."""
    reference = evaluator.reference
    if reference is None:
        return Outcome(promise, None)
    enough = reference.score - promise.within / 100 - 1e-12
    measured = next((point.everything_charged_s for point in result.curve if point.score >= enough), None)
    return Outcome(promise, measured)
