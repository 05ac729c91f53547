"""A comparison of schemes and its results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from codedfl.config import Config
from codedfl.experiment._build import Experiment
from codedfl.experiment._display import in_html, in_one_line
from codedfl.experiment._privacy_statement import guarantee_of_run
from codedfl.experiment._provenance import provenance_of
from codedfl.files import plain
from codedfl.models import Predictor
from codedfl.privacy import Guarantee
from codedfl.setting import Setting
from codedfl.training import Evaluator, RunResult


@dataclass(frozen=True, repr=False)
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

    def __repr__(self) -> str:
        return in_one_line(self)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: a table and the learning curves."""
        return in_html(self)

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
        """Return the model of a scheme as a predictor on raw inputs; `Predictor.save` keeps it."""
        federation, data, result = self.setting.federation, self.config.data, self[scheme]
        preprocessing = self.experiment.preprocessing
        predictor = Predictor(
            self.experiment.feature_map,
            result.model,
            federation.task,
            federation.target_names,
            plain(self.privacy(scheme)),
            preprocessing=preprocessing,
            input_names=preprocessing.input_names if preprocessing else (),
            target_columns=data.target,
            device_column=data.device_column,
            logits=result.prepared.loss.logits,
            provenance=provenance_of(result, self.config, self.evaluator),
        )
        center = self.config.privacy.label_center
        return predictor.shifted(center) if center != 0 else predictor

    def guarantee(self, scheme: str) -> Guarantee:
        """Return what may be claimed about everything that devices sent in the run of a scheme."""
        experiment = self.experiment
        return guarantee_of_run(self[scheme], self.config, experiment.feature_map, experiment.preprocessing)

    def privacy(self, scheme: str) -> dict[str, Any]:
        """Return the guarantee of a scheme for reports; see `codedfl.privacy.Guarantee`."""
        return self.guarantee(scheme).as_dict()
