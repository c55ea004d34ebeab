"""Whether every intermediate result is verified, or the final one alone."""

from __future__ import annotations

import os

VARIABLE = "TPUC_VERIFY"


def is_verifying() -> bool:
    """Whether ``TPUC_VERIFY`` asks for full verification, as the tests do.

    The HLO is then verified after every pass instead of after the last, the LLO of every kernel and
    its schedule are, and LLVM's verifier sees the native code's IR. Neither changes a result; both find a bug of ours nearer to its cause.
    """
    return os.environ.get(VARIABLE, "") not in ("", "0")
