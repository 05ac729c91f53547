"""Coding: the random projection plus noise that devices upload once, before training (Sec. III-A).

Two ways to the same law: `encode` is what a device runs; `sample_coded` draws from the distribution that it has given
the data, through a factor of the Gram matrix. `encode_all` builds the global coded dataset with either.
"""

from codedfl.coding._encoder import CodedData, encode
from codedfl.coding._gram import Gram, Rows, compute_gram
from codedfl.coding._sampler import EncoderName, encode_all, sample_coded

__all__ = [
    "CodedData",
    "EncoderName",
    "Gram",
    "Rows",
    "compute_gram",
    "encode",
    "encode_all",
    "sample_coded",
]
