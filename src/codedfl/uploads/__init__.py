"""Uploads: what devices send once, before training (Sec. III-A). One file each, with both halves."""

from codedfl.uploads._budget import (
    GROWTH,
    MEAN_SHARE,
    MOMENTS_SHARE,
    MOST_FIRST_ORDER_ROUNDS,
    MOST_ROUNDS,
    Budget,
    CurvatureDetail,
    divide,
)
from codedfl.uploads._coded import Coded
from codedfl.uploads._factor import BLUR, CodedFactor, SketchedFactor
from codedfl.uploads._mean import MEAN_FACTOR, MOST_DIRECTIONS, Mean, PrivateCurvature
from codedfl.uploads._rows import CodedRows
from codedfl.uploads._sketches import Sketches
from codedfl.uploads._statistics import (
    ExactStatistics,
    NoisyMoments,
    NoisyStatistics,
    StatisticsMethod,
    joint_sensitivity,
)
from codedfl.uploads._subspace import USUAL_RANKS, Rank, Subspace, rank_within
from codedfl.uploads._upload import (
    LARGEST_ENTRY,
    LARGEST_PRODUCT,
    UNIT_ROUNDOFF,
    AgreedNoise,
    Array,
    ArrayLayout,
    Coverage,
    GaussianUpload,
    HeldT,
    Layout,
    Received,
    Terms,
    Upload,
    UploadCost,
    clip_norm_of,
    require_target,
)

__all__ = [
    "BLUR",
    "GROWTH",
    "LARGEST_ENTRY",
    "LARGEST_PRODUCT",
    "MEAN_FACTOR",
    "MEAN_SHARE",
    "MOMENTS_SHARE",
    "MOST_DIRECTIONS",
    "MOST_FIRST_ORDER_ROUNDS",
    "MOST_ROUNDS",
    "UNIT_ROUNDOFF",
    "USUAL_RANKS",
    "AgreedNoise",
    "Array",
    "ArrayLayout",
    "Budget",
    "Coded",
    "CodedFactor",
    "CodedRows",
    "Coverage",
    "CurvatureDetail",
    "ExactStatistics",
    "GaussianUpload",
    "HeldT",
    "Layout",
    "Mean",
    "NoisyMoments",
    "NoisyStatistics",
    "PrivateCurvature",
    "Rank",
    "Received",
    "SketchedFactor",
    "Sketches",
    "StatisticsMethod",
    "Subspace",
    "Terms",
    "Upload",
    "UploadCost",
    "clip_norm_of",
    "divide",
    "joint_sensitivity",
    "rank_within",
    "require_target",
]
