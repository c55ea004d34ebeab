"""Tiny floats: 4- and 6-bit types and f8e8m0fnu become wider types that hold all their values.

    f4e2m1fn f6e2m3fn f6e3m2fn    in f8e4m3fn
    f8e8m0fnu                     in bf16

Whatever makes a new value is computed in f32 and rounded once to a value of the type, by the
arithmetic below; moves, choices and comparisons work on the wider values as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from compiler.analysis.reducers import reducer_kind
from compiler.diagnostics import UnsupportedError
from compiler.hlo.call_graph import reachable
from compiler.hlo.device_types import TINY_FLOATS
from compiler.hlo.dtypes import BF16, BY_NAME, F32, S32, U8, DType
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import ArrayShape
from compiler.passes.expanders.bit_casts import joined_bits, split_bits
from compiler.passes.pair_types.emitter import Emitter
from compiler.passes.pair_types.retyping import has_type, retype_entry, retype_instruction
from compiler.rewrite import make
from compiler.rewrite.emitter import Emitter as Bits
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
    if instr.opcode == "bitcast-convert":
        _replace(instr, lambda e: _recoded(e, instr, source, target))
    elif target is None:
        return
    elif instr.opcode == "convert":
        _replace(instr, lambda e: _rounded(e, _wide(e, instr.operands[0]), target))
    elif instr.opcode == "iota" or OPCODES[instr.opcode].has(Trait.CONTRACTION):
        _replace(instr, lambda e: _rounded(e, _in_f32(instr, list(instr.operands)), target))
    elif kind is not None:
        _replace(instr, lambda e: _rounded(e, _reduced(e, instr, kind), target))
    elif OPCODES[instr.opcode].has(Trait.NONDETERMINISTIC):
        raise UnsupportedError(
            f"%{instr.name}: {instr.opcode} of {target}; make f32 and convert it", instr.span
        )
    elif OPCODES[instr.opcode].has(Trait.ELEMENTWISE) and not OPCODES[instr.opcode].has(
        Trait.EXACT
    ):
        operands = [
            _wide(Emitter(instr), o) if o.array.dtype.is_float else o for o in instr.operands
        ]
        _replace(instr, lambda e: _rounded(e, _in_f32(instr, operands), target))


def _replace(instr: Instr, build: Callable[[Emitter], Instr]) -> None:
    computation = instr.computation
    assert computation is not None
    new = build(Emitter(instr))
    instr.replace_all_uses_with(new)
    computation.remove(instr)


def _wide(e: Emitter, x: Instr) -> Instr:
    return e.convert(x, F32)


def _in_f32(instr: Instr, operands: list[Instr]) -> Instr:
    attrs = dict(instr.attrs)
    return emit(instr, instr.opcode, instr.array.with_dtype(F32), operands, attrs)


def _reduced(e: Emitter, instr: Instr, kind: str) -> Instr:
    """One operation over f32, rounded at the end as sums of narrow floats are."""
    attrs = {**instr.attrs, "to_apply": make.reducer(instr, kind, F32)}
    operands = [_wide(e, operand) for operand in instr.operands]
    return emit(instr, "reduce", instr.array.with_dtype(F32), operands, attrs)


def _rounded(e: Emitter, x: Instr, dtype: DType) -> Instr:
    """f32 rounded to the type's values, in its holder."""
    form = _FORMATS.get(dtype.name)
    value = _power_of_two(e, x) if form is None else _to_format(e, x, form)
    return e.convert(value, TINY_FLOATS[dtype.name])


def _to_format(e: Emitter, x: Instr, form: _Format) -> Instr:
    """To nearest even; what is too large becomes the greatest value, a NaN -0."""
    size = e.abs(x)
    attrs: dict[str, object] = {"exponent_bits": 8, "mantissa_bits": form.mantissa}
    normal = emit(x, "reduce-precision", x.array, (size,), attrs)
    least = form.least_normal * 2.0**-form.mantissa
    magic = e.f32(_MAGIC * least, x.array.dims)  # sums with it have the least value's spacing
    denormal = e.sub(e.add(size, magic), magic)
    is_denormal = e.lt(size, e.f32(form.least_normal, x.array.dims))
    value = e.min(e.select(is_denormal, denormal, normal), e.f32(form.largest, x.array.dims))
    signed = e.mul(value, e.unary("sign", x))
    return e.select(e.ne(x, x), e.f32(-0.0, x.array.dims), signed)


