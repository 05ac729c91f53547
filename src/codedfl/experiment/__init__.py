"""Experiments: from a configuration to a comparison of schemes and its results.

Example:
    >>> from codedfl.experiment import load_config, run
    >>> config = load_config(overrides=[("schemes", ["fedavg"]), ("training.rounds", 5), ("learning_rate.scale", 0.5)])
    >>> comparison = run(config)
    >>> comparison["fedavg"].status
    'completed'
"""

from codedfl.config import Config, load_config, parse_config, parse_override, to_toml
from codedfl.experiment._audit import Audit, run_audit, write_audit
from codedfl.experiment._build import Experiment, build_experiment, family_key
from codedfl.experiment._comparison import Comparison
from codedfl.experiment._empirical import EmpiricalAudit, SchemeAudit, run_empirical_audit, write_empirical_audit
from codedfl.experiment._notes import notes_on
from codedfl.experiment._plain import plain
from codedfl.experiment._predictor import Predictor
from codedfl.experiment._privacy_statement import Covers, privacy_statement, releases_of
from codedfl.experiment._privacy_summary import privacy_of, upload_privacy
from codedfl.experiment._run_folder import RunFolder, curves_csv
from codedfl.experiment._runner import rounds_of, run, sweep, tune
from codedfl.experiment._summary import SHARES, summarise, time_to_share
from codedfl.experiment._theory import TheoryReport, run_theory
from codedfl.experiment._theory_files import write_theory
from codedfl.experiment._traces import record_trace

__all__ = [
    "SHARES",
    "Audit",
    "Comparison",
    "Config",
    "Covers",
    "EmpiricalAudit",
    "Experiment",
    "Predictor",
    "RunFolder",
    "SchemeAudit",
    "TheoryReport",
    "build_experiment",
    "curves_csv",
    "family_key",
    "load_config",
    "notes_on",
    "parse_config",
    "parse_override",
    "plain",
    "privacy_of",
    "privacy_statement",
    "record_trace",
    "releases_of",
    "rounds_of",
    "run",
    "run_audit",
    "run_empirical_audit",
    "run_theory",
    "summarise",
    "sweep",
    "time_to_share",
    "to_toml",
    "tune",
    "upload_privacy",
    "write_audit",
    "write_empirical_audit",
    "write_theory",
]
