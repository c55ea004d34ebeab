"""What environment variables say about the plug-in."""

from __future__ import annotations

import os

from compiler.options import CompileOptions

F64_VARIABLE = "TPUC_F64"


def narrows_f64() -> bool:
    """Whether f64 and c128 are computed as f32 and c64 (``TPUC_F64=narrow``) instead of refused."""
    return os.environ.get(F64_VARIABLE, "") == "narrow"


def compile_options() -> CompileOptions:
    """The options for every program."""
    return CompileOptions(f64_as_f32=narrows_f64())
