"""Sub-byte types: s4, u4, s2 and u2 become s8 and u8 holding the same numbers.

In device memory and in lanes an element has 8 bits, sign- or zero-extended. After each operation
whose result may leave the range it is wrapped: the low bits are extended again. Sums and products
in a reducer are wrapped once, after the reduction: arithmetic modulo 256 is right modulo 16.
"""

from __future__ import annotations

from collections.abc import Callable

from compiler.analysis.reducers import reducer_kind
from compiler.hlo.call_graph import callers, reachable
from compiler.hlo.device_types import SUB_BYTE
from compiler.hlo.dtypes import DType, integer_limits
from compiler.hlo.expression import Expr
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import Trait, with_trait
from compiler.hlo.shape import ArrayShape, TupleShape
from compiler.passes.context import PassContext
from compiler.passes.pair_types.retyping import has_type, retype_entry, retype_instruction
from compiler.passes.pair_types.tiny_floats import widen_tiny_floats
from compiler.rewrite.emitter import Emitter

Instr = HloInstruction

_WRAPPED = frozenset(
    {
        "abs", "add", "convolution", "divide", "dot", "iota", "multiply", "negate", "not", "power",
        "shift-left", "sign", "subtract",
    }
)  # fmt: skip
"""Operations whose result on bytes must be wrapped."""
_WRAPPED_LATER = frozenset({"add", "multiply"})
_REDUCTIONS = with_trait(Trait.COMBINES)


def widen_sub_byte(module: HloModule, context: PassContext) -> bool:
    """Rewrite every 2- and 4-bit integer of the module, and before them the tiny floats."""
    tiny = widen_tiny_floats(module)
    if tiny:
        context.counts["tiny floats"] += tiny
    computations = reachable(module)
    if not any(has_type(i.shape, _holder) for c in computations for i in c):
        return bool(tiny)
    retype_entry(module, _holder)
    loose = _loose_reducers(module)
    for computation in computations:
        context.counts["instructions"] += _Widener(computation, loose).run()
    return True


def _loose_reducers(module: HloModule) -> set[HloComputation]:
    """Sums and products that only reductions call."""
    return {
        computation
        for computation, found in callers(module).items()
        if reducer_kind(computation) in _WRAPPED_LATER
        and found
        and all(caller.opcode in _REDUCTIONS for caller in found)
    }


def _holder(dtype: DType) -> DType:
    return SUB_BYTE.get(dtype.name, dtype)


class _Widener:
    """Rewrites one computation; `loose` are the reducers that do not wrap."""

    def __init__(self, computation: HloComputation, loose: set[HloComputation]) -> None:
        self.computation = computation
        self.loose = loose

    def run(self) -> int:
        """Rewrite; return how many instructions changed type."""
        narrow = {i: i.array.dtype for i in self.computation if _is_narrow(i)}
        changed = [i for i in self.computation if has_type(i.shape, _holder)]
        touched = [i for i in self.computation if any(o in narrow for o in i.operands)]
        work = dict.fromkeys((*changed, *touched))
        sources = {i: narrow.get(i.operands[0]) if i.operands else None for i in work}
        for instr in changed:
            retype_instruction(instr, _holder)
        for instr in work:
            self._rewrite(instr, narrow.get(instr), sources[instr])
        self.computation.sort()
        return len(changed)

    def _rewrite(self, instr: Instr, dtype: DType | None, source: DType | None) -> None:
        if instr.opcode == "bitcast-convert":
            _replace(instr, _bitcast(instr, dtype))
        elif instr.opcode in _BY_BITS and source is not None:
            _replace(instr, _by_bits(instr, source))
        elif dtype is not None and instr.opcode == "convert":
            self._wrap_after(instr, dtype, is_clamped=instr.operands[0].array.dtype.is_float)
        elif dtype is not None and self._needs_wrap(instr):
            self._wrap_after(instr, dtype)
        elif instr.opcode in _REDUCTIONS and isinstance(instr.shape, TupleShape):
            self._refuse_loose(instr)

    def _needs_wrap(self, instr: Instr) -> bool:
        if instr.opcode in _REDUCTIONS:
            return any(c in self.loose for c in instr.called_computations())
        return instr.opcode in _WRAPPED and self.computation not in self.loose

    def _refuse_loose(self, instr: Instr) -> None:
        assert not any(c in self.loose for c in instr.called_computations())

    def _wrap_after(self, instr: Instr, dtype: DType, *, is_clamped: bool = False) -> None:
        users = list(instr.users)
        is_root = self.computation.root is instr
        x = Expr(Emitter.at(instr), instr)
        wrapped = (_clamped(x, dtype) if is_clamped else _wrapped(x, dtype)).instr
        for user in users:
            user.set_operands([wrapped if o is instr else o for o in user.operands])
        if is_root:
            self.computation.root = wrapped


def _is_narrow(instr: Instr) -> bool:
    return isinstance(instr.shape, ArrayShape) and instr.array.dtype.name in SUB_BYTE


def _wrapped(x: Expr, dtype: DType) -> Expr:
    """The low bits of a byte, extended again."""
    return _signed(x, dtype) if dtype.is_signed else _low_bits(x, dtype)


def _signed(x: Expr, dtype: DType) -> Expr:
    """The low bits of a byte as a signed number."""
    shift = x.like(8 - dtype.bits)
    return (x << shift).of("shift-right-arithmetic", shift)


def _low_bits(x: Expr, dtype: DType) -> Expr:
    return x & (1 << dtype.bits) - 1


def _clamped(x: Expr, dtype: DType) -> Expr:
    """Floats saturate."""
    low, high = integer_limits(dtype)
    return x.of("maximum", low).of("minimum", high)


def _replace(old: Instr, new: Instr) -> None:
    """Use `new` for `old`, which may be among its operands no more."""
    computation = old.home
    old.replace_all_uses_with(new)
    computation.remove(old)


def _by_bits(instr: Instr, dtype: DType) -> Instr:
    """What depends on how many bits an element has."""
    e = Emitter.at(instr)
    x, *amount = (Expr(e, operand) for operand in instr.operands)
    return _wrapped(_BY_BITS[instr.opcode](x, dtype, *amount), dtype).instr


_BY_BITS: dict[str, Callable[..., Expr]] = {
    "count-leading-zeros": lambda x, t: _low_bits(x, t).of("count-leading-zeros") - (8 - t.bits),
    "popcnt": lambda x, t: _low_bits(x, t).of("popcnt"),
    # of an unsigned type, too, the top bit is the sign
    "shift-right-arithmetic": lambda x, t, n: _signed(x, t).of("shift-right-arithmetic", n),
    "shift-right-logical": lambda x, t, n: _low_bits(x, t) >> n,
}


def _bitcast(instr: Instr, target: DType | None) -> Instr:
    """As many bits as another type."""
    result = Expr(Emitter.at(instr), instr.operands[0]).bits(instr.array.dtype)
    return (result if target is None else _wrapped(result, target)).instr
