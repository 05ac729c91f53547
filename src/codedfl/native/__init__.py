"""The compiled kernel: gradient steps on sampled rows and the sampling itself, several times as fast as numpy.

It is optional. Installation compiles it where there is a C compiler; without it, or with the environment variable
``CODEDFL_NATIVE=0``, numpy computes the same steps on the same rows, with results equal up to rounding.
"""

from codedfl.native._library import KernelParty, KernelStart, available, backend, library

__all__ = ["KernelParty", "KernelStart", "available", "backend", "library"]
