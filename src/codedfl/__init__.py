"""Coded federated learning for Python.

Federated learning waits for its slowest devices, or drops them and learns a biased model. In stochastic coded federated
learning every device uploads, once and before training, a random projection of its data plus noise; gradients that the server
computes on it make up for the devices that miss a deadline.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from codedfl._version import __version__
from codedfl.errors import InputError

if TYPE_CHECKING:
    from codedfl.experiment import Comparison, Config, Predictor, RunFolder, load_config, run, summarise, sweep
    from codedfl.schemes import SCHEMES, make_scheme

__all__ = [
    "SCHEMES",
    "Comparison",
    "Config",
    "InputError",
    "Predictor",
    "RunFolder",
    "__version__",
    "load_config",
    "make_scheme",
    "run",
    "summarise",
    "sweep",
]


def __getattr__(name: str) -> Any:
    """Import the public names on first use: scikit-learn and pandas take seconds, which ``codedfl --help`` should not."""
    if name in __all__:
        module = "codedfl.schemes" if name in ("SCHEMES", "make_scheme") else "codedfl.experiment"
        return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
