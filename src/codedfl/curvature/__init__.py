"""Curvature: sketches of the data as a preconditioner and as a model of absent devices (beyond the paper).

Coded data used as data leaves its noise in the model for ever. Used as curvature, it only decides how training gets to the
optimum, not where that is.
"""

from codedfl.curvature._memory import DeviceMemory
from codedfl.curvature._model import DAMPING_FACTOR, KEPT_SHARE, LARGEST_MISMATCH, CurvatureModel
from codedfl.curvature._nystrom import nystrom
from codedfl.curvature._scheme import CurvatureCoded, CurvatureState
from codedfl.curvature._stability import largest_stable_mismatch
from codedfl.curvature._upload import FactorUpload, SubspaceUpload, rank_within

__all__ = [
    "DAMPING_FACTOR",
    "KEPT_SHARE",
    "LARGEST_MISMATCH",
    "CurvatureCoded",
    "CurvatureModel",
    "CurvatureState",
    "DeviceMemory",
    "FactorUpload",
    "SubspaceUpload",
    "largest_stable_mismatch",
    "nystrom",
    "rank_within",
]
