"""Privacy: what a coded upload reveals, and how much noise it needs (Sec. IV-B).

Example:
    >>> from codedfl.privacy import PrivacyAccountant
    >>> round(PrivacyAccountant(coded_samples=10_000, epsilon=1.0, delta=1e-5).noise_variance, 1)
    268.0
"""

from codedfl.privacy._accountant import PrivacyAccountant, signal_to_noise
from codedfl.privacy._attack import AttackResult, Reconstruction, attack_error, matched_error, reconstruct
from codedfl.privacy._audit import LITTLE_PRIVACY, AuditedUpload, DeviceAudit, audit_device
from codedfl.privacy._canaries import coded_scores, make_canaries, model_scores
from codedfl.privacy._coded import epsilon_from_renyi, exact_epsilon, log_delta, renyi_divergence, useful_orders
from codedfl.privacy._composition import epsilon_of
from codedfl.privacy._discrete import (
    RandomBytes,
    discrete_gaussian,
    gaussian_noise_on_grid,
    grid_step,
    rounded_sensitivity,
    rounding_delta,
)
from codedfl.privacy._gaussian import gaussian_epsilon, gaussian_mu
from codedfl.privacy._guarantee import (
    Against,
    Covers,
    Guarantee,
    Release,
    RoundingDelta,
    guarantee_of,
    keeps,
    update_releases,
)
from codedfl.privacy._inputs import Adjacency
from codedfl.privacy._labels import LabelInference, LabelLeakage, estimate_class_means, infer_labels, label_leakage
from codedfl.privacy._mechanisms import CodedMechanism, GaussianMechanism, Mechanism, sketch_sensitivity
from codedfl.privacy._mi_dp import (
    MiDpBudget,
    interference,
    mi_dp_bits,
    mi_dp_of_device,
    noise_variance_for_mi_dp,
    printed_interference,
)
from codedfl.privacy._noise import BLOCK_ROWS, ExactNoise, Noise, SeededNoise
from codedfl.privacy._one_run import EmpiricalBound, audit_scores, epsilon_lower_bound, gaussian_mu_lower_bound
from codedfl.privacy._target import PrivacyTarget, ThreatModel, coded_noise, least_arrivals, noise_multiplier_for

__all__ = [
    "BLOCK_ROWS",
    "LITTLE_PRIVACY",
    "Adjacency",
    "Against",
    "AttackResult",
    "AuditedUpload",
    "CodedMechanism",
    "Covers",
    "DeviceAudit",
    "EmpiricalBound",
    "ExactNoise",
    "GaussianMechanism",
    "Guarantee",
    "LabelInference",
    "LabelLeakage",
    "Mechanism",
    "MiDpBudget",
    "Noise",
    "PrivacyAccountant",
    "PrivacyTarget",
    "RandomBytes",
    "Reconstruction",
    "Release",
    "RoundingDelta",
    "SeededNoise",
    "ThreatModel",
    "attack_error",
    "audit_device",
    "audit_scores",
    "coded_noise",
    "coded_scores",
    "discrete_gaussian",
    "epsilon_from_renyi",
    "epsilon_lower_bound",
    "epsilon_of",
    "estimate_class_means",
    "exact_epsilon",
    "gaussian_epsilon",
    "gaussian_mu",
    "gaussian_mu_lower_bound",
    "gaussian_noise_on_grid",
    "grid_step",
    "guarantee_of",
    "infer_labels",
    "interference",
    "keeps",
    "label_leakage",
    "least_arrivals",
    "log_delta",
    "make_canaries",
    "matched_error",
    "mi_dp_bits",
    "mi_dp_of_device",
    "model_scores",
    "noise_multiplier_for",
    "noise_variance_for_mi_dp",
    "printed_interference",
    "reconstruct",
    "renyi_divergence",
    "rounded_sensitivity",
    "rounding_delta",
    "signal_to_noise",
    "sketch_sensitivity",
    "update_releases",
    "useful_orders",
]
