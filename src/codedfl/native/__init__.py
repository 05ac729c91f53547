"""The compiled kernel: gradient steps on sampled rows and the sampling itself, several times as fast as with numpy.

It is optional. It is compiled at installation if there is a C compiler; without it, or with the environment variable
``CODEDFL_NATIVE=0``, the same is computed by numpy, with the same rows and results equal up to rounding.
"""

from codedfl.native._calls import Draws, Model, Party, Steps, suits
from codedfl.native._library import available, backend

__all__ = ["Draws", "Model", "Party", "Steps", "available", "backend", "suits"]
