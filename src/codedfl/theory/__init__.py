"""Theory: predictions about a run (Sec. IV-A), exact where possible and bounds elsewhere.

`RoundLaw` holds all that the law of a round depends on. `round_variance` is exact for one local step; `device_bound`,
`server_bound` and `gap_bound` are the paper's, as printed and corrected; `limit_error` and `limit_point` say where
training ends; `verify` checks the formulas by Monte Carlo.
"""

from codedfl.theory._bounds import (
    Constants,
    GapBound,
    Reading,
    cross_moment,
    device_bound,
    gap_bound,
    largest_residual,
    measure_constants,
    noise_moment,
    projection_moment,
    sampling_moment,
    server_bound,
)
from codedfl.theory._limit import (
    LimitError,
    LimitPoint,
    arrival_limit_point,
    coded_limit_point,
    limit_error,
    limit_point,
)
from codedfl.theory._monte_carlo import Check, SimulatedRuns, simulate_round, simulate_runs, verify
from codedfl.theory._round import Knob, RoundLaw
from codedfl.theory._update import (
    RoundVariance,
    accumulated_descent,
    best_weight,
    device_drift,
    round_variance,
    server_drift,
)

__all__ = [
    "Check",
    "Constants",
    "GapBound",
    "Knob",
    "LimitError",
    "LimitPoint",
    "Reading",
    "RoundLaw",
    "RoundVariance",
    "SimulatedRuns",
    "accumulated_descent",
    "arrival_limit_point",
    "best_weight",
    "coded_limit_point",
    "cross_moment",
    "device_bound",
    "device_drift",
    "gap_bound",
    "largest_residual",
    "limit_error",
    "limit_point",
    "measure_constants",
    "noise_moment",
    "projection_moment",
    "round_variance",
    "sampling_moment",
    "server_bound",
    "server_drift",
    "simulate_round",
    "simulate_runs",
    "verify",
]
