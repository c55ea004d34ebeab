"""Makers of instructions, one family a file. Importing this package registers all of them."""

from benchmarks.fuzz.makers import (
    blocks,
    collectives,
    contractions,
    control,
    elementwise,
    indexing,
    linear_algebra,
    loops,
    movement,
    random_bits,
    reductions,
    scans,
    sorting,
    states,
    tuples,
    windows,
)
from benchmarks.fuzz.makers.registry import EXCLUDED, MAKERS, Maker, made_opcodes

__all__ = [
    "EXCLUDED",
    "MAKERS",
    "Maker",
    "blocks",
    "collectives",
    "contractions",
    "control",
    "elementwise",
    "indexing",
    "linear_algebra",
    "loops",
    "made_opcodes",
    "movement",
    "random_bits",
    "reductions",
    "scans",
    "sorting",
    "states",
    "tuples",
    "windows",
]
