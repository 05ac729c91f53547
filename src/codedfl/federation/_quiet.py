"""Flower without calls home: its programs report usage and look for updates unless told not to before they start."""

from __future__ import annotations

import os
from pathlib import Path

QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}


def be_quiet() -> None:
    """Set the environment of this process and of those that it starts."""
    os.environ.update(QUIET)


def flower_environment(home: Path, programs: Path) -> dict[str, str]:
    """Return the environment for Flower's programs.

    Args:
        home: folder for Flower's own files.
        programs: folder with Flower's programs, which start each other by name.
    """
    path = os.pathsep.join([str(programs), os.environ.get("PATH", os.defpath)])
    return {**os.environ, **QUIET, "FLWR_HOME": str(home), "PATH": path}
