"""Privacy: what a coded upload reveals (Sec. IV-B)."""

from codedfl.privacy.mi_dp import mi_dp_bits

__all__ = ["mi_dp_bits"]
