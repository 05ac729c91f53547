"""Coding: the random projection plus noise that devices upload once, before training (Sec. III-A).

`encode` runs on a device. `sample_coded` draws from the same law, given the data, through a factor of the Gram matrix.
`encode_all` builds the global coded dataset with either. `sample_factor` draws the triangular factor of the coded rows instead,
and `encode_factors` adds up the second moments of all devices. `coded_solution` is least squares from coded data in one step.
"""

from codedfl.coding._encoder import CodedData, FactorOf, encode
from codedfl.coding._factor import (
    add_factors,
    device_factors,
    encode_factors,
    require_rows_for_factor,
    sample_factor,
    sample_factors,
    triangular_factor,
)
from codedfl.coding._factor_sketch import sketch_factors
from codedfl.coding._gram import Gram, Rows, compute_gram
from codedfl.coding._sampler import EncoderName, encode_all, sample_coded
from codedfl.coding._solution import coded_solution, second_moment_error
from codedfl.coding._subspace import (
    ReceivedSketch,
    SubspaceSketch,
    collect_sketches,
    public_test_matrix,
    sketch_all,
    sketch_rows,
)

__all__ = [
    "CodedData",
    "EncoderName",
    "FactorOf",
    "Gram",
    "ReceivedSketch",
    "Rows",
    "SubspaceSketch",
    "add_factors",
    "coded_solution",
    "collect_sketches",
    "compute_gram",
    "device_factors",
    "encode",
    "encode_all",
    "encode_factors",
    "public_test_matrix",
    "require_rows_for_factor",
    "sample_coded",
    "sample_factor",
    "sample_factors",
    "second_moment_error",
    "sketch_all",
    "sketch_factors",
    "sketch_rows",
    "triangular_factor",
]
