"""Where a model comes from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from codedfl._version import __version__
from codedfl.config import Config
from codedfl.data import is_plugin_dataset
from codedfl.experiment._fleet import names_plugin
from codedfl.files import plain
from codedfl.identity import NOT_IDENTITY, identity
from codedfl.plugins import Kind, find_plugin
from codedfl.training import Evaluator, RunResult

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


def plugin_versions(config: Config) -> dict[str, str]:
    """Return package, version and source of every plug-in of a configuration, by kind and name.

    Example:
        >>> plugin_versions(Config())
        {}
    """
    used: list[tuple[Kind, str]] = [("scheme", name) for name in config.schemes]
    if is_plugin_dataset(config.data.dataset):
        used.append(("dataset", config.data.dataset))
    if names_plugin(config.fleet.file):
        used.append(("fleet", config.fleet.file))
    found = {f"{kind} {name}": find_plugin(kind, name) for kind, name in used}
    return {name: plugin.fingerprint() for name, plugin in found.items() if plugin is not None}


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
