"""Special functions for functions under `tpuc.jit` and by themselves, named as in ``scipy.special``."""

from runtime.special import digamma, erf, erfc, erfinv, expit, gammaln, i1e, polygamma, zeta

__all__ = ["digamma", "erf", "erfc", "erfinv", "expit", "gammaln", "i1e", "polygamma", "zeta"]
