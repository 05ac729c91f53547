"""Experiments: from a configuration to a comparison of schemes, with everything that it leaves behind.

Example:
    >>> from codedfl.experiment import load_config, run
    >>> config = load_config(overrides=[("schemes", ["fedavg"]), ("training.rounds", 5), ("learning_rate.scale", 0.5)])
    >>> comparison = run(config)
    >>> comparison["fedavg"].status
    'completed'
"""

from codedfl.experiment.build import Experiment, build_experiment
from codedfl.experiment.comparison import Comparison, Outcome
from codedfl.experiment.config import Config
from codedfl.experiment.config_files import load_config, parse_config, parse_override, to_toml
from codedfl.experiment.folder import RunFolder, curves_csv
from codedfl.experiment.observer import Observer
from codedfl.experiment.predictor import Predictor
from codedfl.experiment.run import run
from codedfl.experiment.summary import summarise
from codedfl.experiment.sweep import sweep, tune

__all__ = [
    "Comparison",
    "Config",
    "Experiment",
    "Observer",
    "Outcome",
    "Predictor",
    "RunFolder",
    "build_experiment",
    "curves_csv",
    "load_config",
    "parse_config",
    "parse_override",
    "run",
    "summarise",
    "sweep",
    "to_toml",
    "tune",
]
