"""Experiments: from a configuration to a comparison of schemes, with everything that it leaves behind.

Example:
    >>> from codedfl.experiment import load_config, run
    >>> config = load_config(overrides=[("schemes", ["fedavg"]), ("training.rounds", 5), ("learning_rate.scale", 0.5)])
    >>> comparison = run(config)
    >>> comparison["fedavg"].status
    'completed'
"""

from codedfl.config._files import load_config, parse_config, parse_override, to_toml
from codedfl.config._schema import Config
from codedfl.experiment._build import Experiment, build_experiment
from codedfl.experiment._comparison import Comparison
from codedfl.experiment._notes import notes_on
from codedfl.experiment._predictor import Predictor
from codedfl.experiment._progress import Observer
from codedfl.experiment._run import run
from codedfl.experiment._run_folder import RunFolder, curves_csv
from codedfl.experiment._summary import summarise
from codedfl.experiment._sweep import sweep, tune

__all__ = [
    "Comparison",
    "Config",
    "Experiment",
    "Observer",
    "Predictor",
    "RunFolder",
    "build_experiment",
    "curves_csv",
    "load_config",
    "notes_on",
    "parse_config",
    "parse_override",
    "run",
    "summarise",
    "sweep",
    "to_toml",
    "tune",
]
