"""Tiny floats: 4- and 6-bit types and f8e8m0fnu become wider types that hold all their values.

    f4e2m1fn f6e2m3fn f6e3m2fn    in f8e4m3fn
    f8e8m0fnu                     in bf16

Whatever makes a new value is computed in f32 and rounded once to a value of the type, by the
arithmetic below; moves, choices and comparisons work on the wider values as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.analysis.reducers import reducer_kind
from compiler.diagnostics import UnsupportedError
from compiler.hlo.call_graph import reachable
from compiler.hlo.device_types import TINY_FLOATS
from compiler.hlo.dtypes import BF16, BY_NAME, F32, S32, U8, DType
from compiler.hlo.expression import Expr
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import ArrayShape
from compiler.passes.expanders.bit_casts import joined_bits, split_bits
from compiler.passes.pair_types.retyping import has_type, retype_entry, retype_instruction
from compiler.rewrite import make
from compiler.rewrite.emitter import Emitter
from compiler.rewrite.graph import emit

Instr = HloInstruction


@dataclass(frozen=True)
class _Format:
    """A sign, `exponent` and `mantissa` bits, neither infinity nor NaN: overflow saturates."""

    exponent: int
    mantissa: int

    @property
    def bias(self) -> int:
        """Exponent bias."""
        return (1 << (self.exponent - 1)) - 1

    @property
    def largest(self) -> float:
        """The greatest value: all bits set."""
        top = (1 << self.exponent) - 1 - self.bias
        return (2.0 - 2.0**-self.mantissa) * 2.0**top

    @property
    def least_normal(self) -> float:
        """Below, values are multiples of the least one."""
        return 2.0 ** (1 - self.bias)


_FORMATS = {"f4e2m1fn": _Format(2, 1), "f6e2m3fn": _Format(2, 3), "f6e3m2fn": _Format(3, 2)}
_MAGIC = 1.5 * 2.0**23
_NAN = 0x7FC00000
_INFINITY = 0x7F800000


def widen_tiny_floats(module: HloModule) -> int:
    """Rewrite every tiny float of the module; return how many instructions changed."""
    computations = reachable(module)
    everything = [i for c in computations for i in c]
    held = sum(has_type(i.shape, _holder) for i in everything)
    if not held:
        return 0
    tiny = {i: i.array.dtype for i in everything if _is_tiny(i)}
    work = [i for i in everything if i in tiny or any(o in tiny for o in i.operands)]
    sources = {i: tiny.get(i.operands[0]) if i.operands else None for i in work}
    kinds = {i: reducer_kind(i.to_apply) for i in work if i.opcode == "reduce"}
    retype_entry(module, _holder)
    for instr in everything:
        retype_instruction(instr, _holder)
    for instr in work:
        _rewrite(instr, sources[instr], tiny.get(instr), kinds.get(instr))
    for computation in computations:
        computation.sort()
    return held


def _holder(dtype: DType) -> DType:
    return TINY_FLOATS.get(dtype.name, dtype)


def _is_tiny(instr: Instr) -> bool:
    return isinstance(instr.shape, ArrayShape) and instr.array.dtype.name in TINY_FLOATS


def _rewrite(instr: Instr, source: DType | None, target: DType | None, kind: str | None) -> None:
    e = Emitter.at(instr)
    if instr.opcode == "bitcast-convert":
        _replace(instr, _recoded(Expr(e, instr.operands[0]), instr, source, target))
    elif target is None:
        return
    elif instr.opcode == "convert":
        _replace(instr, _rounded(Expr(e, instr.operands[0]).convert(F32), target))
    elif instr.opcode == "iota" or OPCODES[instr.opcode].has(Trait.CONTRACTION):
        _replace(instr, _rounded(_in_f32(e, instr, list(instr.operands)), target))
    elif kind is not None:
        _replace(instr, _rounded(_reduced(e, instr, kind), target))
    elif OPCODES[instr.opcode].has(Trait.NONDETERMINISTIC):
        raise UnsupportedError(
            f"%{instr.name}: {instr.opcode} of {target}; make f32 and convert it", instr.span
        )
    elif OPCODES[instr.opcode].has(Trait.ELEMENTWISE) and not OPCODES[instr.opcode].has(
        Trait.EXACT
    ):
        operands = [e.cast(o, F32) if o.array.dtype.is_float else o for o in instr.operands]
        _replace(instr, _rounded(_in_f32(e, instr, operands), target))


def _replace(instr: Instr, new: Expr) -> None:
    computation = instr.home
    instr.replace_all_uses_with(new.instr)
    computation.remove(instr)


def _in_f32(e: Emitter, instr: Instr, operands: list[Instr]) -> Expr:
    attrs = dict(instr.attrs)
    return Expr(e, emit(instr, instr.opcode, instr.array.with_dtype(F32), operands, attrs))


def _reduced(e: Emitter, instr: Instr, kind: str) -> Expr:
    """One operation over f32, rounded at the end as sums of narrow floats are."""
    attrs = {**instr.attrs, "to_apply": make.reducer(instr, kind, F32)}
    operands = [e.cast(operand, F32) for operand in instr.operands]
    return Expr(e, emit(instr, "reduce", instr.array.with_dtype(F32), operands, attrs))


def _rounded(x: Expr, dtype: DType) -> Expr:
    """f32 rounded to the type's values, in its holder."""
    form = _FORMATS.get(dtype.name)
    value = _power_of_two(x) if form is None else _to_format(x, form)
    return value.convert(TINY_FLOATS[dtype.name])


