"""The identity of a configuration: a hash of all that enters a result."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

from pydantic import BaseModel

from codedfl.config._schema import Config


def fingerprint(config: Config) -> str:
    """Hash all fields of a configuration but those marked in the schema as entering no result.

    Data files enter by name, not by content.

    Example:
        >>> config = Config()
        >>> fingerprint(config) == fingerprint(Config(training={"workers": 3}))
        True
        >>> fingerprint(config) == fingerprint(Config(training={"local_steps": 3}))
        False
    """
    return sha256(json.dumps(_entering(config), sort_keys=True).encode()).hexdigest()


def _entering(section: BaseModel) -> dict[str, Any]:
    plain = section.model_dump(mode="json")
    fields = type(section).model_fields
    return {
        name: _entering(value) if isinstance(value := getattr(section, name), BaseModel) else plain[name]
        for name, field in fields.items()
        if not (isinstance(field.json_schema_extra, dict) and field.json_schema_extra.get("enters_results") is False)
    }
