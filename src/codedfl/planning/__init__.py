"""Planning: which scheme reaches a target first, predicted from the training data, the fleet and the code alone.

Example:
    >>> from codedfl.config import load_config
    >>> from codedfl.planning import Target, make_plan
    >>> plan = make_plan(load_config(overrides={"schemes": ["momentum", "codedfedl"]}), Target(time_s=60.0))
    >>> plan.chosen, plan["codedfedl"].reason.startswith("preparation alone takes")
    ('momentum', True)
"""

from codedfl.planning._files import Outcome, Promise, outcome_of, plan_to_toml, read_promise
from codedfl.planning._forecast import Forecast
from codedfl.planning._plan import Plan, make_plan
from codedfl.planning._target import Target

__all__ = [
    "Forecast",
    "Outcome",
    "Plan",
    "Promise",
    "Target",
    "make_plan",
    "outcome_of",
    "plan_to_toml",
    "read_promise",
]
