"""What environment variables say about the plug-in."""

from __future__ import annotations

import os
from collections.abc import Iterable

from compiler.options import CompileOptions
from runtime.pjrt.failures import PjrtError

F64_VARIABLE = "TPUC_F64"


def narrows_f64() -> bool:
    """Whether f64 and c128 are computed as f32 and c64 (``TPUC_F64=narrow``) instead of refused."""
    return os.environ.get(F64_VARIABLE, "") == "narrow"


_XLA_PREFIX = "xla_"
_EFFORTS = frozenset(
    {
        "exec_time_optimization_effort",
        "memory_fitting_effort",
        "optimization_level",
        "memory_fitting_level",
    }
)


def check_named_options(names: Iterable[str]) -> None:
    """Options that a caller names: XLA's own say nothing to tpuc; `PjrtError` for any other."""
    for name in names:
        if name not in _EFFORTS and not name.startswith(_XLA_PREFIX):
            raise PjrtError(f"No such compile option: '{name}'")


def compile_options() -> CompileOptions:
    """The options for every program."""
    return CompileOptions(f64_as_f32=narrows_f64())
