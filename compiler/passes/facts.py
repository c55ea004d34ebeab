"""Facts about a module that passes establish and later passes count on.

A fact is checked instruction by instruction. `CONTRACTS` says what each pass requires, what holds once
it ran, and what it ends. The pass manager refuses to run a pass whose requirement does not hold, by
name, with the instruction that breaks it; where everything is verified it also finds the pass that
breaks a fact established before. The order of passes follows from it; `pipeline.MUST_PRECEDE` has what
else the order is for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from compiler.diagnostics import CompileError
from compiler.hlo.call_graph import control_computations
from compiler.hlo.device_types import DOUBLES, PARTS, SUB_BYTE, TINY_FLOATS
from compiler.hlo.dtypes import S32
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.ops.indexing import index_operands
from compiler.hlo.shape import TupleShape, leaves
from compiler.hlo.verifier import SCHEDULED_OPCODES
from compiler.passes import dot_canonicalizer
from compiler.passes.expanders.bit_casts import changes_width
from compiler.passes.expanders.simple_expansions import COMPOSED

Instr = HloInstruction


@dataclass(frozen=True, eq=False)
class Fact:
    """`is_broken` says whether an instruction breaks it; `words` what such an instruction has or is.
    `where` is "control" for a fact about what stands outside of fusions and reducers."""

    name: str
    words: str
    is_broken: Callable[[Instr], bool]
    where: str = "everywhere"


@dataclass(frozen=True)
class Contract:
    """What a pass counts on, what holds after it, and what does not any more."""

    requires: tuple[Fact, ...] = ()
    establishes: tuple[Fact, ...] = ()
    ends: tuple[Fact, ...] = ()


def _opcode(*names: str) -> Callable[[Instr], bool]:
    assert all(name in OPCODES for name in names)
    return lambda instr: instr.opcode in names


def _type(*names: str) -> Callable[[Instr], bool]:
    return lambda instr: any(leaf.dtype.name in names for leaf in leaves(instr.shape))


def _has_layout(instr: Instr) -> bool:
    return any(leaf.layout is not None for leaf in leaves(instr.shape))


def _has_no_tiles(instr: Instr) -> bool:
    return any(leaf.layout is None or not leaf.layout.tiles for leaf in leaves(instr.shape))


def _is_nested(instr: Instr) -> bool:
    if not OPCODES[instr.opcode].has(Trait.HANDS_STATE):
        return False
    shapes = (instr.shape, *(o.shape for o in instr.operands))
    tuples = [s for s in shapes if isinstance(s, TupleShape)]
    return any(isinstance(element, TupleShape) for s in tuples for element in s.elements)


def _has_other_indices(instr: Instr) -> bool:
    types = (instr.operands[n].array.dtype for n in index_operands(instr))
    return any(dtype != S32 and dtype.bits <= S32.bits for dtype in types)


NO_CALLS = Fact("no-calls", "a call", _opcode("call"))
BARE_SHAPES = Fact("bare-shapes", "a shape with a layout", _has_layout)
FLAT_TUPLES = Fact("flat-tuples", "control flow over a tuple in a tuple", _is_nested)
S32_INDICES = Fact("s32-indices", "indices of another type than s32", _has_other_indices)
NO_COMPOSED = Fact("no-composed", "an operation that is a few others", _opcode(*COMPOSED))
NO_CUSTOM_CALLS = Fact("no-custom-calls", "a custom call", _opcode("custom-call"))
NO_LINEAR_ALGEBRA = Fact(
    "no-linear-algebra", "a factorization or solve", _opcode("cholesky", "triangular-solve")
)
NO_FFT = Fact("no-fft", "a Fourier transform", _opcode("fft"))
NO_RANDOM = Fact("no-random", "a generator of random bits", _opcode("rng-bit-generator"))
NO_SORT = Fact("no-sort", "a sort", _opcode("sort"))
NO_TOPK = Fact("no-topk", "a topk", _opcode("topk"))
NO_REDUCE_WINDOW = Fact("no-reduce-window", "a reduce-window", _opcode("reduce-window"))
NO_SELECT_AND_SCATTER = Fact(
    "no-select-and-scatter", "a select-and-scatter", _opcode("select-and-scatter")
)
NO_DOUBLES = Fact("no-doubles", "numbers of f64", _type(*DOUBLES))
EQUAL_WIDTHS = Fact("equal-widths", "a bitcast-convert to another width", changes_width)
WHOLE_BYTES = Fact(
    "whole-bytes", "elements that a wider type holds", _type(*SUB_BYTE, *TINY_FLOATS)
)
LANES = Fact("32-bit-lanes", "elements of more than 32 bits", _type(*PARTS))
DOTS_OF_MATRICES = Fact(
    "dots-of-matrices",
    "a dot whose dimensions are not one M, K and N behind batch dimensions",
    lambda instr: instr.opcode == "dot" and not dot_canonicalizer.is_canonical(instr),
)
WRAPPED = Fact(
    "wrapped",
    "an operation outside of fusions",
    lambda instr: instr.opcode not in SCHEDULED_OPCODES,
    "control",
)
TILED = Fact("tiled-layouts", "an array without a tiled layout", _has_no_tiles, "control")

KERNEL_OPERATIONS = (
    NO_CALLS,
    FLAT_TUPLES,
    S32_INDICES,
    NO_COMPOSED,
    NO_CUSTOM_CALLS,
    NO_LINEAR_ALGEBRA,
    NO_FFT,
    NO_RANDOM,
    NO_SORT,
    NO_TOPK,
    NO_REDUCE_WINDOW,
    NO_SELECT_AND_SCATTER,
    NO_DOUBLES,
    WHOLE_BYTES,
    LANES,
)
"""What kernels cannot do is gone."""

CONTRACTS: Mapping[str, Contract] = {
    "layout-stripping": Contract(establishes=(BARE_SHAPES,), ends=(TILED,)),
    "call-inliner": Contract(establishes=(NO_CALLS,)),
    "spmd-partitioner": Contract(requires=(BARE_SHAPES,), establishes=(NO_CALLS,)),
    "tuple-flattener": Contract(requires=(NO_CALLS,), establishes=(FLAT_TUPLES,)),
    "simple-expansions": Contract(establishes=(S32_INDICES, NO_COMPOSED, EQUAL_WIDTHS)),
    "cse": Contract(requires=(BARE_SHAPES,)),
    "algebraic-simplifier": Contract(requires=(BARE_SHAPES,)),
    "dimension-merging": Contract(requires=(BARE_SHAPES, NO_CALLS)),
    "ordered-rounding": Contract(requires=(BARE_SHAPES,)),
    "custom-call-expander": Contract(requires=(BARE_SHAPES,), establishes=(NO_CUSTOM_CALLS,)),
    "linear-algebra-expander": Contract(requires=(BARE_SHAPES,), establishes=(NO_LINEAR_ALGEBRA,)),
    "fft-expander": Contract(requires=(BARE_SHAPES,), establishes=(NO_FFT,)),
    "rng-expander": Contract(requires=(BARE_SHAPES,), establishes=(NO_RANDOM,)),
    "loop-state": Contract(requires=(NO_CALLS, FLAT_TUPLES)),
    "while-simplifier": Contract(requires=(NO_CALLS, FLAT_TUPLES)),
    "loop-unrolling": Contract(requires=(NO_CALLS, FLAT_TUPLES)),
    "activation-order": Contract(requires=(BARE_SHAPES, NO_CALLS, FLAT_TUPLES)),
    "lane-packing": Contract(requires=(BARE_SHAPES, NO_CALLS, FLAT_TUPLES)),
    "convolution-canonicalizer": Contract(requires=(BARE_SHAPES,)),
    "convolution-folding": Contract(requires=(BARE_SHAPES,)),
    "running-totals": Contract(requires=(BARE_SHAPES,)),
    "tap-expander": Contract(requires=(BARE_SHAPES,)),
    "reduce-window-expander": Contract(requires=(BARE_SHAPES,), establishes=(NO_REDUCE_WINDOW,)),
    "select-and-scatter-expander": Contract(
        requires=(BARE_SHAPES,), establishes=(NO_SELECT_AND_SCATTER,)
    ),
    "topk-expander": Contract(requires=(BARE_SHAPES,), establishes=(NO_TOPK,)),
    "sort-kernels": Contract(requires=(BARE_SHAPES,)),
    "sort-expander": Contract(requires=(BARE_SHAPES,), establishes=(NO_SORT,)),
    "double-precision-narrower": Contract(establishes=(NO_DOUBLES,)),
    "double-precision-check": Contract(establishes=(NO_DOUBLES,)),
    "sub-byte-types": Contract(
        requires=(BARE_SHAPES, NO_CALLS, EQUAL_WIDTHS), establishes=(WHOLE_BYTES,)
    ),
    "pair-types": Contract(
        requires=(BARE_SHAPES, NO_CALLS, FLAT_TUPLES, EQUAL_WIDTHS, WHOLE_BYTES, NO_DOUBLES),
        establishes=(LANES,),
    ),
    "integer-dot-expander": Contract(requires=(BARE_SHAPES, LANES)),
    "small-dot-expander": Contract(requires=(BARE_SHAPES, LANES)),
    "dot-canonicalizer": Contract(requires=(BARE_SHAPES,)),
    "row-merging": Contract(requires=(BARE_SHAPES,), establishes=(DOTS_OF_MATRICES,)),
    "invariant-turns": Contract(requires=(BARE_SHAPES, NO_CALLS, FLAT_TUPLES)),
    "turn-splitting": Contract(requires=(BARE_SHAPES, NO_CALLS)),
    "row-alignment": Contract(requires=(BARE_SHAPES, NO_CALLS)),
    "operand-rounding": Contract(requires=(BARE_SHAPES, NO_CALLS)),
    "dimension-order": Contract(requires=(BARE_SHAPES, NO_CALLS, FLAT_TUPLES)),
    "scalar-arrays": Contract(requires=(BARE_SHAPES, NO_CALLS, FLAT_TUPLES, LANES, S32_INDICES)),
    "fusion": Contract(
        requires=(
            BARE_SHAPES,
            NO_CALLS,
            FLAT_TUPLES,
            S32_INDICES,
            WHOLE_BYTES,
            LANES,
            DOTS_OF_MATRICES,
        )
    ),
    "wrap-fusions": Contract(requires=(BARE_SHAPES, *KERNEL_OPERATIONS), establishes=(WRAPPED,)),
    "layout-assignment": Contract(
        requires=(BARE_SHAPES, WRAPPED), establishes=(TILED,), ends=(BARE_SHAPES,)
    ),
    "fusion-legalizer": Contract(requires=(WRAPPED, TILED)),
    "memory-space-assignment": Contract(requires=(WRAPPED, TILED)),
    "tiling": Contract(requires=(WRAPPED, TILED)),
    "loop-double-buffering": Contract(requires=(WRAPPED, TILED, FLAT_TUPLES)),
    "scheduling": Contract(requires=(WRAPPED, TILED, NO_CALLS)),
    "loop-exchanges": Contract(requires=(WRAPPED, TILED, FLAT_TUPLES, NO_CALLS)),
    "latency-hiding": Contract(requires=(WRAPPED, TILED, NO_CALLS)),
    "copy-insertion": Contract(requires=(WRAPPED, TILED, FLAT_TUPLES, NO_CALLS)),
}


def contract_of(name: str) -> Contract:
    """The contract of a pass; one that has none counts on nothing."""
    return CONTRACTS.get(name, Contract())


def who_establishes(fact: Fact) -> str:
    """The pass to run before one that requires the fact."""
    return next(name for name, c in CONTRACTS.items() if fact in c.establishes)


def order_of_facts(names: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Which of the passes precede which because one establishes what the other requires."""
    contracts = {name: contract_of(name) for name in names}
    for before, gives in contracts.items():
        for after, takes in contracts.items():
            for fact in gives.establishes:
                if fact in takes.requires and before != after:
                    yield before, after, f"it establishes {fact.name}"


def require(module: HloModule, name: str, held: Iterable[Fact]) -> None:
    """Raise CompileError unless all that the pass requires holds; what is `held` is not looked at."""
    for fact in contract_of(name).requires:
        if fact in held:
            continue
        broken = breaking(module, (fact,))
        if broken is not None:
            _, instr = broken
            raise CompileError(
                f"pass '{name}' requires {fact.name}, but %{instr.name} in "
                f"%{_place(instr)} is or has {fact.words}; run '{who_establishes(fact)}' before it",
                instr.span,
            )


def breaking(
    module: HloModule,
    facts: Iterable[Fact],
    computations: Iterable[HloComputation] | None = None,
) -> tuple[Fact, Instr] | None:
    """A fact that does not hold, and the instruction that breaks it."""
    wanted = tuple(facts)
    control = set(control_computations(module))
    for computation in module.computations.values() if computations is None else computations:
        is_control = computation in control
        here = [f for f in wanted if is_control or f.where == "everywhere"]
        for instr in computation:
            for fact in here:
                if fact.is_broken(instr):
                    return fact, instr
    return None


def _place(instr: Instr) -> str:
    return instr.computation.name if instr.computation is not None else "?"
