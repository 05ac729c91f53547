"""A comparison of schemes and its results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from codedfl.config import Config
from codedfl.experiment._build import Experiment
from codedfl.experiment._plain import plain
from codedfl.experiment._predictor import Predictor
from codedfl.experiment._privacy_statement import privacy_statement
from codedfl.training import Evaluator, RunResult, Setting


@dataclass(frozen=True)
class Comparison:
    """Schemes trained in the same setting.

    Args:
        experiment: configuration, data, fleet and code.
        evaluator: the evaluator of the models, with the centralised reference.
        results: one per scheme that ran, in the order of the configuration.
        wall_time_s: real time in total, without earlier parts of a resumed run.
        remarks: events during the run that a reader should know about.
    """

    experiment: Experiment
    evaluator: Evaluator
    results: tuple[RunResult, ...]
    wall_time_s: float
    remarks: tuple[str, ...] = ()

    @property
    def config(self) -> Config:
        """The configuration."""
        return self.experiment.config

    @property
    def setting(self) -> Setting:
        """Data, fleet, channel and code."""
        return self.experiment.setting

    @property
    def interrupted(self) -> bool:
        """Whether the user stopped the comparison early."""
        return len(self.results) < len(self.config.schemes) or any(
            result.status == "interrupted" for result in self.results
        )

    def __getitem__(self, scheme: str) -> RunResult:
        """Return the run of a scheme by its name."""
        results = {result.scheme.name: result for result in self.results}
        if scheme not in results:
            raise KeyError(f"{scheme!r} is not one of the schemes that ran: {', '.join(results) or 'none'}")
        return results[scheme]

    def predictor(self, scheme: str) -> Predictor:
        """Return the model of a scheme as a predictor on raw inputs."""
        federation = self.setting.federation
        return Predictor(
            self.experiment.feature_map,
            self[scheme].model,
            federation.task,
            federation.target_names,
            plain(self.privacy(scheme)),
        )

    def privacy(self, scheme: str) -> dict[str, Any]:
        """Return the privacy of everything that devices sent in the run of a scheme; see `privacy_statement`."""
        return privacy_statement(self[scheme], self.config, self.experiment.feature_map)
