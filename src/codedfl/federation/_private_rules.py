"""What a federation can promise about its server, before anything starts: one epsilon for everything, or sums alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from codedfl._messages import shown_json
from codedfl.errors import InputError
from codedfl.schemes import SCHEMES, make_scheme
from codedfl.training import Scheme

if TYPE_CHECKING:
    from codedfl.federation._federation_config import FederationConfig

SUPPORTED_SCHEMES = tuple(name for name in SCHEMES if make_scheme(name).over_network)
"""The schemes that run over a network, besides those of plug-ins."""

PRIVATE_SCHEMES = tuple(name for name in SUPPORTED_SCHEMES if make_scheme(name).private)
"""Those of them that set their noise by one epsilon for everything that a device sends."""

LEAST_BOUND = 1e-60
"""Squares of smaller numbers, in products with others, are lost in double precision."""


def require_private(config: FederationConfig) -> None:
    """Refuse a private scheme without bounds on what one sample may change, and a target that the scheme cannot keep."""
    epsilon, scheme = f"privacy.epsilon = {config.privacy.epsilon:g}", f"scheme = {shown_json(config.scheme)}"
    regression = config.data.task == "regression"
    for name, value in (("bound", config.privacy.label_bound), ("center", config.privacy.label_center)):
        if value != 0 and not (regression and config.algorithm.private):
            raise InputError(
                f"privacy.label_{name} = {value:g} is for a regression with a private scheme ({', '.join(PRIVATE_SCHEMES)}):"
                " leave it out."
            )
    if not config.algorithm.private:
        if config.privacy.epsilon > 0:
            raise InputError(
                f"{epsilon} is not possible with {scheme}, which sets no noise by it: choose {' or '.join(PRIVATE_SCHEMES)},"
                " or let devices protect their uploads by privacy.epsilon in client.toml."
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


def require_maskable(config: FederationConfig) -> None:
    """Refuse masks for what they cannot hide, or for a sum over one device."""
    if not config.coding.sums_only:
        return
    if not _is_maskable(config.algorithm):
        maskable = ", ".join(name for name in SUPPORTED_SCHEMES if _is_maskable(make_scheme(name)))
        upload = f" and options.upload = {shown_json(config.options['upload'])}" if "upload" in config.options else ""
        raise InputError(
            f"coding.sums_only = true is not possible with scheme = {shown_json(config.scheme)}{upload},"
            f" {_no_masks(config.algorithm)}: choose one that uploads rows ({maskable}), or coding.sums_only = false."
        )
    if len(config.devices) < 2:
        raise InputError(
            f"coding.sums_only = true is not possible with devices = {shown_json(config.devices)}, as the sum over one device "
            "is its own data: name 2 or more, or choose coding.sums_only = false."
        )


def _is_maskable(scheme: Scheme) -> bool:
    """Return whether masks can hide all that a scheme uploads, and its server needs no more than the sum."""
    upload = scheme.upload
    return upload is not None and upload.has_rows and upload.can_be_summed and not scheme.private


def _no_masks(scheme: Scheme) -> str:
    """Return why masks cannot hide what a scheme uploads."""
    if scheme.upload is None:
        return "which has no upload"
    if not scheme.upload.can_be_summed:
        return "whose server needs more than the sum of the uploads"
    if scheme.upload.has_rows:
        return "whose updates have no masks, so that no noise could be shared"
    return f"as masks hide coded rows alone and no {scheme.upload.message}"
