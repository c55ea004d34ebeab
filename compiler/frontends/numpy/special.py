"""Special functions of traced arrays: the formulas of `compiler.hlo.special_functions`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compiler.frontends.numpy.ops import as_float, convert_keeping_weak, needs_real, promoted, wrap
from compiler.frontends.numpy.tracer import Trace, Tracer
from compiler.hlo.expression import Expr
from compiler.hlo.special_functions import wide

Formula = Callable[..., Expr]


def apply_special(trace: Trace, formula: Formula, *values: Any) -> Tracer:
    """A formula of real arrays, broadcast against each other; integers count as f32, and types
    narrower than f32 are computed in f32."""
    name = formula.__name__
    floats = [as_float(needs_real(name, x)) for x in promoted(trace, values)]
    results = formula(*(wide(Expr(trace.builder, x.instr)) for x in floats))
    return convert_keeping_weak(wrap(floats[0], results.instr), floats[0].dtype)


def apply_opcode(trace: Trace, opcode: str, value: Any) -> Tracer:
    """An elementwise opcode that NumPy has no name for."""
    (x,) = promoted(trace, [value])
    real = as_float(needs_real(opcode, x))
    return wrap(real, trace.builder.unary(opcode, real.instr), is_weak=real.is_weak)
