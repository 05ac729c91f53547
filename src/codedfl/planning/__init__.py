"""Planning: which scheme reaches a target first, predicted from the training data, the fleet and the code alone.

Example:
    >>> from codedfl.config import load_config
    >>> from codedfl.planning import Target, make_plan
    >>> plan = make_plan(load_config(overrides={"schemes": ["momentum", "codedfedl"]}), Target(time_s=60.0))
    >>> plan.chosen, plan["codedfedl"].reason.startswith("preparation alone takes")
    ('momentum', True)
"""

from codedfl.planning._forecast import Forecast, Target
from codedfl.planning._plan import Outcome, Plan, Promise, make_plan, outcome_of, plan_to_toml, read_promise

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
