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
    from codedfl.estimators import CodedClassifier, CodedRegressor
    from codedfl.experiment import Comparison, Config, RunFolder, load_config, run, summarise, sweep
    from codedfl.models import Predictor
    from codedfl.schemes import SCHEMES, make_scheme

__all__ = [
    "SCHEMES",
    "CodedClassifier",
    "CodedRegressor",
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

_MODULES = {
    "SCHEMES": "codedfl.schemes",
    "make_scheme": "codedfl.schemes",
    "Predictor": "codedfl.models",
    "CodedClassifier": "codedfl.estimators",
    "CodedRegressor": "codedfl.estimators",
}
"""Where names come from that are not from ``codedfl.experiment``."""


def __getattr__(name: str) -> Any:
    """Import the public names on first use: scikit-learn and pandas take seconds, which ``codedfl --help`` should not."""
    if name in __all__:
        return getattr(importlib.import_module(_MODULES.get(name, "codedfl.experiment")), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