def _power_of_two(e: Emitter, x: Instr) -> Instr:
    """To the nearest power of two, from the middle on the greater; what has none is NaN."""
    dims = x.array.dims

    def word(value: int) -> Instr:
        return e.constant(S32, value, dims)

    bits = e.bitcast(x, S32)
    rounded = e.and_(e.add(bits, word(1 << 22)), word(-(1 << 23)))
    least = word(1 << 22)  # 2**-127
    power = e.select(e.lt(bits, word(3 << 21)), least, rounded)
    is_none = e.or_(e.compare("LE", bits, word(0)), e.compare("GE", rounded, word(0x7F800000)))
    is_none = e.or_(is_none, e.compare("GE", bits, word(0x7F800000)))
    return e.bitcast(e.select(is_none, word(_NAN), power), F32)


def _recoded(e: Emitter, instr: Instr, source: DType | None, target: DType | None) -> Instr:
    """A bitcast-convert by the types' codes, which are in one byte each."""
    operand = instr.operands[0]
    old, new = (t.bits for t in (source or operand.array.dtype, target or instr.array.dtype))
    codes = e.bitcast(operand, _word(old)) if source is None else _encoded(e, operand, source)
    if old > new:
        codes = split_bits(Bits.at(instr), codes, old, _word(new))
    elif old < new:
        codes = e.convert(joined_bits(Bits.at(instr), codes, old), _word(new))
    if target is None:
        return e.bitcast(codes, instr.array.dtype)
    return _decoded(e, codes, target)


def _word(bits: int) -> DType:
    """The unsigned type that codes of so many bits are in."""
    return BY_NAME[f"u{bits}"] if bits < 6 else U8


def _encoded(e: Emitter, x: Instr, dtype: DType) -> Instr:
    """The code of each element, as an unsigned integer."""
    bits = e.bitcast(_wide(e, x), S32)
    form = _FORMATS.get(dtype.name)
    if form is None:
        return e.convert(e.shr(bits, 23), U8)
    scale = e.f32(2.0 ** (form.bias - 127), x.array.dims)
    size = e.bitcast(e.mul(e.abs(_wide(e, x)), scale), S32)  # f32's denormals are the type's
    sign = e.shl(e.shr(bits, 31), form.exponent + form.mantissa)
    return e.convert(e.or_(e.shr(size, 23 - form.mantissa), sign), _word(dtype.bits))


def _decoded(e: Emitter, codes: Instr, dtype: DType) -> Instr:
    """The element of each code, in the type's holder."""
    word, dims = e.convert(codes, S32), codes.array.dims
    form = _FORMATS.get(dtype.name)
    if form is None:
        bits = e.shl(word, 23)
        bits = e.select(e.eq(word, e.constant(S32, 0, dims)), e.constant(S32, 1 << 22, dims), bits)
        is_nan = e.eq(word, e.constant(S32, 255, dims))
        value = e.bitcast(e.select(is_nan, e.constant(S32, _NAN, dims), bits), F32)
        return e.convert(value, BF16)
    width = form.exponent + form.mantissa
    size = e.and_(word, e.constant(S32, (1 << width) - 1, dims))
    number = e.bitcast(e.shl(size, 23 - form.mantissa), F32)
    number = e.mul(number, e.f32(2.0 ** (127 - form.bias), dims))
    sign = e.shl(e.shr(word, width), 31)
    value = e.bitcast(e.or_(e.bitcast(number, S32), sign), F32)
    return e.convert(value, TINY_FLOATS[dtype.name])
