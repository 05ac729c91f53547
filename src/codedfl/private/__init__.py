"""Private training: one (epsilon, delta) for everything that leaves a device."""

from codedfl.private._budget import MEAN_SHARE, Budget, Curvature, divide
from codedfl.private._coded import CodedDescent, batch_curvature, coded_spectrum
from codedfl.private._curvature import CurvatureUpload, PrivateCurvature, clip_norm_of, clipped_total
from codedfl.private._descent import DescentState, PrivateDescent
from codedfl.private._devices import PrivateGradient, PrivatePlan, noise_in_sum, patient_deadline, require_target
from codedfl.private._heavy_ball import HeavyBallState
from codedfl.private._mixing import HessianMixing, MixingState
from codedfl.private._sketches import SketchUpload
from codedfl.private._statistics import (
    NoisyStatistics,
    StatisticsSolution,
    StatisticsUpload,
    joint_sensitivity,
    noise_norm,
)

__all__ = [
    "MEAN_SHARE",
    "Budget",
    "CodedDescent",
    "Curvature",
    "CurvatureUpload",
    "DescentState",
    "HeavyBallState",
    "HessianMixing",
    "MixingState",
    "NoisyStatistics",
    "PrivateCurvature",
    "PrivateDescent",
    "PrivateGradient",
    "PrivatePlan",
    "SketchUpload",
    "StatisticsSolution",
    "StatisticsUpload",
    "batch_curvature",
    "clip_norm_of",
    "clipped_total",
    "coded_spectrum",
    "divide",
    "joint_sensitivity",
    "noise_in_sum",
    "noise_norm",
    "patient_deadline",
    "require_target",
]
