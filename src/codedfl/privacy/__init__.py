"""Privacy: what a coded upload reveals, and how much noise it needs (Sec. IV-B).

Example:
    >>> from codedfl.privacy import PrivacyAccountant
    >>> round(PrivacyAccountant(coded_samples=10_000, epsilon=1.0, delta=1e-5).noise_variance, 1)
    268.0
"""

from codedfl.privacy._accountant import PrivacyAccountant
from codedfl.privacy._adjacency import Adjacency
from codedfl.privacy._attack import AttackPoint, AttackResult, Measured, attack_curve, attack_error
from codedfl.privacy._audit import DeviceAudit, Upload, audit_device
from codedfl.privacy._composition import ComposedBudget, compose
from codedfl.privacy._dataset import epsilon_of_dataset, renyi_of_dataset, sample_signal_to_noise
from codedfl.privacy._exact import log_delta
from codedfl.privacy._exposure import equal_noise_variance, signal_to_noise
from codedfl.privacy._interference import (
    MiDpBudget,
    interference,
    largest_mi_dp,
    mi_dp_of_device,
    printed_interference,
)
from codedfl.privacy._label_audit import LabelLeakage, label_leakage
from codedfl.privacy._labels import LabelInference, estimate_class_means, infer_labels
from codedfl.privacy._matching import matched_error
from codedfl.privacy._mi_dp import mi_dp_bits, noise_variance_for_mi_dp
from codedfl.privacy._reconstruction import Reconstruction, reconstruct
from codedfl.privacy._renyi import epsilon_from_renyi, renyi_divergence, useful_orders
from codedfl.privacy._solving import exact_epsilon

__all__ = [
    "Adjacency",
    "AttackPoint",
    "AttackResult",
    "ComposedBudget",
    "DeviceAudit",
    "LabelInference",
    "LabelLeakage",
    "Measured",
    "MiDpBudget",
    "PrivacyAccountant",
    "Reconstruction",
    "Upload",
    "attack_curve",
    "attack_error",
    "audit_device",
    "compose",
    "epsilon_from_renyi",
    "epsilon_of_dataset",
    "equal_noise_variance",
    "estimate_class_means",
    "exact_epsilon",
    "infer_labels",
    "interference",
    "label_leakage",
    "largest_mi_dp",
    "log_delta",
    "matched_error",
    "mi_dp_bits",
    "mi_dp_of_device",
    "noise_variance_for_mi_dp",
    "printed_interference",
    "reconstruct",
    "renyi_divergence",
    "renyi_of_dataset",
    "sample_signal_to_noise",
    "signal_to_noise",
    "useful_orders",
]
