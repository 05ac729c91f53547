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
from codedfl.experiment._family import Pace, PerRunCallback
from codedfl.experiment._grid import Point, grid_points, parse_axes, short_names
from codedfl.experiment._jobs import rounds_of
from codedfl.experiment._run_folder import RunFolder, curves_csv, record_trace
from codedfl.experiment._runner import (
    create_seed_folders,
    reopen_seed_folders,
    run,
    run_seeds,
    seed_configs,
    sweep,
    tune,
)
from codedfl.experiment._sweep_folder import SweepFolder
from codedfl.results import (
    SHARES,
    Comparison,
    Difference,
    Evidence,
    SeedRuns,
    SweepResults,
    Verdict,
    best_schemes,
    evidence_of,
    guarantee_of_run,
    notes_on,
    over_seeds,
    privacy_of,
    releases_of,
    summarise,
    time_to_share,
    upload_privacy,
    verdict,
)

__all__ = [
    "SHARES",
    "Comparison",
    "Config",
    "Difference",
    "Evidence",
    "Experiment",
    "Pace",
    "PerRunCallback",
    "Point",
    "RunFolder",
    "SeedRuns",
    "SweepFolder",
    "SweepResults",
    "Verdict",
    "best_schemes",
    "build_experiment",
    "create_seed_folders",
    "curves_csv",
    "evidence_of",
    "family_key",
    "grid_points",
    "guarantee_of_run",
    "load_config",
    "notes_on",
    "over_seeds",
    "parse_axes",
    "parse_config",
    "parse_override",
    "privacy_of",
    "record_trace",
    "releases_of",
    "reopen_seed_folders",
    "rounds_of",
    "run",
    "run_seeds",
    "seed_configs",
    "short_names",
    "summarise",
    "sweep",
    "time_to_share",
    "to_toml",
    "tune",
    "upload_privacy",
    "verdict",
]
