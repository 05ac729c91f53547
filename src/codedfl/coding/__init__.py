"""Coding: the random projection plus noise that devices upload once, before training (Sec. III-A).

`encode` runs on a device. `sample_coded` draws from the same law, given the data, through a factor of the Gram matrix.
`encode_all` builds the global coded dataset with either. `sample_factor` draws the triangular factor of the coded rows instead,
and `add_factors` adds up the second moments of all devices. `coded_solution` is least squares from coded data in one step.
"""

from codedfl.coding._curvature import DAMPING_FACTOR, KEPT_SHARE, LARGEST_MISMATCH, Curvature, CurvatureModel, nystrom
from codedfl.coding._encoder import CodedData, FactorOf, encode
from codedfl.coding._factor import add_factors, require_rows_for_factor, sample_factor, sample_factors
from codedfl.coding._geometry import Geometry, clip_weights, clipped_labels, clipped_total
from codedfl.coding._gram import Gram, Rows, compute_gram
from codedfl.coding._sampler import EncoderName, encode_all, require_one_each, sample_coded
from codedfl.coding._solution import (
    batch_curvature,
    coded_solution,
    coded_spectrum,
    damped_solution,
    second_moment_error,
)
from codedfl.coding._subspace import SubspaceSketch, public_test_matrix, sketch_factors, sketch_rows

__all__ = [
    "DAMPING_FACTOR",
    "KEPT_SHARE",
    "LARGEST_MISMATCH",
    "CodedData",
    "Curvature",
    "CurvatureModel",
    "EncoderName",
    "FactorOf",
    "Geometry",
    "Gram",
    "Rows",
    "SubspaceSketch",
    "add_factors",
    "batch_curvature",
    "clip_weights",
    "clipped_labels",
    "clipped_total",
    "coded_solution",
    "coded_spectrum",
    "compute_gram",
    "damped_solution",
    "encode",
    "encode_all",
    "nystrom",
    "public_test_matrix",
    "require_one_each",
    "require_rows_for_factor",
    "sample_coded",
    "sample_factor",
    "sample_factors",
    "second_moment_error",
    "sketch_factors",
    "sketch_rows",
]
