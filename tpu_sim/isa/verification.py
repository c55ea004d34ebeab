"""Whether every intermediate result is verified, or the final one alone."""

from __future__ import annotations

import os

VARIABLE = "TPUC_VERIFY"


def is_verifying() -> bool:
    """Whether ``TPUC_VERIFY`` asks for full verification, as the tests do.

    The HLO is then verified after every pass instead of after the last, the LLO after every stage,
    every schedule against its block, and LLVM's verifier sees the native code's IR. None of this
    changes a result; it finds a bug of ours nearer to its cause.
    """
    return os.environ.get(VARIABLE, "") not in ("", "0")
