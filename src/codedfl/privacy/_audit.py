"""The audit of one device: what its coded upload reveals, in numbers and in plain words."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from codedfl.coding import Rows
from codedfl.privacy._accountant import PrivacyAccountant
from codedfl.privacy._attack import AttackResult, attack_error
from codedfl.privacy._inputs import require_matrix, require_norm_bound
from codedfl.privacy._labels import LabelLeakage, label_leakage
from codedfl.privacy._mi_dp import MiDpBudget, mi_dp_of_device
from codedfl.typing import FloatArray

LITTLE_PRIVACY = 10.0
"""Above this epsilon, (epsilon, delta) differential privacy guarantees next to nothing: what the server sees may be
e^10 = 22,026 times likelier with a sample than without it."""

ONE_HOT_NORM = 1.0
"""``B_Y`` of a classification: one-hot labels have this norm."""


@dataclass(frozen=True)
class AuditedUpload:
    """How devices encode, as far as it affects privacy.

    Args:
        coded_samples: ``c``.
        noise_variance: ``sigma_i^2`` of this device.
        label_noise_variance: ``sigma_Y^2`` of this device.
        clip_norm: ``B``, to which samples are clipped; None if they are not.
        sum_noise_variance: Noise variance in the sum of all devices' coded features.
        sum_label_noise_variance: Noise variance in the sum of all devices' coded labels.
        label_bound: ``B_Y``, the norm to which the labels of a regression are clipped by whoever encodes them; None if they are
            not, so that nothing bounds what they reveal. A classification does not need it: one-hot labels have norm 1.
    """

    coded_samples: int
    noise_variance: float
    label_noise_variance: float
    clip_norm: float | None
    sum_noise_variance: float
    sum_label_noise_variance: float
    label_bound: float | None = None


@dataclass(frozen=True)
class DeviceAudit:
    """What the upload of one device reveals.

    Args:
        name: Name of the device.
        samples: ``l_i``.
        largest_norm: Largest norm of the features of a sample, before clipping.
        largest_entry: Largest magnitude of a feature, before clipping.
        norm_bound: ``B`` of the worst-case numbers, the clipping norm; None without clipping, when no epsilon is finite.
        label_bound: ``B_Y`` of the worst-case numbers; None for a regression whose labels are not clipped, when only
            ``epsilon_features`` can be finite.
        mi_dp: Bits per entry: as printed, corrected for this data, and for all data.
        epsilon_features: Worst case at ``delta`` for the coded features, if no labels are coded with them; infinite, like the
            other two, if there is no guarantee.
        epsilon: Worst case for features and labels as uploaded, if the server sees this upload.
        epsilon_in_sum: The same if the server sees only the sum of all uploads.
        labels: What the coded labels reveal; None for a regression.
        attack: Result of the reconstruction attack; None if it was skipped or there is only one sample.
        missing: Configuration fields that have to be set before ``epsilon`` can be finite.
        warnings: What is unsafe, in plain words.
    """

    name: str
    samples: int
    largest_norm: float
    largest_entry: float
    norm_bound: float | None
    label_bound: float | None
    mi_dp: MiDpBudget
    epsilon_features: float
    epsilon: float
    epsilon_in_sum: float
    labels: LabelLeakage | None
    attack: AttackResult | None
    missing: tuple[str, ...]
    warnings: tuple[str, ...]


def audit_device(
    name: str,
    features: FloatArray,
    labels: FloatArray,
    upload: AuditedUpload,
    *,
    classification: bool,
    delta: float = 1e-5,
    known_ratio: float | None = 0.9,
    rng: np.random.Generator,
) -> DeviceAudit:
    """Audit the upload of one device.

    Args:
        name: Name of the device.
        features: ``X_i``, (l, d).
        labels: ``Y_i``, (l, o).
        upload: How the device encodes.
        classification: Whether the labels are one-hot classes.
        delta: Delta of the (epsilon, delta) guarantees.
        known_ratio: Share of the device's samples that the attacker already knows; None skips the attack.
        rng: Source of the uploads that are attacked.

    Returns:
        The budgets, the results of the attacks, and the warnings.

    Raises:
        InputError: If data, noise or bounds are out of range.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X, Y = rng.uniform(-0.5, 0.5, (40, 3)), np.eye(2)[[0] * 40]
        >>> audit = audit_device("phone", X, Y, AuditedUpload(100, 0.5, 0.0, None, 10.0, 0.0), classification=True, rng=rng)
        >>> audit.labels.single_class, audit.epsilon, audit.missing
        (True, inf, ('coding.label_noise_variance', 'coding.clip_norm'))
    """
    require_matrix("features", features)
    require_matrix("labels", labels)
    encoded = Rows(features, labels)
    if upload.clip_norm is not None:
        encoded = encoded.clipped(upload.clip_norm)
    X = encoded.joined()[:, : features.shape[1]].astype(np.float64)
    norms = np.linalg.norm(features, axis=1)
    label_bound = ONE_HOT_NORM if classification else upload.label_bound
    if label_bound is not None:
        require_norm_bound("label_bound", label_bound)

    def epsilon(noise: float, label_noise: float | None) -> float:
        """Return the worst case over all data within the bounds; without a bound there is always worse data."""
        if upload.clip_norm is None or (label_noise is not None and label_bound is None):
            return math.inf
        return PrivacyAccountant(
            coded_samples=upload.coded_samples,
            noise_variance=noise,
            delta=delta,
            norm_bound=upload.clip_norm,
            label_noise_variance=label_noise,
            label_norm_bound=label_bound or ONE_HOT_NORM,
        ).epsilon

    attack = None
    if known_ratio is not None and np.count_nonzero(norms) > 1:
        attack = attack_error(X, known_ratio, upload.coded_samples, upload.noise_variance, rng)
    leakage = None
    if classification:
        leakage = label_leakage(
            features,
            labels,
            upload.coded_samples,
            upload.noise_variance,
            upload.label_noise_variance,
            rng,
            upload.clip_norm,
        )
    audit = DeviceAudit(
        name=name,
        samples=len(features),
        largest_norm=float(norms.max()),
        largest_entry=float(np.abs(features).max()),
        norm_bound=upload.clip_norm,
        label_bound=label_bound,
        mi_dp=mi_dp_of_device(X, upload.coded_samples, upload.noise_variance),
        epsilon_features=epsilon(upload.noise_variance, None),
        epsilon=epsilon(upload.noise_variance, upload.label_noise_variance),
        epsilon_in_sum=epsilon(upload.sum_noise_variance, upload.sum_label_noise_variance),
        labels=leakage,
        attack=attack,
        missing=tuple(_missing(upload, label_bound)),
        warnings=(),
    )
    return replace(audit, warnings=tuple(_warnings(audit, upload, X)))


def _missing(upload: AuditedUpload, label_bound: float | None) -> Iterator[str]:
    """Yield the fields without which no epsilon of features and labels is finite, if the server sees this upload."""
    if upload.noise_variance == 0:
        yield "coding.noise_variance"
    if upload.label_noise_variance == 0:
        yield "coding.label_noise_variance"
    if label_bound is None:
        yield "privacy.label_bound"
    if upload.clip_norm is None:
        yield "coding.clip_norm"


def _warnings(audit: DeviceAudit, upload: AuditedUpload, encoded: FloatArray) -> Iterator[str]:
    """Yield what is unsafe, in plain words and without numbers of the device, so that devices can be grouped by warning."""
    if upload.noise_variance == 0:
        if audit.samples < encoded.shape[1]:
            yield (
                "no noise and fewer samples than features, so that the upload reveals exactly the space that the samples span;"
                " set coding.noise_variance"
            )
        else:
            yield "no noise, so that nothing bounds what the upload reveals; set coding.noise_variance"
    yield from _label_warnings(audit, upload)
    if np.abs(encoded).max() > 1 + 1e-6:
        yield "features exceed [-1, 1], for which the MI-DP budgets hold; set features.scaling"
    if upload.clip_norm is None:
        yield "samples are not clipped, so that epsilon has no bound in the worst case; set coding.clip_norm"
    yield from _epsilon_warnings(audit)
    if audit.attack is not None and audit.attack.feasible_error < 0.5 * audit.attack.baseline_error:
        yield "an attacker who knows most of the samples reconstructs the others with less than half the error of guessing"


def _label_warnings(audit: DeviceAudit, upload: AuditedUpload) -> Iterator[str]:
    """Yield what is unsafe about the labels."""
    if audit.labels is not None:
        what = "which single class it has" if audit.labels.single_class else "which classes it has"
        if upload.label_noise_variance == 0:
            means = "" if audit.labels.single_class else " and their means"
            yield f"labels are coded without noise, so that the upload shows {what}{means}; set coding.label_noise_variance"
        elif audit.labels.correct:
            yield f"the upload shows {what} in spite of the label noise; raise coding.label_noise_variance"
    elif upload.label_noise_variance == 0:
        yield (
            "targets are coded without noise, so that X^T Y can be read off the upload, whatever the noise of the features; set"
            " coding.label_noise_variance"
        )
    if audit.label_bound is None:
        yield "labels have no bound, so that epsilon has no bound in the worst case; set privacy.label_bound"


def _epsilon_warnings(audit: DeviceAudit) -> Iterator[str]:
    """Yield what is unsafe about the worst case, unless fields are missing that other warnings name."""
    if audit.epsilon <= LITTLE_PRIVACY:
        return
    if audit.epsilon_in_sum <= LITTLE_PRIVACY:
        yield (
            f"epsilon is above {LITTLE_PRIVACY:g} for features and labels as uploaded and below it only in the sum over devices:"
            " the guarantee rests on secure aggregation"
        )
    elif not audit.missing or LITTLE_PRIVACY < audit.epsilon_features < math.inf:
        what = "even for the features alone" if audit.missing else "for features and labels together"
        yield (
            f"epsilon is above {LITTLE_PRIVACY:g} {what}, which guarantees next to nothing in the worst case; more noise, fewer"
            " coded samples or a smaller clipping norm lower it"
        )
