"""Schemes, one small file each: the rows of Table I of the paper (Sec. III, VI), and what one would use instead.

Example:
    >>> from codedfl.schemes import make_scheme
    >>> scheme = make_scheme("scfl")
    >>> type(scheme.device).__name__, type(scheme.server).__name__, scheme.final
    ('LocalSGD', 'CodedSGD', 'average')
"""

from codedfl.schemes._ccfl import CurvatureCoded, CurvatureState, ccfl
from codedfl.schemes._cfl_fb import cfl_fb
from codedfl.schemes._codedfedl import codedfedl
from codedfl.schemes._device_memory import DeviceMemory
from codedfl.schemes._dp_cfl import dp_cfl
from codedfl.schemes._dp_gd import DescentState, PrivateDescent, dp_gd
from codedfl.schemes._fed3r import RidgeRegression, fed3r
from codedfl.schemes._fedavg import fedavg
from codedfl.schemes._heavy_ball import HeavyBallState, noise_in_sum
from codedfl.schemes._ihm import HessianMixing, MixingState, ihm
from codedfl.schemes._momentum import Momentum, momentum
from codedfl.schemes._one_shot import CodedSolution, one_shot
from codedfl.schemes._registry import (
    DEFAULT_SCHEMES,
    FULLY_PRIVATE,
    PAPER_SCHEMES,
    PRIVATE_SCHEMES,
    SCHEMES,
    YARDSTICK,
    make_scheme,
    scheme_builder,
    scheme_names,
)
from codedfl.schemes._scfl import scfl, scfl_fixed
from codedfl.schemes._scfl_private import CodedDescent, scfl_private
from codedfl.schemes._ssp import StatisticsSolution, noise_norm, ssp
from codedfl.schemes._table import COLUMNS, describe

__all__ = [
    "COLUMNS",
    "DEFAULT_SCHEMES",
    "FULLY_PRIVATE",
    "PAPER_SCHEMES",
    "PRIVATE_SCHEMES",
    "SCHEMES",
    "YARDSTICK",
    "CodedDescent",
    "CodedSolution",
    "CurvatureCoded",
    "CurvatureState",
    "DescentState",
    "DeviceMemory",
    "HeavyBallState",
    "HessianMixing",
    "MixingState",
    "Momentum",
    "PrivateDescent",
    "RidgeRegression",
    "StatisticsSolution",
    "ccfl",
    "cfl_fb",
    "codedfedl",
    "describe",
    "dp_cfl",
    "dp_gd",
    "fed3r",
    "fedavg",
    "ihm",
    "make_scheme",
    "momentum",
    "noise_in_sum",
    "noise_norm",
    "one_shot",
    "scfl",
    "scfl_fixed",
    "scfl_private",
    "scheme_builder",
    "scheme_names",
    "ssp",
]
