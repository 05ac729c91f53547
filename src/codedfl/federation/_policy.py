"""What a device agrees to: the noise that it adds, what its upload costs in privacy, and what it refuses to send."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from codedfl._messages import listing, shown
from codedfl.errors import InputError
from codedfl.federation._client_config import ClientConfig, ClientPolicy
from codedfl.federation._federation_config import FederationConfig
from codedfl.federation._private_update import require_as_agreed
from codedfl.federation._release_ledger import ReleaseLedger
from codedfl.incentive import Menu
from codedfl.privacy import epsilon_of, mi_dp_bits, noise_variance_for_mi_dp
from codedfl.uploads import AgreedNoise, Upload

MOST_VARIANCE = 1e30
"""Bounded as in the configuration, so that draws and their squares stay within single precision."""

_SAME = 1e-9
"""An epsilon solved for and computed back differs by less than this, relatively."""


@dataclass(frozen=True)
class NoiseLevel:
    """The noise that a device adds to its upload.

    Args:
        noise_variance: ``sigma_i^2``, in every number about features.
        label_noise_variance: ``sigma_Y^2``, in every number about labels.
        item: index in the menu of the contract item that the device picked; None if it picked none.
    """

    noise_variance: float
    label_noise_variance: float
    item: int | None = None


@dataclass(frozen=True)
class UploadRequest:
    """What a device is about to upload.

    Args:
        key: identity of the upload.
        coded_rows: ``c``, also of a factor; 0 for what is not coded.
        noise: what the device adds.
        epsilon: worst-case privacy loss; None if it is unknown or unbounded.
        delta: probability with which that may fail.
        labels: whether it tells about labels.
        agreed: whether its noise is what all devices agreed on, so that its epsilon composes with others; see
            `codedfl.federation._private_update.check_private_release`.
        exact: what the server learns exactly, if no noise is possible; otherwise empty.
    """

    key: str
    coded_rows: int
    noise: NoiseLevel
    epsilon: float | None
    delta: float = 1e-5
    labels: bool = True
    agreed: bool = False
    exact: str = ""


def upload_request(
    key: str, client: ClientConfig, federation: FederationConfig, noise: NoiseLevel, *, samples: int
) -> UploadRequest:
    """Describe the upload of a device for `check_upload`."""
    upload, delta = federation.algorithm.upload, client.privacy.delta
    assert upload is not None
    return UploadRequest(
        key,
        upload.coded_rows(federation.terms),
        noise,
        epsilon_of_upload(federation, noise, samples=samples, delta=delta),
        delta,
        labels=upload.tells_of_labels,
        agreed=agreed_noise(federation) is not None,
        exact="" if upload.can_have_noise else upload.message,
    )


def check_prescription(policy: ClientPolicy, federation: FederationConfig, requested: str) -> None:
    """Refuse a server with another prescription, and columns that the policy does not allow.

    Args:
        policy: what the device allows.
        federation: the device's own copy of ``federation.toml``.
        requested: the prescription that the server follows.

    Raises:
        InputError: saying which, and what to do.
    """
    if requested != federation.prescription():
        raise InputError(
            f"prescription = {shown(requested, 24)} of the server is not that of this device's federation.toml, "
            f"{shown(federation.prescription(), 24)}: compare the two files, and use the same one."
        )
    _require_allowed("data.columns", federation.data.columns, "policy.features", policy.features)
    _require_allowed("data.target", federation.data.target, "policy.labels", policy.labels)


def _require_allowed(field: str, asked: Sequence[str], rule: str, allowed: Sequence[str]) -> None:
    surplus = [name for name in asked if name not in allowed]
    if allowed and surplus:
        raise InputError(
            f"{field} asks for {listing(surplus)}, which {rule} of client.toml does not allow: add it there, or leave this "
            "federation."
        )


def check_upload(policy: ClientPolicy, request: UploadRequest, ledger: ReleaseLedger, *, stored: bool) -> None:
    """Refuse an upload that the policy does not allow, before it is drawn.

    Sending an upload again that is stored and in the ledger reveals nothing new, so no rule applies. One that is in the ledger
    but stored no more would be drawn anew, and counts.

    Args:
        policy: what the device allows.
        request: what is asked for.
        ledger: what was released before.
        stored: whether the vault holds this upload.

    Raises:
        InputError: naming the rule, the value and what to do.
    """
    uploads, noise = ledger.uploads(), request.noise
    if stored and request.key in uploads:
        return
    for name, told, value, least in (
        ("noise_variance", True, noise.noise_variance, policy.least_noise_variance),
        ("label_noise_variance", request.labels, noise.label_noise_variance, policy.least_label_noise_variance),
    ):
        if told and value < least:
            fix = f"set privacy.{name} to {least} or more there"
            if request.agreed or request.exact:
                fix = "leave this federation"
            raise InputError(
                f"{name} = {value} is below policy.least_{name} = {least} of client.toml{_exactly(request)}: {fix}, or lower the"
                " limit."
            )
    if request.coded_rows > policy.most_coded_rows:
        raise InputError(
            f"coding.coded_samples = {request.coded_rows} is above policy.most_coded_rows = {policy.most_coded_rows} of "
            "client.toml: ask for fewer coded samples, or raise the limit."
        )
    if len(uploads) >= policy.most_uploads:
        raise InputError(
            f"this upload would be number {len(uploads) + 1} in the ledger, above policy.most_uploads = {policy.most_uploads} of "
            "client.toml: raise the limit, knowing that every further upload of the same data reveals more of it."
        )
    if policy.largest_epsilon > 0 and not request.agreed:
        _check_epsilon(policy.largest_epsilon, request, ledger.upload_epsilon(request.delta))


def _exactly(request: UploadRequest) -> str:
    return f", as the server learns {request.exact} of this device" if request.exact else ""


def _check_epsilon(largest: float, request: UploadRequest, before: float | None) -> None:
    rule, epsilon = f"policy.largest_epsilon = {largest:g} of client.toml", request.epsilon
    if request.exact:
        raise InputError(
            f"epsilon of this upload has no bound{_exactly(request)}, which {rule} does not allow: leave this federation, or set"
            " the limit to 0."
        )
    if epsilon is None:
        raise InputError(
            f"epsilon of this upload is unknown, which {rule} does not allow: set coding.clip_norm, and noise on features and "
            "labels, in a classification, or set the limit to 0."
        )
    if before is None:
        raise InputError(
            f"epsilon of an earlier upload in the ledger is unknown, which {rule} does not allow: set the limit to 0 to upload "
            "all the same."
        )
    total, left = before + epsilon, largest - before
    if total > largest * (1 + _SAME):
        earlier = f" ({before:.6g} by earlier uploads)" if before else ""
        fix = f"set privacy.epsilon to {left:.6g} or less, or raise the limit" if left > 0 else "raise the limit"
        raise InputError(f"epsilon = {total:.6g}{earlier} is above {rule}: {fix}.")


def check_update(policy: ClientPolicy, ledger: ReleaseLedger) -> None:
    """Refuse an update beyond the number that the policy allows over the lifetime of the ledger.

    Raises:
        InputError: naming the rule, the value and what to do.
    """
    if ledger.updates() >= policy.most_rounds:
        raise InputError(
            f"this update would be number {ledger.updates() + 1} in the ledger, above policy.most_rounds = {policy.most_rounds} "
            "of client.toml: raise the limit, or leave this federation."
        )


def check_batch(policy: ClientPolicy, batch_size: int, samples: int) -> None:
    """Refuse an update on so few rows that it shows what single ones are like.

    Raises:
        InputError: naming the rule, the value and what to do.
    """
    least = min(policy.least_batch, samples)
    if batch_size < least:
        raise InputError(
            f"batch_size = {batch_size} is below policy.least_batch = {policy.least_batch} of client.toml: give the round more"
            " time by training.deadline_s, or lower the limit."
        )


def epsilon_of_upload(
    federation: FederationConfig, noise: NoiseLevel, *, samples: int, delta: float = 1e-5
) -> float | None:
    """Return the worst-case epsilon of a device's upload at ``delta``, for one sample more or less, features and labels together.

    It is that of the upload alone, seen by itself: where the server sees only the sum over devices, the noise of the others is
    not counted, since they need not be honest. The updates sent during training leak in addition.

    Args:
        federation: the scheme and its code.
        noise: what the device adds.
        samples: rows of the device; a sketch of some of them is more sensitive than one of all.
        delta: probability with which the bound may fail.

    Returns:
        Epsilon in nats; 0 for a scheme without upload; None if there is no bound: samples are not clipped, features or labels
        have no noise, or the labels of a regression have no norm that is known without the data.
    """
    upload = federation.algorithm.upload
    if upload is None:
        return 0.0
    agreed = agreed_noise(federation)
    if agreed is not None:
        return epsilon_of((agreed.mechanism,), delta)
    epsilon = upload.epsilon(federation.terms, noise.noise_variance, noise.label_noise_variance, samples, delta)
    return epsilon if math.isfinite(epsilon) else None


def agreed_noise(federation: FederationConfig) -> AgreedNoise | None:
    """Return the noise that a federation prescribes for the upload of every device; None if each sets its own."""
    upload = federation.algorithm.upload
    return None if upload is None else upload.agreed_noise(federation.terms)


def noise_of(
    client: ClientConfig, federation: FederationConfig, *, samples: int, menu: Menu | None = None
) -> NoiseLevel | None:
    """Return the noise that a device adds: given, solved for a privacy budget, or of the contract item that it picks.

    Given is what ``client.toml`` says, else what ``federation.toml`` says if the scheme adds noise to its upload at all. For a
    budget, label noise that the device does not fix itself is that of the federation, or more: as much as it takes for labels to
    use half of the budget. A device that has a sensitivity picks the item that is best for it out of those that leave it the
    least noise that it accepts, by its policy and by its budget.

    Args:
        client: the device.
        federation: what all devices agreed on.
        samples: rows of the device.
        menu: the contract that the server offers; None if it offers none.

    Returns:
        The noise; None if no item is worth it, so that the device stays out and uploads nothing.

    Raises:
        InputError: no noise keeps the budget, or the contract has no meaning for this upload.
    """
    upload, privacy, policy = federation.algorithm.upload, client.privacy, client.policy
    if upload is None:
        return NoiseLevel(0.0, 0.0)
    agreed = agreed_noise(federation)
    if agreed is not None:
        require_as_agreed(client, federation)
        return NoiseLevel(agreed.noise_variance, agreed.label_noise_variance)
    if not upload.can_have_noise:
        _require_no_noise(client, federation, upload)
        return NoiseLevel(0.0, 0.0)
    least = policy.least_noise_variance
    if privacy.epsilon > 0:
        solved, label_noise = _noise_for_budget(client, federation, upload, samples)
        noise = least = max(solved, least)
    else:
        on = 1.0 if upload.noise else 0.0
        noise = _first(privacy.noise_variance, on * federation.coding.noise_variance)
        label_noise = _first(privacy.label_noise_variance, on * federation.coding.label_noise_variance)
    if menu is None or privacy.sensitivity == 0:
        return NoiseLevel(noise, label_noise)
    if not upload.coded_rows(federation.terms):
        raise InputError(
            f"scheme = {shown(federation.scheme)} uploads sketches, about which a contract in bits of coded features says "
            'nothing: set options.upload to "factor", or privacy.sensitivity to 0.'
        )
    _require_menu(menu)
    rows = federation.coding.coded_samples
    item = menu.choose(privacy.sensitivity, mi_dp_bits(rows, least))
    if item is None:
        return None
    return NoiseLevel(max(noise_variance_for_mi_dp(float(menu.mi_dp_bits[item]), rows), least), label_noise, item)


def _require_no_noise(client: ClientConfig, federation: FederationConfig, upload: Upload) -> None:
    """Refuse what a device says about noise where none is possible."""
    privacy = client.privacy
    for name, value in (
        ("epsilon", privacy.epsilon),
        ("noise_variance", privacy.noise_variance),
        ("label_noise_variance", privacy.label_noise_variance),
        ("sensitivity", privacy.sensitivity),
    ):
        if value:
            raise InputError(
                f"privacy.{name} = {value:g} of client.toml has no meaning with scheme = {federation.scheme!r}, as the server"
                f" learns {upload.message} of this device: leave this federation, or leave it out."
            )


def _first(own: float | None, otherwise: float) -> float:
    return otherwise if own is None else own


def _no_bound(federation: FederationConfig) -> str:
    """Return why one sample may change an upload without bound; empty if it may not."""
    if federation.coding.clip_norm == 0:
        return "coding.clip_norm = 0 leaves samples unbounded: set it in federation.toml"
    if federation.terms.label_bound is None:
        return "data.task = 'regression' leaves labels unbounded: give privacy.noise_variance instead"
    return ""


def _noise_for_budget(
    client: ClientConfig, federation: FederationConfig, upload: Upload, samples: int
) -> tuple[float, float]:
    """Return the least noise on features and labels that keeps the device's budget.

    The loss depends on ``a^2 / sigma^2 + b^2 / sigma_Y^2`` alone, with the changes ``a`` and ``b`` that one sample makes.
    """
    privacy = client.privacy
    reason = _no_bound(federation)
    if reason:
        raise InputError(f"privacy.epsilon = {privacy.epsilon:g} cannot be kept, as {reason}.")
    features, labels = upload.sensitivities(federation.terms, samples)
    budget = upload.largest_ratio(federation.terms, privacy.epsilon, privacy.delta)
    half = 2 * labels**2 / budget
    least = max(half, federation.coding.label_noise_variance, client.policy.least_label_noise_variance)
    label_noise = _first(privacy.label_noise_variance, least)
    spent = 0.0 if labels == 0 else labels**2 / label_noise if label_noise > 0 else math.inf
    left = budget - spent
    if left <= 0:
        raise InputError(
            f"privacy.label_noise_variance = {label_noise:g} cannot keep privacy.epsilon = {privacy.epsilon:g}, as the labels "
            f"alone use more: raise it above {labels**2 / budget:.6g}, or leave it out to have it solved for."
        )
    noise = features**2 / left
    if max(noise, label_noise) > MOST_VARIANCE:
        raise InputError(
            f"privacy.epsilon = {privacy.epsilon:g} needs a noise variance of {max(noise, label_noise):.3g}, beyond "
            f"{MOST_VARIANCE:g}: allow a larger epsilon."
        )
    return noise, label_noise


def _require_menu(menu: Menu) -> None:
    """Refuse a contract that is not one, since it came from the server."""
    for name, values in (("mi_dp_bits", menu.mi_dp_bits), ("reward", menu.reward)):
        if values.shape != (menu.mi_dp_bits.size,) or not (np.isfinite(values) & (values > 0)).all():
            raise InputError(
                f"{name} of the offered contract is not a list of positive numbers: offer another contract."
            )
    if menu.items == 0 or (np.diff(menu.mi_dp_bits) >= 0).any():
        raise InputError("mi_dp_bits of the offered contract does not fall from item to item: offer another contract.")
