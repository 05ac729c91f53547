"""Configurations to start from, for tests."""

from __future__ import annotations

from typing import Any

from codedfl.flower._config_files import parse_federation
from codedfl.flower._federation_config import FederationConfig

REGRESSION = {"columns": ["age", "dose"], "target": ["effect"], "task": "regression"}
CLASSIFICATION = {"columns": ["age", "dose"], "target": ["ill"], "task": "classification", "classes": ["no", "yes"]}
CLIENT = {"name": "ward-1", "server": "192.0.2.7:9092", "data": "ward.csv"}


def federation(**values: Any) -> FederationConfig:
    return parse_federation({"devices": ["ward-1", "ward-2"], "data": REGRESSION} | values)
