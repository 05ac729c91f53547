"""Private training: one (epsilon, delta) for everything that leaves a device."""

from codedfl.private._budget import Budget, Curvature, divide
from codedfl.private._curvature import CurvatureUpload, PrivateCurvature, clip_norm_of
from codedfl.private._descent import DescentState, PrivateDescent
from codedfl.private._devices import PrivateGradient, PrivatePlan, noise_in_sum, patient_deadline, require_target

__all__ = [
    "Budget",
    "Curvature",
    "CurvatureUpload",
    "DescentState",
    "PrivateCurvature",
    "PrivateDescent",
    "PrivateGradient",
    "PrivatePlan",
    "clip_norm_of",
    "divide",
    "noise_in_sum",
    "patient_deadline",
    "require_target",
]
