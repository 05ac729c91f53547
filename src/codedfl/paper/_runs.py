"""Training runs as data: the run that a figure asks for, and the record of its outcome."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Annotated, Any, Literal, cast

from pydantic import Field, TypeAdapter, ValidationError

from codedfl.experiment import Comparison, Config
from codedfl.paper._setups import Setup, changed

NO_CAP = 1e9
"""A cap of the weights 1 / p that nothing reaches: the paper has none, and in Fig. 5 some devices hardly ever arrive."""

SERIES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "SCFL": ("scfl", {"options__scfl__weight_cap": NO_CAP}),
    "SCFL (b=32)": ("scfl-fixed", {"options__scfl-fixed__batch": 32, "options__scfl-fixed__weight_cap": NO_CAP}),
    "FedAvg": ("fedavg", {"coding__noise_variance": 0.0}),
    "DP-CFL": ("dp-cfl", {}),
    "CodedFedL": ("codedfedl", {"options__codedfedl__noise": True}),
    "CodedFedL, no noise": ("codedfedl", {"options__codedfedl__noise": False, "coding__noise_variance": 0.0}),
}
"""The series of the figures: a scheme and its parameters. Parameters that a scheme ignores are fixed, so that it is run once."""


@dataclass(frozen=True)
class FigureRun:
    """One point (or curve) of a figure.

    Args:
        panel: the task, or another name of the panel.
        series: the line that the point belongs to.
        x: its position on the horizontal axis.
        config: the configuration; every repetition sets its own seed.
        read_at_s: the simulated time at which accuracy is read; None for the end.
    """

    panel: str
    series: str
    x: float
    config: Config
    read_at_s: float | None = None

    def __hash__(self) -> int:
        return hash((self.panel, self.series, self.x))


def run_of(setup: Setup, series: str, x: float = 0.0, *, read_at_s: float | None = None, **changes: Any) -> FigureRun:
    """Return the run of a series on a task, with some parameters changed.

    Example:
        >>> from codedfl.paper._setups import DIGITS
        >>> run_of(DIGITS, "FedAvg", training__rounds=3).config.schemes
        ('fedavg',)
    """
    scheme, own = SERIES[series]
    config = setup.changed(**{**changes, **own, "schemes": [scheme]})
    return FigureRun(setup.name, series, x, config, read_at_s)


@dataclass(frozen=True)
class CurvePoint:
    """One evaluation along a run.

    Args:
        round: rounds completed.
        time_s: simulated training time.
        charged_s: simulated time including encoding and coded upload.
        accuracy: test accuracy of the model that the scheme returns.
        last_accuracy: test accuracy of the last iterate.
        gap: training loss above the optimum, per sample.
    """

    round: int
    time_s: float
    charged_s: float
    accuracy: float
    last_accuracy: float
    gap: float


Ended = Literal["completed", "diverged"]


@dataclass(frozen=True)
class RunOutcome:
    """The outcome of a run.

    Args:
        config: the configuration, with seed and step size.
        status: ``completed`` or ``diverged``.
        message: what happened if it did not complete.
        stragglers: expected share of devices that miss a round.
        centralised: accuracy of the centralised optimum.
        dimension: features ``d``.
        outputs: number of classes ``o``.
        coded_bytes: coded upload of all devices.
        training_bytes: uploads of all devices during training.
        wall_time_s: wall-clock time of the run.
        curve: its evaluations.
    """

    config: dict[str, Any]
    status: Ended
    message: str
    stragglers: Annotated[float, Field(ge=0, le=1)]
    centralised: float
    dimension: Annotated[int, Field(ge=1)]
    outputs: Annotated[int, Field(ge=1)]
    coded_bytes: Annotated[float, Field(ge=0)]
    training_bytes: Annotated[float, Field(ge=0)]
    wall_time_s: float
    curve: Annotated[tuple[CurvePoint, ...], Field(min_length=1)]

    @property
    def scale(self) -> float:
        """The step size in units of ``1 / L``."""
        return float(self.config["learning_rate"]["scale"])

    def at(self, time_s: float | None = None) -> CurvePoint:
        """Return the last evaluation up to a simulated time, the final one by default."""
        return max((p for p in self.curve if time_s is None or p.time_s <= time_s + 1e-6), key=lambda p: p.round)

    def accuracy(self, time_s: float | None = None) -> float:
        """Return the accuracy at a simulated time; a run that diverged counts as guessing."""
        value = self.at(time_s).accuracy
        return 1 / self.outputs if self.status == "diverged" or not math.isfinite(value) else value

    @classmethod
    def of(cls, comparison: Comparison) -> RunOutcome:
        """Extract the record of a comparison with one scheme."""
        (result,) = comparison.results
        ledger = result.progress.ledger
        reference = comparison.evaluator.reference
        return cls(
            config=comparison.config.model_dump(mode="json"),
            status=cast(Ended, result.status),
            message=result.message,
            stragglers=float(1 - result.prepared.device.arrivals.probability.mean()),
            centralised=reference.score if reference else math.nan,
            dimension=comparison.setting.federation.dimension,
            outputs=comparison.setting.federation.outputs,
            coded_bytes=float(ledger.coded_bits.sum()) / 8,
            training_bytes=float(ledger.bits_up.sum()) / 8,
            wall_time_s=result.progress.wall_time_s,
            curve=tuple(
                CurvePoint(p.round, p.simulated_time_s, p.everything_charged_s, p.score, p.last_score, p.gap)
                for p in result.curve
            ),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunOutcome:
        """Parse and validate what `as_dict` returned.

        Raises:
            ValueError: naming a field whose value cannot be.
        """
        try:
            record = _validator().validate_python(values)
        except ValidationError as error:
            problem = error.errors()[0]
            raise ValueError(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}") from error
        if not 0 < record.scale < math.inf:
            raise ValueError(f"step size = {record.scale}")
        for point in record.curve:
            for accuracy in (point.accuracy, point.last_accuracy):
                if not (0 <= accuracy <= 1 or (record.status == "diverged" and math.isnan(accuracy))):
                    raise ValueError(f"accuracy = {accuracy} in round {point.round}")
        return record


@cache
def _validator() -> TypeAdapter[RunOutcome]:
    return TypeAdapter(RunOutcome)


def with_seed(config: Config, seed: int) -> Config:
    """Return the same run with another seed."""
    return changed(config, {"seed": seed})


def with_scale(config: Config, scale: float) -> Config:
    """Return the same run with a given step size."""
    return changed(config, {"learning_rate.scale": scale})
