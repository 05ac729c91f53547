"""What figures measure in an experiment besides training."""

from __future__ import annotations

from codedfl.experiment import Experiment
from codedfl.paper.tables import Row
from codedfl.privacy import attack_error

KNOWN_RATIOS = (0.05, 0.25, 0.5, 0.75, 0.95)
WITH_NOISE, WITHOUT_NOISE = "with noise", "no noise"


def measure_attack(experiment: Experiment) -> list[Row]:
    """Attack the coded data of the first device, knowing several shares of its samples; errors as in `AttackResult`."""
    setting, config = experiment.setting, experiment.config
    features, noise = setting.rows(0).features, float(setting.code.noise_variance[0])
    rows: list[Row] = []
    for ratio in KNOWN_RATIOS:
        found = attack_error(features, ratio, setting.code.coded_samples, noise, setting.streams.at("attack"))
        rows.append(
            {
                "panel": config.data.dataset,
                "series": WITH_NOISE if noise else WITHOUT_NOISE,
                "x": ratio,
                "seed": config.seed,
                "feasible": found.feasible_error,
                "oracle": found.oracle_error,
                "baseline": found.baseline_error,
                "feasible_control": found.feasible_control_error,
                "oracle_control": found.oracle_control_error,
            }
        )
    return rows
