"""Coding: the random projection plus noise that devices upload once, before training (Sec. III-A).

`encode` runs on a device. `sample_coded` draws from the same law, given the data, through a factor of the Gram matrix.
`encode_all` builds the global coded dataset with either.
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
