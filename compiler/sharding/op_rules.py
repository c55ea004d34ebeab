"""The table of sharding rules over all opcodes, and why an opcode has none."""

from __future__ import annotations

from compiler.hlo.attributes import FrontendAttributes
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import leaves
from compiler.sharding.compute_rules import COMPUTE_RULES
from compiler.sharding.movement_rules import (
    ELEMENTWISE_RULES,
    MOVEMENT_RULES,
    RuleOf,
    maker_of,
    pointwise,
)
from compiler.sharding.rule import ShardingRule

FULL_TO_SHARD = "SPMDFullToShardShape"
SHARD_TO_FULL = "SPMDShardToFullShape"
"""The custom calls at which a region begins and ends whose shapes are each device's own."""


def _boundary(instr: HloInstruction) -> ShardingRule:
    """The larger side's dimension is cut first by what is manual inside, then as inside."""
    found = maker_of(instr)
    (given,), (made,) = found.operand_dims, found.result_dims
    for dim, (a, b) in enumerate(zip(given, made, strict=True)):
        if a > b and b:
            found.add(a // b, {0: dim}, {})
        elif b > a and a:
            found.add(b // a, {}, {0: dim})
        found.add(min(a, b), {0: dim}, {0: dim})
    return found.rule()


MOVES = frozenset({"LayoutConstraint", "MoveToDevice", "MoveToHost", "annotate_device_placement"})
"""Custom calls that say in which memory, or how, an array lies there: it is the same array behind them."""

CUSTOM_CALL_RULES: dict[str, RuleOf] = {
    FULL_TO_SHARD: _boundary,
    SHARD_TO_FULL: _boundary,
    **dict.fromkeys(MOVES, pointwise),
}
"""By the custom call's target; others do the same for every element of a batch, or relate nothing."""

_OF_MATRICES = frozenset(
    {"Eigh", "LuDecomposition", "ProductOfElementaryHouseholderReflectors", "Qr"}
)
"""Custom calls that do the same for each matrix of their first operand."""


def batch_rank(instr: HloInstruction) -> int:
    """How many leading dimensions of all arrays of a custom call are a batch: as it says, or as its target is
    known for."""
    arrays = [leaf for operand in instr.operands for leaf in leaves(operand.shape)]
    if not arrays:
        return 0
    said = instr.attrs.get("frontend_attributes")
    number = said.get("num_batch_dims") if isinstance(said, FrontendAttributes) else None
    if number is not None and number.isdecimal():
        count = int(number)
    elif instr.attrs.get("custom_call_target") in _OF_MATRICES:
        count = max(0, arrays[0].rank - 2)
    else:
        count = 0
    arrays += leaves(instr.shape)
    return count if all(a.dims[:count] == arrays[0].dims[:count] for a in arrays) else 0


def _by_batch(instr: HloInstruction) -> ShardingRule:
    found = maker_of(instr)
    for dim in range(batch_rank(instr)):
        found.add_same(dim, size=found.operand_dims[0][dim])
    return found.rule()


def _custom_call(instr: HloInstruction) -> ShardingRule:
    return CUSTOM_CALL_RULES.get(str(instr.attrs.get("custom_call_target")), _by_batch)(instr)


RULES: dict[str, RuleOf] = {
    **ELEMENTWISE_RULES,
    **MOVEMENT_RULES,
    **COMPUTE_RULES,
    "custom-call": _custom_call,
}

_TUPLES = "its arrays are the same values as its operands'"
_EDGES = "what flows into its computations and out of them is told by data-flow edges"
_OPAQUE = "what it computes is not known; its operands and results are replicated"
_LATER = "passes make it of other operations after partitioning"
_ASYNC = "it stands only in programs that are partitioned already"
_HOST = "data of the host or another program has no sharding"
EXPANDED = "it becomes other operations before shardings are propagated"

NO_RULE: dict[str, str] = {
    "add-dependency": _TUPLES,
    "after-all": _TUPLES,
    "all-gather-done": _ASYNC,
    "all-gather-start": _ASYNC,
    "all-reduce-done": _ASYNC,
    "all-reduce-start": _ASYNC,
    "async-done": _ASYNC,
    "async-start": _ASYNC,
    "async-update": _ASYNC,
    "call": EXPANDED,
    "collective-permute-done": _ASYNC,
    "collective-permute-start": _ASYNC,
    "conditional": _EDGES,
    "copy-done": _ASYNC,
    "copy-start": _ASYNC,
    "domain": _TUPLES,
    "dynamic-reshape": "sizes that are known only at run time are refused",
    "fusion": EXPANDED,
    "get-dimension-size": "sizes that are known only at run time are refused",
    "get-tuple-element": _TUPLES,
    "infeed": _HOST,
    "opt-barrier": _TUPLES,
    "outfeed": _HOST,
    "network-sort": _LATER,
    "pair-fft": _LATER,
    "parameter": "it is given",
    "ragged-dot": _OPAQUE,
    "recv": _HOST,
    "recv-done": _HOST,
    "rng-bit-generator": "its state is needed whole to make any part of its numbers",
    "rng-get-and-update-state": "its state is one for the program",
    "running-total": _LATER,
    "scan": _OPAQUE,
    "send": _HOST,
    "send-done": _HOST,
    "set-dimension-size": "sizes that are known only at run time are refused",
    "shuffle": _OPAQUE,
    "tuple": _TUPLES,
    "while": _EDGES,
}


def rule_of(instr: HloInstruction) -> ShardingRule | None:
    """The rule of an instruction; None for one that relates nothing by itself."""
    made = RULES.get(instr.opcode)
    return None if made is None else made(instr)
