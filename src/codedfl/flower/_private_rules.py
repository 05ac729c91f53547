"""What the members of a private federation must agree on, before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from codedfl._messages import shown_json
from codedfl.errors import InputError

if TYPE_CHECKING:
    from codedfl.flower._federation_config import FederationConfig

LEAST_BOUND = 1e-60
"""Squares of smaller numbers, in products with others, are lost in double precision."""


def require_private(config: FederationConfig, private: Sequence[str]) -> None:
    """Refuse a private scheme without bounds on what one sample may change, and a target that the scheme cannot keep.

    Args:
        config: the federation.
        private: names of the schemes that set their noise by a target.
    """
    epsilon, scheme = f"privacy.epsilon = {config.privacy.epsilon:g}", f"scheme = {shown_json(config.scheme)}"
    regression = config.data.task == "regression"
    for name, value in (("bound", config.privacy.label_bound), ("center", config.privacy.label_center)):
        if value != 0 and not (regression and config.algorithm.private):
            raise InputError(
                f"privacy.label_{name} = {value:g} is for a regression with a private scheme ({', '.join(private)}): leave it"
                " out."
            )
    if not config.algorithm.private:
        if config.privacy.epsilon > 0:
            raise InputError(
                f"{epsilon} is not possible with {scheme}, which sets no noise by it: choose {' or '.join(private)}, or let"
                " devices protect their uploads by privacy.epsilon in client.toml."
            )
        return
    if config.privacy.epsilon == 0:
        raise InputError(
            f"{epsilon} leaves the noise of {config.scheme} open: set the epsilon that everything a device sends is to keep,"
            " for example 2."
        )
    if regression and config.privacy.label_bound == 0:
        raise InputError(
            f"privacy.label_bound = 0 leaves the targets of the regression unbounded, so that {epsilon} cannot be kept: give"
            " a bound on their size that is known without the data, or on their distance from privacy.label_center."
        )
    if config.clip_norm is None:
        raise InputError(
            f"coding.clip_norm = 0 leaves samples unbounded, so that {scheme} cannot keep {epsilon}:"
            " set it to a norm that most samples have or stay below, such as that of the rows of a public sample."
        )
    for name, bound in (("coding.clip_norm", config.clip_norm), ("privacy.label_bound", config.label_norm)):
        if bound is not None and bound < LEAST_BOUND:
            raise InputError(f"{name} = {bound:g} is too small to compute with: give {LEAST_BOUND:g} or more.")
    if config.training.model_norm_bound > 0:
        raise InputError(
            f"training.model_norm_bound = {config.training.model_norm_bound:g} is not possible with {scheme}, which has a ridge"
            " instead: set it to 0."
        )
    if config.incentive.total_reward > 0:
        raise InputError(
            f"incentive.total_reward = {config.incentive.total_reward:g} is not possible with {scheme}, whose noise is the same"
            " for all devices: set it to 0."
        )
