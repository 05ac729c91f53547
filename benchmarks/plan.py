"""Predictions of `codedfl plan` against simulation: time to within 0.5 points of the centralised accuracy, everything charged."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import Any

from common import read_options, report

from codedfl.config import Config, load_config
from codedfl.experiment import Experiment, build_experiment, run
from codedfl.planning import Forecast, Outcome, Promise, Target, make_plan, outcome_of
from codedfl.schemes import SCHEMES

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "digits": {
        "fleet.transmit_power_dbm": (15.0, 25.0),
        "learning_rate.tuning_share": 0.2,
        "training.total_time_s": 1000.0,
    },
    "mnist": {},
}
STRAGGLERS = (0.0, 0.3, 0.5)
"""Shares of devices that miss the deadline; 0 stands for the paper's own bandwidth."""
WITHIN = 0.5
TIMES_PREDICTED = 4.0
"""How long a scheme is simulated: so many times as long as it is predicted to take."""
FEWEST_ROUNDS = 40
EVALUATIONS = 400
QUICK = ("fedavg", "momentum", "ccfl", "fed3r")


def measure(config: Config, experiment: Experiment, forecast: Forecast) -> dict[str, Any]:
    """Simulate a scheme for long enough, and return the prediction next to what happened."""
    longest = config.training.total_time_s
    if forecast.time_s is not None:
        training = forecast.time_s - forecast.preparation_total_s
        longest = min(longest, max(TIMES_PREDICTED * training, FEWEST_ROUNDS * forecast.round_s, 1.0))
    changes = {"total_time_s": float(longest), "evaluations": EVALUATIONS}
    training_config = config.training.model_copy(update=changes)
    own = config.model_copy(update={"schemes": (forecast.scheme,), "training": training_config})
    comparison = run(own, experiment=Experiment(own, experiment.setting, experiment.feature_map, experiment.traces))
    promise = Promise(forecast.scheme, WITHIN, forecast.time_s, forecast.low_s, forecast.high_s)
    result = comparison[forecast.scheme]
    outcome = outcome_of(promise, result, comparison.evaluator)
    measured = outcome.measured_s
    ratio = forecast.time_s / measured if forecast.time_s is not None and measured is not None else None
    return {
        "scheme": forecast.scheme,
        "predicted_s": forecast.time_s,
        "low_s": forecast.low_s,
        "high_s": forecast.high_s,
        "measured_s": measured,
        "ratio": ratio,
        "covered": covered(outcome),
        "predicted_step": forecast.step_size_scale,
        "step": result.scale,
        "status": result.status,
    }


def covered(outcome: Outcome) -> bool:
    """Whether the outcome was announced: within the range, or never where no time or no upper end was given."""
    promise = outcome.promise
    if outcome.measured_s is None:
        return promise.high_s is None
    return promise.low_s is not None and outcome.in_interval


def main() -> None:
    options = read_options(
        __doc__ or "",
        ("--dataset", {"default": "digits", "choices": list(SETTINGS)}),
        ("--scheme", {"action": "append", "choices": list(SCHEMES), "help": "default: all"}),
        ("--seeds", {"type": int, "default": 3}),
        ("--noise-variance", {"type": float, "default": 0.25}),
        ("--skip-slower-than", {"type": float, "default": math.inf, "help": "seconds of preparation"}),
    )
    ratios, seeds = (STRAGGLERS[1:2], 1) if options.quick else (STRAGGLERS, options.seeds)
    schemes = options.scheme or (list(QUICK) if options.quick else list(SCHEMES))
    rows = []
    for seed in range(seeds):
        like: Experiment | None = None
        for ratio in ratios:
            given = {
                **SETTINGS[options.dataset],
                "data.dataset": options.dataset,
                "seed": seed,
                "schemes": schemes,
                "fleet.straggler_ratio": ratio,
                "coding.noise_variance": options.noise_variance,
            }
            config = load_config(overrides=given)
            like = build_experiment(config, like=like)
            for forecast in make_plan(config, Target(WITHIN), experiment=like).forecasts:
                if forecast.preparation_total_s <= options.skip_slower_than:
                    rows.append({"stragglers": ratio, "seed": seed, **measure(config, like, forecast)})
                    if not options.json:
                        print(".", end="", flush=True)
    if not options.json:
        print()
    ratios_found = [row["ratio"] for row in rows if row["ratio"] is not None]
    agreed = [row for row in rows if (row["predicted_s"] is None) == (row["measured_s"] is None)]
    logs = [abs(math.log(value)) for value in ratios_found]
    summary = {
        "cases": len(rows),
        "reaches_or_not_as_predicted": len(agreed) / len(rows),
        "median_ratio": statistics.median(ratios_found),
        "median_factor_off": math.exp(statistics.median(logs)),
        "covered": sum(row["covered"] for row in rows) / len(rows),
    }
    report(options, f"{options.dataset}: predicted and measured seconds to within {WITHIN} points", rows, summary)


if __name__ == "__main__":
    main()
