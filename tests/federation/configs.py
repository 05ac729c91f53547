"""Configurations to start from, for tests."""

from __future__ import annotations

from typing import Any

from codedfl.federation._config_files import parse_federation
from codedfl.federation._federation_config import FederationConfig
from codedfl.federation._release_ledger import ReleaseLedger
from codedfl.privacy import gaussian_epsilon

REGRESSION = {"columns": ["age", "dose"], "target": ["effect"], "task": "regression"}
CLASSIFICATION = {"columns": ["age", "dose"], "target": ["ill"], "task": "classification", "classes": ["no", "yes"]}
CLIENT = {"name": "ward-1", "server": "192.0.2.7:9092", "data": "ward.csv"}


def federation(**values: Any) -> FederationConfig:
    return parse_federation({"devices": ["ward-1", "ward-2"], "data": REGRESSION} | values)


def total_epsilon(ledger: ReleaseLedger, delta: float = 1e-5) -> float | None:
    """Return the epsilon of all releases together; None if that of any release is unknown."""
    others, mu = ledger.other_epsilon(), ledger.gaussian_mu()
    return None if others is None else others + (gaussian_epsilon(mu, delta) if mu > 0 else 0.0)
