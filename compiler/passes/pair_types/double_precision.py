"""f64 and c128: a TPU has none. They are refused by name, or on request computed as f32 and c64."""

from __future__ import annotations

from compiler.diagnostics import UnsupportedError
from compiler.hlo.call_graph import reachable
from compiler.hlo.device_types import DOUBLES, device_type
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.shape import Shape, leaves
from compiler.passes.context import PassContext
from compiler.passes.pair_types.retyping import has_type, retype_entry, retype_instruction

_F32_BITS = {"exponent_bits": 8, "mantissa_bits": 23}


def refuse_doubles(module: HloModule, context: PassContext) -> bool:
    """Raise UnsupportedError for the first f64 or c128 array; changes nothing."""
    for computation in reachable(module):
        for instr in computation:
            name = _double(instr.shape)
            if name:
                raise UnsupportedError(
                    f"%{instr.name}: a TPU has no {name}: export the model in f32, or compile with "
                    f"--f64-as-f32 (CompileOptions(f64_as_f32=True)) to compute with less precision",
                    instr.span,
                )
    return False


def narrow_doubles(module: HloModule, context: PassContext) -> bool:
    """Make every f64 an f32 and every c128 a c64; the host keeps its types."""
    computations = reachable(module)
    if not any(_double(instr.shape) for c in computations for instr in c):
        return False
    retype_entry(module, device_type)
    for computation in module.computations.values():
        for instr in computation:
            _check_bits(instr)
        for instr in computation:
            if has_type(instr.shape, device_type):
                context.counts["instructions"] += 1
            retype_instruction(instr, device_type)
            if instr.opcode == "reduce-precision":
                _limit_format(instr)
    return True


def _double(shape: Shape) -> str:
    return next((leaf.dtype.name for leaf in leaves(shape) if leaf.dtype.name in DOUBLES), "")


def _check_bits(instr: HloInstruction) -> None:
    """The bits of an f64 mean nothing once it is an f32."""
    if instr.opcode != "bitcast-convert":
        return
    source, target = instr.operands[0].array.dtype, instr.array.dtype
    if source != target and {source.name, target.name} & DOUBLES.keys():
        raise UnsupportedError(
            f"%{instr.name}: bitcast-convert from {source} to {target} needs the bits of an f64; "
            "export the model in f32",
            instr.span,
        )


def _limit_format(instr: HloInstruction) -> None:
    for name, most in _F32_BITS.items():
        bits = instr.attrs.get(name)
        if isinstance(bits, int):
            instr.attrs[name] = min(bits, most)
