"""Pair types (64-bit integers, complex numbers) and sub-byte integers as subjects: one an opcode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from benchmarks.rule_fuzz import texts
from benchmarks.rule_fuzz.generator import Generator, Impossible, Wanted
from benchmarks.rule_fuzz.harness import Inputs, Subject
from benchmarks.rule_fuzz.index_planners import ALL_PLANNERS
from benchmarks.rule_fuzz.planners import FLOATS_ONLY
from benchmarks.rule_fuzz.values import Array
from compiler.hlo.dtypes import PRED
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.shape import leaves
from compiler.passes.context import PassContext
from compiler.passes.expanders.simple_expansions import COMPOSED
from compiler.passes.pair_types.pair_rewriter import RULES, rewrite_pairs
from compiler.passes.pair_types.sub_byte import widen_sub_byte
from compiler.rewrite.rewriter import ANY_ORDER, Freedom
from tpu_sim.isa.chips import load_chip

WIDE = ("s64", "u64", "c64")
NARROW = ("s4", "u4")


def split(values: Sequence[Array]) -> list[Array]:
    """The parts of every array: two where its type is wide."""
    return [part for value in values for part in _parts(np.asarray(value))]


def _parts(value: Array) -> list[Array]:
    if value.dtype == np.complex64:
        return [value.real.copy(), value.imag.copy()]
    if value.dtype in (np.int64, np.uint64):
        bits = value.view(np.uint64)
        low = (bits & np.uint64(0xFFFFFFFF)).astype(np.uint32)
        return [low, (bits >> np.uint64(32)).astype(np.uint32)]
    return [value]


def joined(parts: Sequence[Array], like: Sequence[Array]) -> list[Array]:
    """Results as the module had them, of the parts that the rewritten one gives."""
    waiting = [np.asarray(part) for part in parts]
    return [_joined(waiting, np.asarray(value).dtype) for value in like]


def _joined(parts: list[Array], dtype: np.dtype[np.generic]) -> Array:
    first = parts.pop(0)
    if dtype == np.complex64:
        value = np.empty(first.shape, np.complex64)
        value.real, value.imag = first, parts.pop(0)
        return value
    if dtype in (np.int64, np.uint64):
        high = parts.pop(0).astype(np.uint64) << np.uint64(32)
        return np.asarray(np.asarray(first).astype(np.uint64) | high).view(dtype)
    return first


def pair_subjects() -> list[Subject]:
    """One for every opcode that has a rule and takes or gives arrays."""
    makers = {opcode: _maker(opcode, WIDE) for opcode in RULES.keys() & ALL_PLANNERS.keys()}
    makers |= _TEXTS
    return [
        Subject(
            f"pair {opcode}",
            makers[opcode],
            _rewrite,
            _freedom(opcode),
            _edges(opcode),
            split,
            joined,
        )
        for opcode in sorted(makers.keys() - NOT_DRAWN.keys())
    ]


_TEXTS: dict[str, Callable[[Generator], HloModule]] = {
    "sort": partial(texts.sort, dtypes=("s64", "u64")),
    "reduce-window": partial(texts.reduce_window, dtypes=("s64", "u64")),
    "convolution": partial(texts.convolution, dtypes=("c64",)),
}

NOT_DRAWN = {
    "atan2": "XLA's angle of two complex numbers squares both: edge values have none to compare",
    "bitcast-convert": "its parts are compared in tests/unit/passes/pair_types",
    "mulhi": "likewise",
    "constant": "operands of all others are",
    "tuple": "no arithmetic",
    "opt-barrier": "no arithmetic",
    "call": "control flow, in tests/unit/passes/pair_types/test_structure.py",
    "conditional": "likewise",
    "while": "likewise",
    "all-gather": "one participant alone, in tests/unit/passes/pair_types/test_structure.py",
    "all-to-all": "likewise",
    "collective-broadcast": "likewise",
    "collective-permute": "likewise",
}
"""Opcodes with a rule that are not drawn, and why."""


def sub_byte_subjects() -> list[Subject]:
    """One for every opcode that can have an operand or a result of four bits when the pass runs."""
    return [
        Subject(f"sub-byte {opcode}", _maker(opcode, NARROW), _widen, split=_bytes, join=_nibbles)
        for opcode in sorted(ALL_PLANNERS.keys() - FLOATS_ONLY - COMPOSED.keys())
    ]


def _freedom(opcode: str) -> Freedom:
    """What docs/numerics.md leaves open for complex functions; integers have none."""
    if opcode in ("convolution", "dot", "reduce", "reduce-window", "scatter"):
        return ANY_ORDER
    if opcode == "multiply":  # one of the two products of each part is not rounded
        return Freedom.ROUNDING | Freedom.COMPLEX_PARTS | Freedom.OVERFLOW
    if opcode in _CUT:
        return Freedom.ROUNDING | Freedom.COMPLEX_PARTS | Freedom.BRANCH_SIDE
    return Freedom.ROUNDING | Freedom.COMPLEX_PARTS


def _edges(opcode: str) -> float:
    """How many values are edges: of a sum of products in any order huge ones leave nothing."""
    return 0.02 if opcode in ("convolution", "dot") else 0.3


_CUT = ("acos", "acosh", "asin", "asinh", "atan", "atanh")
"""Complex functions whose value jumps along a part of an axis."""


def _maker(opcode: str, names: tuple[str, ...]) -> Callable[[Generator], HloModule]:
    def make(g: Generator) -> HloModule:
        dtype = g.choose((g.dtype(names), g.dtype(names), g.dtype(), PRED))
        wanted = Wanted(dtype, g.dims(0, 3, 300))
        root = g.by_opcode(opcode, wanted)
        if not any(_has(i, names) for i in (root, *root.operands)):
            raise Impossible
        return g.finish(root)

    return make


def _has(instr: HloInstruction, names: tuple[str, ...]) -> bool:
    return any(leaf.dtype.name in names for leaf in leaves(instr.shape))


def _rewrite(module: HloModule) -> bool:
    return rewrite_pairs(module, PassContext(load_chip("v5e")))


def _widen(module: HloModule) -> bool:
    return widen_sub_byte(module, PassContext(load_chip("v5e")))


def _bytes(values: Inputs) -> Inputs:
    holders = {"int4": np.int8, "uint4": np.uint8}
    return [v.astype(holders.get(str(v.dtype), v.dtype)) for v in map(np.asarray, values)]


def _nibbles(values: Inputs, like: Inputs) -> Inputs:
    """Numbers that do not fit four bits stay as they are, and are so found."""
    found = []
    for value, old in zip(values, like, strict=True):
        small = np.asarray(value).astype(np.asarray(old).dtype)
        is_kept = bool(np.all(small.astype(np.int64) == np.asarray(value).astype(np.int64)))
        found.append(small if is_kept or str(small.dtype) not in ("int4", "uint4") else value)
    return found
