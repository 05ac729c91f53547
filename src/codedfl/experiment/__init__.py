"""Experiments: from a configuration to a comparison of schemes and its results.

Example:
    >>> from codedfl.experiment import load_config, run
    >>> config = load_config(overrides=[("schemes", ["fedavg"]), ("training.rounds", 5), ("learning_rate.scale", 0.5)])
    >>> comparison = run(config)
    >>> comparison["fedavg"].status
    'completed'
"""

from codedfl.config import Config, load_config, parse_config, parse_override, to_toml
from codedfl.experiment._build import Experiment, build_experiment, family_key
from codedfl.experiment._comparison import Comparison
from codedfl.experiment._notes import notes_on
from codedfl.experiment._predictor import Predictor
from codedfl.experiment._run_folder import RunFolder, curves_csv
from codedfl.experiment._runner import rounds_of, run, sweep, tune
from codedfl.experiment._summary import summarise
from codedfl.experiment._traces import record_trace

__all__ = [
    "Comparison",
    "Config",
    "Experiment",
    "Predictor",
    "RunFolder",
    "build_experiment",
    "curves_csv",
    "family_key",
    "load_config",
    "notes_on",
    "parse_config",
    "parse_override",
    "record_trace",
    "rounds_of",
    "run",
    "summarise",
    "sweep",
    "to_toml",
    "tune",
]
