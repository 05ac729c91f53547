"""What figures measure in an experiment besides training."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from codedfl.experiment import Experiment, rounds_of
from codedfl.paper._tables import Row
from codedfl.privacy import attack_error
from codedfl.schemes import make_scheme
from codedfl.theory import LimitPoint, arrival_limit_point, coded_limit_point, limit_point
from codedfl.training import Evaluator, PreparedScheme

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


def _scfl_limit(prepared: PreparedScheme) -> LimitPoint:
    (coded,) = prepared.coded
    return limit_point(prepared.setting.gram, coded)


def _dp_cfl_limit(prepared: PreparedScheme) -> LimitPoint:
    (coded,) = prepared.coded
    return coded_limit_point(prepared.setting.gram, coded)


def _fedavg_limit(prepared: PreparedScheme) -> LimitPoint:
    setting = prepared.setting
    parts = [setting.rows(device) for device in range(setting.federation.devices)]
    return arrival_limit_point(setting.gram, parts, prepared.device.arrivals.probability)


LIMITS: Mapping[str, Callable[[PreparedScheme], LimitPoint]] = {
    "scfl": _scfl_limit,
    "dp-cfl": _dp_cfl_limit,
    "fedavg": _fedavg_limit,
}


def measure_limit(experiment: Experiment) -> list[Row]:
    """Solve for where a scheme ends with one local step, in one row; its loss is above the optimum's by a share of that."""
    setting, config = experiment.setting, experiment.config
    (name,) = config.schemes
    prepared = make_scheme(name, config.options.get(name)).prepare(setting)
    limit, evaluator = LIMITS[name](prepared), Evaluator(setting)
    (accuracy,) = evaluator.scores(limit.model)
    return [
        {
            "panel": config.data.dataset,
            "seed": config.seed,
            "limit_accuracy": accuracy,
            "guessing": 1 / setting.federation.outputs,
            "excess_loss": limit.gap / setting.gram.loss(setting.gram.optimum),
            "least_eigenvalue": limit.least_eigenvalue,
            "smoothness": setting.gram.smoothness,
            "steps": setting.local_steps * rounds_of(config, prepared.scheme, prepared.device),
        }
    ]
