"""What the members of a private federation must agree on, before anything starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from codedfl._messages import shown_json
from codedfl.errors import InputError

if TYPE_CHECKING:
    from codedfl.flower._federation_config import FederationConfig

PRIVATE_SCHEME = "dp-gd"
"""The scheme whose updates are private as well, so that one epsilon covers everything that a device sends."""

LEAST_BOUND = 1e-60
"""Squares of smaller numbers, in products with others, are lost in double precision."""


def require_private(config: FederationConfig) -> None:
    """Refuse a private scheme without bounds on what one sample may change, and a target that the scheme cannot keep."""
    epsilon = f"privacy.epsilon = {config.privacy.epsilon:g}"
    regression = config.data.task == "regression"
    for name, value in (("bound", config.privacy.label_bound), ("center", config.privacy.label_center)):
        if value != 0 and not (regression and config.scheme == PRIVATE_SCHEME):
            raise InputError(
                f'privacy.label_{name} = {value:g} is for a regression with scheme = "{PRIVATE_SCHEME}" alone: leave it out.'
            )
    if config.scheme != PRIVATE_SCHEME:
        if config.privacy.epsilon > 0:
            raise InputError(
                f"{epsilon} is not possible with scheme = {shown_json(config.scheme)}, whose updates have no noise: choose"
                f' scheme = "{PRIVATE_SCHEME}", or let devices protect their uploads by privacy.epsilon in client.toml.'
            )
        return
    if config.privacy.epsilon == 0:
        raise InputError(
            f"{epsilon} leaves the noise of {PRIVATE_SCHEME} open: set the epsilon that everything a device sends is to keep,"
            " for example 2."
        )
    if regression and config.privacy.label_bound == 0:
        raise InputError(
            f"privacy.label_bound = 0 leaves the targets of the regression unbounded, so that {epsilon} cannot be kept: give"
            " a bound on their size that is known without the data, or on their distance from privacy.label_center."
        )
    if config.clip_norm is None:
        raise InputError(
            f'coding.clip_norm = 0 leaves samples unbounded, so that scheme = "{PRIVATE_SCHEME}" cannot keep {epsilon}:'
            " set it to a norm that most samples have or stay below, such as that of the rows of a public sample."
        )
    for name, bound in (("coding.clip_norm", config.clip_norm), ("privacy.label_bound", config.label_norm)):
        if bound is not None and bound < LEAST_BOUND:
            raise InputError(f"{name} = {bound:g} is too small to compute with: give {LEAST_BOUND:g} or more.")
    if config.training.model_norm_bound > 0:
        raise InputError(
            f"training.model_norm_bound = {config.training.model_norm_bound:g} is not possible with scheme ="
            f' "{PRIVATE_SCHEME}", which has a ridge instead: set it to 0.'
        )
    if config.incentive.total_reward > 0:
        raise InputError(
            f'incentive.total_reward = {config.incentive.total_reward:g} is not possible with scheme = "{PRIVATE_SCHEME}",'
            " whose noise is the same for all devices: set it to 0."
        )


def private_options(resolved: dict[str, Any]) -> dict[str, Any]:
    """Refuse what private descent cannot do over a network, and let it begin with the mean."""
    if resolved["sampling_rate"] != 1:
        raise InputError(
            f"options.sampling_rate = {resolved['sampling_rate']} is not possible over a network, where updates are on all rows:"
            " leave it out."
        )
    if resolved["curvature"] == "second-moments":
        raise InputError(
            'options.curvature = "second-moments" is not possible over a network: choose "mean" or "none".'
        )
    return resolved | ({"curvature": "mean"} if resolved["curvature"] == "auto" else {})
