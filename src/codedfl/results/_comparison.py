"""What was compared, and what came of it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from codedfl._version import __version__
from codedfl.config import Config
from codedfl.files import plain
from codedfl.identity import NOT_IDENTITY, identity
from codedfl.models import Predictor
from codedfl.privacy import Guarantee
from codedfl.results._display import in_html, in_one_line
from codedfl.results._privacy import guarantee_of_run
from codedfl.setting import Setting
from codedfl.training import Evaluator, RunResult

if TYPE_CHECKING:
    from codedfl.experiment import Experiment


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


PATHS = (("data", "dataset"), ("data", "test_file"), ("fleet", "file"), ("fleet", "trace"))
"""Fields that name files."""


def provenance_of(result: RunResult, config: Config, evaluator: Evaluator) -> dict[str, Any]:
    """Return where the model of a run comes from, as a model file carries it.

    Nothing in it depends on when or on which machine the model was trained. Of paths it has the last part only, since models are
    passed on to others.

    Returns:
        ``codedfl`` (version), ``scheme``, ``dataset``, ``seed``, ``rounds``, ``status``, ``metric`` with ``score`` on
        ``test_samples`` test rows, ``configuration`` (fields that differ from their defaults) and ``configuration_id``, the
        fingerprint of all fields.
    """
    provenance: dict[str, Any] = plain(
        {
            "codedfl": __version__,
            "scheme": result.scheme.name,
            "dataset": _last_part(config.data.dataset),
            "seed": config.seed,
            "rounds": result.progress.ledger.rounds,
            "status": result.status,
            "metric": evaluator.metric,
            "score": result.final.score,
            "test_samples": len(evaluator.test_data[1]),
            "configuration": _changed(config),
            "configuration_id": identity(config),
        }
    )
    return provenance


def _changed(config: Config) -> dict[str, Any]:
    """Return the fields of a configuration that have other values than their defaults and can change a result."""
    excluded = {
        name: {key for key, info in type(section).model_fields.items() if info.json_schema_extra == NOT_IDENTITY}
        for name, section in config
        if isinstance(section, BaseModel)
    }
    given, default = (values.model_dump(mode="json", exclude=excluded) for values in (config, Config()))
    changed = _difference(given, default)
    for section, key in PATHS:
        if key in changed.get(section, {}):
            changed[section][key] = _last_part(changed[section][key])
    return changed


def _difference(given: dict[str, Any], default: dict[str, Any]) -> dict[str, Any]:
    """Return the items of nested dictionaries that differ from those of others."""
    return {
        key: _difference(value, default[key]) if isinstance(value, dict) and key in default else value
        for key, value in given.items()
        if key not in default or value != default[key]
    }


def _last_part(path: str) -> str:
    return Path(path).name if os.sep in path else path