def _to_format(x: Expr, form: _Format) -> Expr:
    """To nearest even; what is too large becomes the greatest value, a NaN -0."""
    size = abs(x)
    attrs: dict[str, object] = {"exponent_bits": 8, "mantissa_bits": form.mantissa}
    normal = Expr(x.b, x.b.instruction("reduce-precision", (size.instr,), attrs))
    least = form.least_normal * 2.0**-form.mantissa
    magic = x.like(_MAGIC * least)  # sums with it have the least value's spacing
    denormal = size + magic - magic
    value = (size < form.least_normal).where(denormal, normal).of("minimum", form.largest)
    return x.differs(x).where(-0.0, value * x.of("sign"))


def _power_of_two(x: Expr) -> Expr:
    """To the nearest power of two, from the middle on the greater; what has none is NaN."""
    bits = x.bits(S32)
    rounded = (bits + (1 << 22)) & -(1 << 23)
    power = (bits < 3 << 21).where(1 << 22, rounded)  # the least is 2**-127
    is_none = (bits <= 0) | (rounded >= _INFINITY) | (bits >= _INFINITY)
    return is_none.where(_NAN, power).bits(F32)


def _recoded(x: Expr, instr: Instr, source: DType | None, target: DType | None) -> Expr:
    """A bitcast-convert by the types' codes, which are in one byte each."""
    old, new = (t.bits for t in (source or x.dtype, target or instr.array.dtype))
    codes = x.bits(_word(old)) if source is None else _encoded(x, source)
    e = Emitter.at(instr)
    if old > new:
        codes = Expr(e, split_bits(e, codes.instr, old, _word(new)))
    elif old < new:
        codes = Expr(e, joined_bits(e, codes.instr, old)).convert(_word(new))
    return codes.bits(instr.array.dtype) if target is None else _decoded(codes, target)


def _word(bits: int) -> DType:
    """The unsigned type that codes of so many bits are in."""
    return BY_NAME[f"u{bits}"] if bits < 6 else U8


def _encoded(x: Expr, dtype: DType) -> Expr:
    """The code of each element, as an unsigned integer."""
    single = x.convert(F32)
    bits = single.bits(S32)
    form = _FORMATS.get(dtype.name)
    if form is None:
        return (bits >> 23).convert(U8)
    scaled = abs(single) * 2.0 ** (form.bias - 127)  # f32's denormals are the type's
    sign = (bits >> 31) << (form.exponent + form.mantissa)
    return ((scaled.bits(S32) >> (23 - form.mantissa)) | sign).convert(_word(dtype.bits))


def _decoded(codes: Expr, dtype: DType) -> Expr:
    """The element of each code, in the type's holder."""
    word = codes.convert(S32)
    form = _FORMATS.get(dtype.name)
    if form is None:
        bits = word.equals(0).where(1 << 22, word << 23)
        return word.equals(255).where(_NAN, bits).bits(F32).convert(BF16)
    width = form.exponent + form.mantissa
    size = word & (1 << width) - 1
    number = (size << (23 - form.mantissa)).bits(F32) * 2.0 ** (127 - form.bias)
    sign = (word >> width) << 31
    return (number.bits(S32) | sign).bits(F32).convert(TINY_FLOATS[dtype.name])
