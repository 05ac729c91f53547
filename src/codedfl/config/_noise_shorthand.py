"""A shorthand for noise that comes from an incentive mechanism."""

from __future__ import annotations

from typing import Any

from codedfl.errors import InputError

SHORTHANDS = {"contract": "budget", "stackelberg": "reward"}
"""The mechanisms and what their total reward is called."""


def expand_noise(values: Any) -> Any:
    """Turn ``coding.noise = { contract = { budget = 100 } }`` into the ``incentive`` section that it stands for.

    The game is ``{ stackelberg = { reward = 100 } }``; both take ``sensitivity`` as well.

    Raises:
        InputError: for another mechanism or key, or next to an ``incentive`` section.

    Example:
        >>> expand_noise({"coding": {"noise": {"contract": {"budget": 100}}}})
        {'coding': {}, 'incentive': {'mechanism': 'contract', 'total_reward': 100}}
    """
    coding = values.get("coding") if isinstance(values, dict) else None
    if not isinstance(coding, dict) or "noise" not in coding:
        return values
    noise = coding["noise"]
    name = next(iter(noise), None) if isinstance(noise, dict) and len(noise) == 1 else None
    if name not in SHORTHANDS or not isinstance(noise[name], dict):
        raise InputError(
            "coding.noise must be { contract = { budget = ... } } or { stackelberg = { reward = ... } }; for plain noise set"
            " coding.noise_variance."
        )
    if "incentive" in values:
        raise InputError("coding.noise and the section incentive say the same thing: give one of them.")
    amount, details = SHORTHANDS[name], dict(noise[name])
    if amount not in details or not set(details) <= {amount, "sensitivity"}:
        raise InputError(f"coding.noise.{name} takes {amount}, which it needs, and sensitivity: give no other keys.")
    incentive = {"mechanism": name, "total_reward": details.pop(amount), **details}
    rest = {key: value for key, value in coding.items() if key != "noise"}
    return {**values, "coding": rest, "incentive": incentive}
