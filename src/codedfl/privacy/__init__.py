"""Privacy: what a coded upload reveals, and how much noise it needs (Sec. IV-B).

Example:
    >>> from codedfl.privacy import PrivacyAccountant
    >>> round(PrivacyAccountant(coded_samples=10_000, epsilon=1.0, delta=1e-5).noise_variance, 1)
    268.0
"""

from codedfl.privacy._accountant import PrivacyAccountant, signal_to_noise
from codedfl.privacy._attack import AttackResult, attack_error, matched_error
from codedfl.privacy._audit import DeviceAudit, Upload, audit_device
from codedfl.privacy._composition import ComposedBudget, compose
from codedfl.privacy._exact import exact_epsilon, log_delta
from codedfl.privacy._gaussian import gaussian_epsilon
from codedfl.privacy._inputs import Adjacency
from codedfl.privacy._labels import LabelInference, LabelLeakage, estimate_class_means, infer_labels, label_leakage
from codedfl.privacy._mi_dp import (
    MiDpBudget,
    interference,
    mi_dp_bits,
    mi_dp_of_device,
    noise_variance_for_mi_dp,
    printed_interference,
)
from codedfl.privacy._reconstruction import Reconstruction, reconstruct
from codedfl.privacy._renyi import epsilon_from_renyi, renyi_divergence, useful_orders
from codedfl.privacy._sketch import sketch_sensitivity

__all__ = [
    "Adjacency",
    "AttackResult",
    "ComposedBudget",
    "DeviceAudit",
    "LabelInference",
    "LabelLeakage",
    "MiDpBudget",
    "PrivacyAccountant",
    "Reconstruction",
    "Upload",
    "attack_error",
    "audit_device",
    "compose",
    "epsilon_from_renyi",
    "estimate_class_means",
    "exact_epsilon",
    "gaussian_epsilon",
    "infer_labels",
    "interference",
    "label_leakage",
    "log_delta",
    "matched_error",
    "mi_dp_bits",
    "mi_dp_of_device",
    "noise_variance_for_mi_dp",
    "printed_interference",
    "reconstruct",
    "renyi_divergence",
    "signal_to_noise",
    "sketch_sensitivity",
    "useful_orders",
]
