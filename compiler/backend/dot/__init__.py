"""Matrix products on the MXUs: plans, the skewed instruction stream, precision passes.

To be imported from outside: the package alone.
"""

from compiler.backend.dot.precision import emit_split
from compiler.backend.dot.results import Affine, Epilogue, ResultTile
from compiler.backend.dot.stage import emit_matmul_stage, precision_passes

__all__ = [
    "Affine",
    "Epilogue",
    "ResultTile",
    "emit_matmul_stage",
    "emit_split",
    "precision_passes",
]
