"""Schemes, one small file each: the rows of Table I of the paper (Sec. III, VI).

Example:
    >>> from codedfl.schemes import make_scheme
    >>> scheme = make_scheme("scfl")
    >>> type(scheme.device).__name__, type(scheme.server).__name__, scheme.final
    ('LocalSGD', 'CodedSGD', 'average')
"""

from codedfl.schemes._cfl_fb import cfl_fb
from codedfl.schemes._codedfedl import codedfedl
from codedfl.schemes._dp_cfl import dp_cfl
from codedfl.schemes._fedavg import fedavg
from codedfl.schemes._registry import SCHEMES, make_scheme
from codedfl.schemes._scfl import scfl, scfl_fixed
from codedfl.schemes._table import COLUMNS, describe, markdown_table

__all__ = [
    "COLUMNS",
    "SCHEMES",
    "cfl_fb",
    "codedfedl",
    "describe",
    "dp_cfl",
    "fedavg",
    "make_scheme",
    "markdown_table",
    "scfl",
    "scfl_fixed",
]
