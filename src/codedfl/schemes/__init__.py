"""Schemes: one small file each, a row of Table I of the paper (Sec. III, VI).

Example:
    >>> from codedfl.schemes import make_scheme
    >>> scheme = make_scheme("scfl")
    >>> type(scheme.device).__name__, type(scheme.server).__name__, scheme.final
    ('LocalSGD', 'CodedSGD', 'average')
"""

from codedfl.schemes.cfl_fb import cfl_fb
from codedfl.schemes.codedfedl import codedfedl
from codedfl.schemes.dp_cfl import dp_cfl
from codedfl.schemes.fedavg import fedavg
from codedfl.schemes.registry import SCHEMES, make_scheme
from codedfl.schemes.scfl import scfl, scfl_fixed
from codedfl.schemes.table import markdown_table

__all__ = [
    "SCHEMES",
    "cfl_fb",
    "codedfedl",
    "dp_cfl",
    "fedavg",
    "make_scheme",
    "markdown_table",
    "scfl",
    "scfl_fixed",
]
